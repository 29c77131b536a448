"""Every figure and table of the papers: what it refuses, how blocks of runs are shown, and that
what is shown of the sample records moves on purpose alone.
"""

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from block_worlds import worlds_of
from figure_samples import blocks_of, maker, names_of

from dpatlas.base.records import RunsFields
from dpatlas.errors import InputError
from dpatlas_workflow.records import joined
from dpatlas_workflow.registry import all_papers

PRODUCTS = [
    (key, name)
    for key in all_papers()
    for kind in ("figure", "table")
    for name in names_of(key, kind)
]
# By figure or table a digest of its panels or parts, notes and rows.
FROZEN = Path(__file__).with_name("shown.txt")
every_product = pytest.mark.parametrize(("key", "name"), PRODUCTS)


@every_product
def test_records_of_other_kinds_alone_are_refused(key, name):
    other = ("dp_sgld", "sgld_utility") if key != "dp_sgld" else ("kl_privacy", "kl_vs_depth")
    others, _ = worlds_of(other[0]).SHOWN[other[1]]()
    with pytest.raises(InputError, match="--records"):
        maker(name)(others, worlds_of(key).SHOWN[name]()[1])


@every_product
def test_blocks_of_runs_are_shown_as_one_condition(key, name):
    records, settings = worlds_of(key).SHOWN[name]()
    repeated = [each for each in records if isinstance(each.spec, RunsFields)]
    apart = [
        replace(joined(blocks_of(each, 1))[0], data=each.data) if each in repeated else each
        for each in records
    ]
    shown, whole = (maker(name)(each, settings).rows for each in (apart, records))
    assert [{**row, "runs": 0} for row in shown] == [{**row, "runs": 0} for row in whole]
    named = {block for row in shown for block in row["runs"]}
    assert named == {block for each in apart for block in each.ids}


def plain(value):
    """What JSON holds of a figure or table; six digits, as other machines have other last ones.

    Far below all that is shown lies what rounding leaves of 0.
    """
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        # Ids of records are those of their specs, which tests/test_frozen.py keeps.
        return [[plain(name), plain(inner)] for name, inner in value.items() if name != "runs"]
    if isinstance(value, (str, int, type(None))):
        return value
    if isinstance(value, float):
        return "0" if abs(value) < 1e-12 else f"{value:.6g}"
    return [*map(plain, value)]


@every_product
def test_what_is_shown_of_the_sample_records_moves_on_purpose_alone(key, name):
    """On purpose: the new digest into shown.txt, and the commit says what moved."""
    text = json.dumps(plain(maker(name)(*worlds_of(key).SHOWN[name]())))
    digest = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}  {name}"
    assert digest in FROZEN.read_text().splitlines()
