"""Records as the classes of their kinds read them."""

import pytest
from figure_samples import as_json
from kl_sample_records import RECORDS

from dpatlas.errors import InputError
from dpatlas_workflow.records import parse_record


@pytest.fixture
def content():
    (record, *_) = RECORDS["kl_constants"]()
    return as_json(record)


def test_a_record_is_read_by_the_classes_of_its_kind(content):
    record = parse_record(content, "here")
    assert (record.key, record.kind) == ("kl_privacy", record.spec.kind)
    assert (
        type(record.spec).__module__ == f"dpatlas_workflow.papers.kl_privacy.records.{record.kind}"
    )
    assert set(record.tables) == {"rows"} and record.facts == {"inputs": 4}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {}}, "here: spec: found a spec without key and kind"),
        ({"spec": {"key": "alchemy", "kind": "gold"}}, "key: found 'alchemy'"),
        ({"spec": {"key": "kl_privacy", "kind": "gold"}}, "here: spec: kind: found 'gold'"),
        ({"metrics": {}}, r"here: metrics: found without inputs, rows; allowed: inputs, rows"),
        ({"metrics": []}, r"here: metrics: found list; allowed: an object with inputs, rows"),
        ({"metrics": {"inputs": 4, "rows": {}}}, r"here: metrics\.rows: found dict; allowed: a"),
        ({"metrics": {"inputs": 4, "rows": [{"B": 1}]}}, r"metrics\.rows\.0: found without depth"),
        ({"metrics_version": 99}, "here: metrics_version: found 99; allowed: 2"),
    ],
)
def test_another_shape_is_named_in_a_line(content, change, words):
    with pytest.raises(InputError, match=words) as raised:
        parse_record({**content, **change}, "here")
    assert "\n" not in str(raised.value)
