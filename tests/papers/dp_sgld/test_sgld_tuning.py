"""Settings chosen before the runs: tried on the fixed part alone, counted, handed on, resumed."""

import json
import re

import numpy as np
import pytest
from sgld_small import BACKBONE, long_chosen, run, save_backbone, save_data, spec_of
from small_jobs import arguments, counted, killed_at

from dpatlas.accounting.ledger import Ran, tuning_of
from dpatlas.base import seeds
from dpatlas.base.records import checked_fields
from dpatlas.base.seeds import Noise
from dpatlas.data.prepare import prepare
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.dp_sgld import cost
from dpatlas_workflow.papers.dp_sgld.records.long_training import LongTrainingSpec
from dpatlas_workflow.run.command import main
from dpatlas_workflow.run.deals import Deals

METHODS = ("repaired-full, guaranteed", "dp-sgd, guaranteed", "noisy-gd, theorem")
# 3 methods, 2 settings, 2 trials; 3 methods, 2 runs.
TRIAL_STEPS, REPORTED_STEPS = 3 * 2 * 2 * (2 + 5), 3 * 2 * (2 + 5)
# Two runs: 8 steps of DP-SGD and SGD (2 epochs of 4), 12 of Langevin arms, 3 on full batches.
ACCURACY, ACCURACY_STEPS = spec_of("accuracy", schedule="constant"), 2 * (3 * 8 + 4 * 12 + 2 * 3)
STEPS = [(PrivateTraining, "step"), (LangevinRun, "step")]


@pytest.fixture(scope="module")
def tuned(data, tmp_path_factory):
    """The record of the small tuning, as its path and as JSON."""
    folder = tmp_path_factory.mktemp("tuned")
    record = json.loads(run(spec_of("long_training_tuning"), data, folder))
    return folder / "record.json", record


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


def test_trials_see_the_fixed_part_alone(data, tmp_path, monkeypatch, tuned):
    """With other records to train and test on, the tuning writes the same rows."""
    other = save_data(tmp_path / "data", x_train=np.linspace(0, 1, 16), x_test=np.ones(16))
    again = json.loads(run(spec_of("long_training_tuning"), other, tmp_path / "again"))
    assert again["data"]["sha256"] != tuned[1]["data"]["sha256"]
    assert again["metrics"] == tuned[1]["metrics"]
    monkeypatch.setattr(Deals, "of", None)
    monkeypatch.setattr(seeds, "_claims", {})
    run(spec_of("long_training_tuning"), data, tmp_path / "without")


def test_the_ledger_composes_every_trial_and_gives_the_fixed_part_no_finite_epsilon(tuned):
    ledger, rows = tuned[1]["ledger"], tuned[1]["metrics"]["rows"]
    assert ledger["epsilon"] is None and "no finite epsilon" in ledger["guaranteed"]
    assert "24 trials" in ledger["chosen_on_private_data"]
    for arm, row in zip(ledger["arms"], rows, strict=True):
        assert arm["epsilon"] == row["trials_epsilon"] > arm["one_run"]["epsilon"] > 0
        # Two settings of an arm may differ in what they guarantee.
        assert arm["event"].startswith(("4 trainings, each: ", "4 trainings: 2 of "))
        (choice,) = arm["chosen_on_private_data"]
        assert "4 trials" in choice["what"] and "no finite epsilon" in choice["cost"]


def test_the_composed_epsilon_is_that_of_all_trainings_that_ran(data, tmp_path, monkeypatch):
    """What was counted are the trainings that this process really did, one by one."""
    ran = []
    real = Ran.facts

    def facts(self):
        ran.append(self)
        return real(self)

    monkeypatch.setattr(Ran, "facts", facts)
    spec = spec_of("long_training_tuning", steps=[2])
    rows = json.loads(run(spec, data, tmp_path))["metrics"]["rows"]
    assert len(ran) == 12 and all(each.shared_noise is None for each in ran)
    for number, row in enumerate(rows):
        trials = ran[4 * number : 4 * number + 4]
        accounts = {"delta": 1e-5, "relation": "replace_one"}
        expected = tuning_of(trials[1:], trials[:1], **accounts)["epsilon"]
        assert row["trials_epsilon"] == pytest.approx(expected)


