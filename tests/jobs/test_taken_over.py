"""A spec that another tier has run alike is copied; anything that differs, and it runs."""

from pathlib import Path

import pytest

from dpatlas.base.files import read_json, write_json
from dpatlas.base.records import make_record
from dpatlas.base.specs import Spec
from dpatlas_workflow.run import command
from dpatlas_workflow.run.taken_over import take_over

SPEC = Spec.of({"key": "kl_privacy", "kind": "training", "seed": 3}, "a-run")
SAME = {"spec_digest": SPEC.digest, "code_digest": "c0de", "versions": {"numpy": "2"}}
SAME |= {"device": "cpu"}


@pytest.fixture
def tiers(tmp_path):
    """Two tiers' places for the record; the first has run, both have the data set."""
    places = [tmp_path / tier / "runs" / "kl_privacy" / SPEC.id for tier in ("done", "mine")]
    for place in places:
        write_json(place.parents[2] / "data" / "digits" / "manifest.json", {"sha256": "da7a"})
    rest = dict.fromkeys(("data", "seeds", "ledger", "metrics"))
    record = make_record(SPEC, code_digest="c0de", versions=SAME["versions"], device="cpu", **rest)
    write_json(places[0] / "record.json", record)
    write_json(places[0] / "cost.json", {"cpu_s": 5})
    (places[0] / "backbone").mkdir()
    (places[0] / "backbone" / "weights.npz").write_bytes(b"w")
    return places


def taken(tiers, same=SAME):
    data = tiers[1].parents[2] / "data" / "digits" / "manifest.json"
    return take_over(tiers[1] / "record.json", same, [data])


def test_all_files_are_copied_and_outlive_the_other_tier(tiers):
    assert taken(tiers) == tiers[0] / "record.json"
    names = {path.relative_to(tiers[1]): path.read_bytes() for path in tiers[1].rglob("*.*")}
    assert {*map(str, names)} == {"record.json", "cost.json", "backbone/weights.npz"}
    for name, content in names.items():
        original = tiers[0] / name
        assert original.read_bytes() == content and not original.samefile(tiers[1] / name)


@pytest.mark.parametrize("name", SAME)
def test_of_another_code_version_or_device_nothing_is_taken(tiers, name):
    assert taken(tiers, {**SAME, name: "another"}) is None
    assert not tiers[1].exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("../../../data/digits/manifest.json", '{"sha256": "another"}'),
        ("../../../data/digits/manifest.json", None),
        ("record.json", "{"),
        ("record.json", "{}"),
    ],
)
def test_of_other_inputs_or_a_torn_record_nothing_is_taken(tiers, name, content):
    path = tiers[0] / name
    path.unlink() if content is None else path.write_text(content)
    assert taken(tiers) is None


def test_a_tier_does_not_take_from_itself(tiers):
    assert taken([tiers[0], tiers[0]]) is None
    assert read_json(tiers[0] / "cost.json") == {"cpu_s": 5}


@pytest.mark.parametrize("place", ["record.json", "a/b/c/d/e/record.json"])
def test_outside_of_a_tier_nothing_is_taken(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert take_over(Path(place), SAME, []) is None


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupted_job_goes_on_by_itself(begun, tmp_path, monkeypatch):
    spec = Spec.of({"key": "dp_sgld", "kind": "counterexample"}, "laws")
    ran = []
    monkeypatch.setattr(command, "execute", lambda *given, **options: ran.append(given[0]))
    monkeypatch.setattr(command, "take_over", lambda *given: tmp_path)
    if begun:
        (tmp_path / spec.id).mkdir()
    words = ["--spec", spec.argument, "--record", "record.json", "--checkpoints", str(tmp_path)]
    assert command.main(words) == 0
    assert ran == [spec] * begun
