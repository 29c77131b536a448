"""Settings chosen before the runs: tried on the fixed part alone, counted, handed on, resumed."""

import json
import re
from contextlib import contextmanager

import numpy as np
import pytest
from sgld_small import long_chosen, run, save_data, spec_of
from small_jobs import counted, killed_at

from dpatlas.accounting.ledger import Ran, tuning_of
from dpatlas.base import seeds
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.run.deals import Deals

METHODS = ("repaired-full, guaranteed", "dp-sgd, guaranteed", "noisy-gd, theorem")
# 3 methods, 2 settings, 2 trials; 3 methods, 2 runs.
TRIAL_STEPS, REPORTED_STEPS = 3 * 2 * 2 * (2 + 5), 3 * 2 * (2 + 5)
# Two runs: 8 steps of DP-SGD and SGD (2 epochs of 4), 12 of Langevin arms, 3 on full batches.
ACCURACY, ACCURACY_STEPS = spec_of("accuracy", schedule="constant"), 2 * (3 * 8 + 4 * 12 + 2 * 3)
STEPS = [(PrivateTraining, "step"), (LangevinRun, "step")]


@contextmanager
def claimed_noise():
    """The list of (what keys the noise, repetition, shared by) of trainings made within."""
    claims, real = [], Noise.claim

    def claim(noise, repetition, training, shared=None):
        claims.append((noise._root, repetition, shared))
        return real(noise, repetition, training, shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "claim", claim)
        yield claims


@pytest.fixture(scope="module")
def tuned(data, tmp_path_factory):
    """Of the small tuning: path of its record, the record, what ran and what claimed noise."""
    folder, ran, real = tmp_path_factory.mktemp("tuned"), [], Ran.facts
    with pytest.MonkeyPatch.context() as patch, claimed_noise() as claims:
        patch.setattr(Ran, "facts", lambda each: ran.append(each) or real(each))
        record = json.loads(run(spec_of("long_training_tuning"), data, folder))
    return folder / "record.json", record, ran, claims


@pytest.fixture(scope="module")
def reported(data, tmp_path_factory):
    """The record of the small runs."""
    return json.loads(run(spec_of("long_training"), data, tmp_path_factory.mktemp("reported")))


def waiting(record, **changes):
    """A spec that waits for the outcome of this tuning."""
    return spec_of("long_training", tuning=record["id"], chosen=None, **changes)


def test_every_arm_tries_its_grid_and_takes_the_best_mean_score(tuned):
    rows = tuned[1]["metrics"]["rows"]
    names = [f"{method}, {steps} steps, epsilon 8" for steps in (2, 5) for method in METHODS]
    assert [row["arm"] for row in rows] == names
    for row in rows:
        key, grid = ("lr", [0.5, 2.0]) if "dp-sgd" in row["arm"] else ("lambda", [0.03, 0.1])
        assert [each["settings"] for each in row["tried"]] == [{key: value} for value in grid]
        means = [np.mean(each["scores"]) for each in row["tried"]]
        assert row["chosen"] == row["tried"][int(np.argmax(means))]["settings"]
        assert all(len(each["scores"]) == 2 for each in row["tried"]) and row["trials"] == 4
    assert tuned[1]["metrics"]["n_fixed"] == 9


def test_trials_see_the_fixed_part_alone_and_reported_runs_never_do(
    data, tmp_path, monkeypatch, tuned, reported
):
    """With other records in the other parts, both write the same metrics."""
    others = {"x_train": np.linspace(0, 1, 16), "x_test": np.ones(16)}
    for kind, record, poison in (
        ("long_training_tuning", tuned[1], others),
        ("long_training", reported, {"x_validation": np.full(16, 7.0)}),
    ):
        other = save_data(tmp_path / f"data-{kind}", **poison)
        again = json.loads(run(spec_of(kind), other, tmp_path / kind))
        assert again["data"]["sha256"] != record["data"]["sha256"]
        assert again["metrics"] == record["metrics"]
    monkeypatch.setattr(Deals, "of", None)
    monkeypatch.setattr(seeds, "_claims", {})
    run(spec_of("long_training_tuning"), data, tmp_path / "without")


def test_the_ledger_composes_every_trial_and_gives_the_fixed_part_no_finite_epsilon(tuned):
    """What was counted are the trainings that the process really did, one by one."""
    _, record, ran, claims = tuned
    ledger, rows = record["ledger"], record["metrics"]["rows"]
    assert ledger["epsilon"] is None and "no finite epsilon" in ledger["guaranteed"]
    assert "24 trials" in ledger["chosen_on_private_data"]
    assert len(ran) == 24 and all(each.shared_noise is None for each in ran)
    for number, (arm, row) in enumerate(zip(ledger["arms"], rows, strict=True)):
        trials = ran[4 * number : 4 * number + 4]
        expected = tuning_of(trials[1:], trials[:1], delta=1e-5, relation="replace_one")["epsilon"]
        assert row["trials_epsilon"] == pytest.approx(expected)
        assert arm["epsilon"] == row["trials_epsilon"] > arm["one_run"]["epsilon"] > 0
        # Two settings of an arm may differ in what they guarantee.
        assert arm["event"].startswith(("4 trainings, each: ", "4 trainings: 2 of "))
        (choice,) = arm["chosen_on_private_data"]
        assert "4 trials" in choice["what"] and "no finite epsilon" in choice["cost"]
    # No two trials share noise.
    assert len({repetition for _, repetition, _ in claims}) == len(claims) == 24
    assert {shared for *_, shared in claims} == {None}