def test_no_two_trials_share_noise_and_all_arms_of_a_run_do(data, tmp_path, monkeypatch):
    claims = []
    real = Noise.claim

    def claim(noise, repetition, training, shared=None):
        claims.append((repetition, shared))
        return real(noise, repetition, training, shared)

    monkeypatch.setattr(Noise, "claim", claim)
    run(spec_of("long_training_tuning"), data, tmp_path / "tuning")
    assert len({repetition for repetition, _ in claims}) == len(claims) == 24
    assert {shared for _, shared in claims} == {None}
    claims.clear()
    record = json.loads(run(spec_of("long_training", first_run=4), data, tmp_path / "runs"))
    assert sorted(claims) == sorted([(4, "the arms of one run"), (5, "the arms of one run")] * 6)
    for arm in record["ledger"]["arms"]:
        assert "the arms of one run" in arm["holds_for"] and arm["epsilon"] <= 8


@pytest.mark.parametrize(
    ("spec", "total", "kills"),
    [
        (spec_of("long_training_tuning"), TRIAL_STEPS, (3, 50)),
        (spec_of("long_training"), REPORTED_STEPS, (3, 25)),
        # Accounting for batches without replacement takes seconds a calibration.
        pytest.param(ACCURACY, ACCURACY_STEPS, (17, 100), marks=pytest.mark.slow),
    ],
    ids=lambda each: getattr(each, "slug", None),
)
def test_a_job_killed_at_any_step_resumes_to_the_same_bytes(
    data, tmp_path, monkeypatch, spec, total, kills
):
    whole = run(spec, data, tmp_path / "whole")
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    for kill_at in kills:
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, *STEPS):
            run(spec, data, folder)
        with counted(*STEPS) as done:
            assert run(spec, data, folder) == whole
        # One step that was taken and not saved is taken again, none of the others.
        assert len(done) == total - kill_at


def test_runs_take_what_the_tuning_that_they_wait_for_chose(data, tuned, tmp_path):
    path, record = tuned
    made = json.loads(run(waiting(record), data, tmp_path, tuning=path))
    (choice,) = made["ledger"]["chosen_on_private_data"]
    assert re.search(rf"by {record['id']} \(settings [0-9a-f]{{16}}\) on 9", choice["what"])
    for row, arm in zip(made["metrics"]["arms"], record["metrics"]["rows"], strict=True):
        name, value = next(iter(arm["chosen"].items()))
        assert row[name] == value


def roots_of(folder, monkeypatch, data, spec, tuning):
    """What keys the noise of a job, by what its trainings claimed."""
    roots = set()
    real = Noise.claim

    def claim(noise, *given):
        roots.add(noise._root)
        return real(noise, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Noise, "claim", claim)
        run(spec, data, folder, tuning=tuning)
    return roots


def test_another_outcome_of_the_tuning_gets_noise_of_its_own(data, tuned, tmp_path, monkeypatch):
    """Both have one spec: with equal noise, their difference would show the clean sums."""
    path, record = tuned
    rows = [{**row, "chosen": row["tried"][-1]["settings"]} for row in record["metrics"]["rows"]]
    assert any(
        new["chosen"] != row["chosen"]
        for new, row in zip(rows, record["metrics"]["rows"], strict=True)
    )
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**record, "metrics": {**record["metrics"], "rows": rows}}))
    spec = waiting(record, steps=[2])
    first, again, second = (
        roots_of(tmp_path / str(number), monkeypatch, data, spec, tuning)
        for number, tuning in enumerate((path, path, other))
    )
    assert len(first) == 1 and again == first and not second & first


