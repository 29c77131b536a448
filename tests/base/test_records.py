"""Records: the fields, the bytes, and what is refused."""

import json
import os

import pytest

from dpatlas.base.records import (
    Stopwatch,
    make_record,
    read_record,
    write_record,
)
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError

SPEC = Spec.of({"key": "kl_privacy", "kind": "training", "lr": 0.1}, "he")
PARTS = {
    "code_digest": "c0de",
    "versions": {"python": "3"},
    "device": "cpu",
    "data": {"sha256": "da7a"},
    "seeds": {"base": 0},
    "ledger": {"mechanism": "none"},
    "metrics": {"kl": [1.0, 2.0]},
}


def test_a_record_with_missing_or_further_fields_is_a_mistake_of_ours():
    without = {name: value for name, value in PARTS.items() if name != "ledger"}
    with pytest.raises(TypeError, match=r"missing .'ledger'., extra .'host'."):
        make_record(SPEC, **without, host="here")


def test_two_runs_write_the_same_bytes_and_their_own_costs(tmp_path):
    paths = [tmp_path / name / "record.json" for name in ("one", "two")]
    for path in paths:
        write_record(path, make_record(SPEC, **PARTS), Stopwatch())
        assert read_record(path) == make_record(SPEC, **PARTS)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    for path in paths:
        cost = json.loads(path.with_name("cost.json").read_text())
        assert 0 <= cost["wall_s"] < 10 and 10 < cost["peak_memory_mb"] < 100_000
        assert (cost["cores"], cost["device"]) == (os.cpu_count(), "cpu")


def test_the_record_is_written_last(tmp_path, monkeypatch):
    order = []
    write = "dpatlas.base.records.write_json"
    monkeypatch.setattr(write, lambda path, value: order.append(path.name))
    write_record(tmp_path / "record.json", make_record(SPEC, **PARTS), Stopwatch())
    assert order == ["cost.json", "record.json"]


@pytest.mark.parametrize(
    ("content", "found"),
    [("[]", "version list"), ('{"schema_version": 99}', "99"), ('{"schema_version": 1}', "spec")],
)
def test_what_is_no_record_is_refused_with_its_path(tmp_path, content, found):
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InputError, match=found) as caught:
        read_record(path)
    assert str(path) in str(caught.value)


def test_an_interrupted_attempts_seconds_are_counted_once(monkeypatch):
    # This process may have used more than the attempt already.
    monkeypatch.setattr("time.process_time", lambda: 0.5)
    stopwatch = Stopwatch()
    stopwatch.carry({"wall_s": 100.0, "cpu_s": 50.0})
    stopwatch.carry({"wall_s": 30.0, "cpu_s": 20.0})
    spent = stopwatch.read()
    assert 100 <= spent["wall_s"] < 101
    assert 50 <= spent["cpu_s"] < 51