@pytest.mark.parametrize(
    ("redeal", "several"),
    [
        (True, ", nor have all runs: one trains on records that another is scored on"),
        (False, "; the runs, which train on the same records, are not composed here"),
    ],
)
def test_all_arms_of_a_run_share_its_noise_and_the_ledger_says_what_that_leaves_out(
    data, tmp_path, redeal, several
):
    spec = spec_of("long_training", data={"name": "small", "redeal": redeal}, first_run=4)
    with claimed_noise() as claims:
        ledger = json.loads(run(spec, data, tmp_path))["ledger"]
    expected = [(4, "the arms of one run"), (5, "the arms of one run")] * 6
    assert sorted(claim[1:] for claim in claims) == sorted(expected)
    for arm in ledger["arms"]:
        assert "the arms of one run" in arm["holds_for"] and arm["epsilon"] <= 8
    assert ledger["guaranteed"].endswith(f"as they share noise{several}")
    (choice,) = ledger["chosen_on_private_data"]
    assert "small-tuning on 9 records that are in no run" in choice["what"]


@pytest.mark.parametrize(
    ("spec", "total", "kills"),
    [
        (spec_of("long_training_tuning"), TRIAL_STEPS, (3, 50)),
        (spec_of("long_training"), REPORTED_STEPS, (3, 25)),
        (spec_of("long_training", noise_source="os"), REPORTED_STEPS, (25,)),
        # Accounting for batches without replacement takes seconds a calibration.
        pytest.param(ACCURACY, ACCURACY_STEPS, (17, 100), marks=pytest.mark.slow),
    ],
)
def test_a_job_killed_at_any_step_resumes_to_the_same_bytes(
    data, tmp_path, monkeypatch, spec, total, kills
):
    # The system gives the first attempt its secret, and another one to whoever asks again.
    secrets = {"whole": b"\0", "killed": b"\0", "resumed": b"\1"}

    def attempt(name, folder):
        monkeypatch.setattr("os.urandom", lambda size: secrets[name] * size)
        return run(spec, data, folder)

    whole = attempt("whole", tmp_path / "whole")
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    for kill_at in kills:
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, *STEPS):
            attempt("killed", folder)
        with counted(*STEPS) as done:
            assert attempt("resumed", folder) == whole
        # One step that was taken and not saved is taken again, none of the others.
        assert len(done) == total - kill_at


def test_runs_take_what_the_tuning_that_they_wait_for_chose_and_noise_of_their_own(
    data, tuned, tmp_path
):
    """Another outcome has the same spec: with equal noise, the difference would show clean sums."""
    path, record, *_ = tuned
    rows = [{**row, "chosen": row["tried"][-1]["settings"]} for row in record["metrics"]["rows"]]
    assert rows != record["metrics"]["rows"]
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**record, "metrics": {**record["metrics"], "rows": rows}}))
    roots = []
    for number, tuning in enumerate((path, path, other)):
        with claimed_noise() as claims:
            made = json.loads(run(waiting(record), data, tmp_path / f"{number}", tuning=tuning))
        roots.append({root for root, *_ in claims})
        chosen = json.loads(tuning.read_text())["metrics"]["rows"]
        for row, arm in zip(made["metrics"]["arms"], chosen, strict=True):
            assert arm["chosen"].items() <= row.items()
        (choice,) = made["ledger"]["chosen_on_private_data"]
        assert re.search(rf"by {record['id']} \(settings [0-9a-f]{{16}}\) on 9", choice["what"])
    first, again, second = roots
    assert len(first) == 1 and again == first and not second & first


def test_a_tuning_that_is_missing_another_one_or_not_asked_for_is_refused(data, tuned, tmp_path):
    path, record, *_ = tuned
    lacking = spec_of("long_training", chosen=long_chosen([2]))
    for spec, tuning, message in (
        (waiting(record), None, f"--tuning: found no record of {record['id']}"),
        (waiting({"id": "other-01234567"}), path, "allowed: other-01234567"),
        (spec_of("long_training"), path, "a spec that has no settings yet"),
        (lacking, None, "no settings of repaired-full, guaranteed, 5 steps"),
    ):
        with pytest.raises(InputError, match=message):
            run(spec, data, tmp_path, tuning=tuning)
