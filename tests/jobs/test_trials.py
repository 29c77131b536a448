"""Trials on fewer records than the reported runs have, and grids that depend on earlier choices."""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from sgld_small import save_data, spec_of
from torch import nn

from dpatlas.accounting.ledger import together
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Poisson
from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.records import Stopwatch, checked_fields
from dpatlas.data import prepared
from dpatlas.jobs.job import Job
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.records.long_training_tuning import LongTrainingTuningSpec
from dpatlas_workflow.run.arms import Arm, Arms, accuracy
from dpatlas_workflow.run.private_plan import composed, dp_sgd_phase, resized
from dpatlas_workflow.run.tuning import tune

ACCOUNTS = (1e-5, "add_remove")
PROBLEM = RegressionProblem(n=1150, classes=10, feature_norm=1.0, delta=1e-5)


@pytest.mark.parametrize(
    ("sampler", "n", "batch", "multiplier"),
    [
        (Poisson(1150, 115), 300, 115, 2.0),
        (Poisson(1150, 600), 300, 300, 1.0),
        (FixedSize(1150, 400), 300, 300, 1.5),
        (FullBatch(1150), 300, 300, 2.0 * 300 / 1150),
        (Poisson(1150, 115), 1150, 115, 2.0),
    ],
)
def test_a_trial_takes_as_many_steps_with_as_much_noise_on_a_mean_gradient(
    sampler, n, batch, multiplier
):
    trial = resized(dp_sgd_phase(sampler, 2.0, 1.0, 40, 0.1), n)
    assert (trial.sampler.n, trial.sampler.batch) == (n, batch)
    assert type(trial.sampler) is type(sampler) and trial.steps == 40
    assert trial.noise_multiplier == pytest.approx(multiplier)
    assert trial.noise_multiplier / batch == pytest.approx(2.0 / sampler.batch)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_batch_of_all_records_of_a_trial_is_accounted_for(accountant):
    """Sampled at rate 1 it costs as much as full batches of the same noise."""
    phase = dp_sgd_phase(Poisson(1150, 600), 12.0, 1.0, 40, 0.1)
    trial = resized(phase, 300)
    assert trial.sampler.sample_rate == 1
    full = replace(trial, sampler=FullBatch(300))
    of_reported, of_trial, of_full = (
        composed(each.accounted, *ACCOUNTS, accountant).guaranteed_epsilon
        for each in (phase, trial, full)
    )
    assert of_trial == pytest.approx(of_full, rel=1e-3)
    assert of_trial > of_reported


@pytest.mark.parametrize(
    ("method", "kind", "batch"),
    [("dp-sgld", FixedSize, 115), ("repaired-cyclic", Cyclic, 115), ("noisy-gd", FullBatch, 300)],
)
@pytest.mark.parametrize("schedule", ["constant", "decreasing"])
def test_a_langevin_trial_takes_the_steps_of_the_reported_run(method, kind, batch, schedule):
    plan = LangevinPlan(PROBLEM, method, "guaranteed", schedule, 0.01, 7, 115)
    trial = plan.on(300)
    assert type(trial.sampler) is kind
    assert (trial.sampler.n, trial.sampler.batch) == (300, batch)
    assert trial.rates == plan.rates and trial.steps == plan.steps
    assert trial.with_noise(0.3).sigma == plan.with_noise(0.3).sigma
    assert plan.on(1150) is plan


def small_tuning(folder: Path, after):
    """Two arms: rates of the first are tried alone, and with the best of them those of the second.

    The second trains in two phases, so that its grid has the chosen rate in every entry.
    """
    data = save_data(folder / "data").parent
    spec = spec_of("long_training_tuning", accountant="rdp")
    store = Checkpoints(folder / "checkpoints", {})
    fields = checked_fields(LongTrainingTuningSpec, spec.fields, "--spec: ")
    job = Job(spec, fields, prepared.load(data), "cpu", store, Stopwatch())
    tried = []

    def at(arm, chosen):
        def train(one):
            x, labels = (
                {part: torch.from_numpy(array) for part, array in arrays.items()}
                for arrays in (one.records.x, one.records.labels)
            )
            n = len(labels["train"])
            planned = [dp_sgd_phase(FullBatch(24), 8.0, 1.0, 2, lr) for lr in chosen["lrs"]]
            phases = [resized(phase, n) for phase in planned]
            model = nn.Linear(16, 3)
            nn.init.zeros_(model.weight)
            nn.init.zeros_(model.bias)
            training = PrivateTraining(model, phases, x["train"], labels["train"], **one.draws)
            one.finish(training)
            tried.append((arm, one.number, training.ran))
            return {"accuracy": accuracy(model(x["test"]), labels["test"])}, training.ran

        return Arm(train, lambda: {"relation": "add_remove"})

    def grid_of(arm, chosen):
        first = chosen["first"]["lrs"] if arm == "second" else []
        return [{"lrs": [*first, lr]} for lr in (0.01, 5.0)]

    arms = {arm: partial(at, arm) for arm in ("first", "second")}
    with torch.no_grad():
        outcome = tune(job, Arms(arms, lambda dealt: dealt, "m", "c"), grid_of, after)
    return outcome.metrics["rows"], outcome.ledger, tried


def test_a_grid_may_start_from_what_an_earlier_arm_chose_and_pays_for_its_trials(tmp_path):
    after = {"first": (), "second": ("first",)}
    (first, second), ledger, tried = small_tuning(tmp_path, after.get)
    assert [arm for arm, _, _ in tried] == ["first"] * 4 + ["second"] * 4
    assert [number for _, number, _ in tried] == [0, 1] * 4
    for each in second["tried"]:
        assert each["settings"]["lrs"][:1] == first["chosen"]["lrs"]
    assert first["trials"] == 4 and second["trials"] == 8
    of_all = together([ran for _, _, ran in tried], 1e-5, "add_remove", "rdp")[0]
    assert second["trials_epsilon"] == pytest.approx(of_all) and second["trials_epsilon"] > 0
    assert first["trials_epsilon"] < second["trials_epsilon"]
    assert ledger["chosen_on_private_data"] == "the settings of all arms, by 8 trials"


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([0.5] * 4, 0.01), ([0.6, 0.6, 0.9, 0.1], 0.01), ([0.1, 0.9, 0.6, 0.6], 5.0)],
)
def test_the_best_mean_is_chosen_and_of_equal_ones_the_first(tmp_path, monkeypatch, scores, chosen):
    given = itertools.cycle(scores)
    monkeypatch.setattr("test_trials.accuracy", lambda outputs, labels: next(given))
    rows, _, _ = small_tuning(tmp_path, lambda arm: ())
    assert [row["chosen"]["lrs"][-1] for row in rows] == [chosen, chosen]
    assert [score for each in rows[0]["tried"] for score in each["scores"]] == scores
