"""A record's seeds are the streams that its job drew, also where another attempt drew them."""

import json

import numpy as np
import pytest
from sgld_small import save_data
from small_jobs import Killed

from dpatlas.base.records import RecordShape, SpecFields
from dpatlas.base.seeds import Noise, generator, seed
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.jobs.job import Kind, Outcome, execute

SPEC = Spec.of({"key": "feature_learning", "kind": "small", "seed": 3}, "small")


def work(job, kill=False):
    """A job of two halves, each with streams of its own, and a checkpoint between them."""
    noise = Noise(job.spec.digest, "keyed")
    stored = job.restored("half", noise)
    if stored is None:
        first = generator(seed("feature_learning", use="weights", run=0)).random()
        first += noise.normal(1, repetition=0, step=0, use="first")[0]
        job.save("half", {"first": np.array(first)}, {}, noise)
        if kill:
            raise Killed
    else:
        first = float(stored[0]["first"])
    second = noise.normal(1, repetition=0, step=1, use="second")[0]
    return Outcome({"both": first + second}, {})


def run(folder, kill=False, spec=SPEC, does=work, fields=SpecFields, **given):
    """The record's bytes; given: the manifest of data, and the record of a tuning."""
    shape = RecordShape(fields, version=1, facts="both", tables={})
    kind = Kind(lambda job: does(job, kill), record=shape, packages=("numpy",))
    paths = {"record": folder / "record.json", "checkpoints": folder / "checkpoints"}
    given = {"module": "dpatlas.jobs.job", "data": None, "device": "cpu", **paths, **given}
    execute(spec, kind, **given)
    return paths["record"].read_bytes()


def test_a_record_names_the_streams_that_were_drawn(tmp_path):
    seed("feature_learning", use="outside", run=0)
    assert json.loads(run(tmp_path))["seeds"] == {
        "base": 3,
        "keyed": ["first", "second"],
        "named": ["weights (feature_learning, run)"],
    }


def test_a_job_that_was_killed_names_what_its_first_attempt_drew(tmp_path):
    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", kill=True)
    # The second attempt draws nothing of the first half.
    assert run(tmp_path / "killed") == whole


def test_a_job_that_draws_nothing_says_so_and_one_that_needs_data_refuses_a_spec_without(tmp_path):
    spec = Spec.of({"key": "feature_learning", "kind": "small"}, "small")
    found = run(tmp_path, spec=spec, does=lambda job, kill: Outcome({"both": 0.0}, {}))
    assert json.loads(found)["seeds"] == {}
    with pytest.raises(InputError, match="--data: found nothing"):
        run(tmp_path, does=lambda job, kill: job.prepared)


class Tuned(SpecFields):
    """A spec that names data, and waits for the settings of a tuning."""

    data: dict[str, str]
    tuning: str
    chosen: None


def uses_a_checkpoint(folder, values=0.0, outcome=0.0, kill=False):
    """Whether a job finds a checkpoint; it leaves one if it is killed.

    values: in the data. outcome: of the tuning.
    """
    run(folder / "tuning", does=lambda job, kill: Outcome({"both": outcome}, {}))
    fields = {**SPEC.fields, "data": {"name": "small"}, "tuning": SPEC.id, "chosen": None}
    found = []

    def does(job, kill):
        found.append(job.restored("half") is not None)
        job.save("half", {}, {})
        if kill:
            raise Killed
        return Outcome({"both": 0.0}, {})

    data, tuning = save_data(folder / "data", x_train=values), folder / "tuning/record.json"
    run(folder, kill, Spec.of(fields, "small"), does, Tuned, data=data, tuning=tuning)
    return found == [True]


@pytest.mark.parametrize(
    ("given", "patched"),
    [
        ({}, {}),
        ({"values": 1.0}, {}),
        ({"outcome": 1.0}, {}),
        ({}, {"versions": lambda *packages: {"numpy": "0"}}),
        ({}, {"code_digest": lambda module: "of tomorrow"}),
        ({}, {"resolve_device": lambda name: "cuda"}),
    ],
    ids=["the same", "data", "tuning", "versions", "code", "device"],
)
def test_a_checkpoint_is_of_one_input_code_and_device(tmp_path, monkeypatch, given, patched):
    with pytest.raises(Killed):
        uses_a_checkpoint(tmp_path, kill=True)
    for name, function in patched.items():
        monkeypatch.setattr(job_module, name, function)
    assert uses_a_checkpoint(tmp_path, **given) == (not given and not patched)