def test_a_tuning_that_is_missing_another_one_or_not_asked_for_is_refused(data, tuned, tmp_path):
    path, record = tuned
    with pytest.raises(InputError, match=f"--tuning: found no record of {record['id']}"):
        run(waiting(record), data, tmp_path)
    with pytest.raises(InputError, match="allowed: other-01234567"):
        run(waiting({"id": "other-01234567"}), data, tmp_path, tuning=path)
    with pytest.raises(InputError, match="a spec that has no settings yet"):
        run(spec_of("long_training"), data, tmp_path, tuning=path)
    with pytest.raises(InputError, match="no settings of repaired-full, guaranteed, 5 steps"):
        run(spec_of("long_training", chosen=long_chosen([2])), data, tmp_path)


def test_reported_runs_never_see_the_fixed_part(data, tmp_path):
    whole = json.loads(run(spec_of("long_training"), data, tmp_path / "whole"))
    other = save_data(tmp_path / "data", x_validation=np.full(16, 7.0))
    again = json.loads(run(spec_of("long_training"), other, tmp_path / "again"))
    assert again["data"]["sha256"] != whole["data"]["sha256"]
    assert again["metrics"] == whole["metrics"]
    (choice,) = whole["ledger"]["chosen_on_private_data"]
    assert "small-tuning on 9 records that are in no run" in choice["what"]


@pytest.mark.parametrize(
    ("redeal", "several"),
    [
        (True, ", nor have all runs: one trains on records that another is scored on"),
        (False, "; the runs, which train on the same records, are not composed here"),
    ],
)
def test_a_ledger_says_what_the_guarantee_of_one_run_leaves_out(data, tmp_path, redeal, several):
    spec = spec_of("long_training", data={"name": "small", "redeal": redeal}, steps=[2])
    ledger = json.loads(run(spec, data, tmp_path))["ledger"]
    assert ledger["guaranteed"].endswith(f"as they share noise{several}")


FONTS = {"name": "fonts", "classes": [0, 1, 2], "n_train": 60, "n_test": 30, "n_validation": 24}


def test_runs_on_a_generated_set_show_the_backbone_records_of_their_own(tmp_path):
    """Its tuning takes the features of the fixed part; the runs are given none."""
    options = {name: value for name, value in FONTS.items() if name != "name"}
    prepare("fonts", options, tmp_path / "data")
    manifest = tmp_path / "data" / "manifest.json"
    folder = save_backbone(tmp_path / "backbone", image_shape=(1, 8, 8))
    shown = {"features": "penultimate", "backbone": BACKBONE, "steps": [2]}
    spec = spec_of("long_training_tuning", data=FONTS, **shown)
    record = json.loads(run(spec, manifest, tmp_path / "tuning", [folder]))
    assert record["metrics"]["n_fixed"] == 24
    fresh = spec_of(
        "long_training", data={**FONTS, "redeal": True}, tuning=record["id"], chosen=None, **shown
    )
    taken = spec_of("long_training", **shown, data={**FONTS, "redeal": False})
    assert cost.takes_features(checked_fields(LongTrainingSpec, taken.fields, "--spec: "))
    assert not cost.takes_features(checked_fields(LongTrainingSpec, fresh.fields, "--spec: "))
    given = [*arguments(fresh, manifest, tmp_path / "runs", [folder])]
    main([*given, "--tuning", str(tmp_path / "tuning" / "record.json")])
    made = json.loads((tmp_path / "runs" / "record.json").read_text())
    assert made["metrics"]["features"] is None and made["metrics"]["n_train"] == 60
    assert made["metrics"]["backbone"]["id"] == BACKBONE
    assert made["ledger"]["guaranteed"].endswith("; every run draws records of its own")
    assert {row["run"] for row in made["metrics"]["runs"]} == {0, 1}
    named = [stream.split()[0] for stream in made["seeds"]["named"]]
    assert named == ["generated", "init", "records"]
