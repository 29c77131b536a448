"""Trials on fewer records than the reported runs have, and grids that depend on earlier choices."""

import itertools
from pathlib import Path

import pytest
import torch
from sgld_small import save_data, spec_of
from torch import nn

from dpatlas.accounting.ledger import Ran, together
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Poisson
from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.records import Stopwatch, checked_fields
from dpatlas.data import prepared
from dpatlas.jobs.job import Job
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.records.long_training_tuning import LongTrainingTuningSpec
from dpatlas_workflow.run.arms import Arms, ArmSetting, accuracy
from dpatlas_workflow.run.private_plan import DpSgdPlan
from dpatlas_workflow.run.tuning import Tuning

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
    plan = DpSgdPlan(sampler, 40, 1.0, *ACCOUNTS, noise_multiplier=2.0)
    trial = plan.on(n)
    assert (trial.sampler.n, trial.sampler.batch) == (n, batch)
    assert type(trial.sampler) is type(sampler) and trial.steps == 40
    assert trial.noise_multiplier == pytest.approx(multiplier)
    assert trial.noise_multiplier / batch == pytest.approx(2.0 / sampler.batch)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_batch_of_all_records_of_a_trial_is_accounted_for(accountant):
    """Sampled at rate 1 it costs as much as full batches of the same noise."""
    plan = DpSgdPlan(Poisson(1150, 600), 40, 1.0, *ACCOUNTS, accountant, 12.0)
    trial = plan.on(300)
    assert trial.sampler.sample_rate == 1
    full = DpSgdPlan(FullBatch(300), 40, 1.0, *ACCOUNTS, accountant, trial.noise_multiplier)
    assert trial.stated.guaranteed == pytest.approx(full.stated.guaranteed, rel=1e-3)
    assert trial.stated.guaranteed > plan.stated.guaranteed


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

    def setting_of(arm, chosen):
        def train(one):
            x, labels = (
                {part: torch.from_numpy(array) for part, array in arrays.items()}
                for arrays in (one.records.x, one.records.labels)
            )
            n = len(labels["train"])
            plan = DpSgdPlan(FullBatch(24), 2 * len(chosen["lrs"]), 1.0, *ACCOUNTS, "rdp", 8.0)
            phases = [plan.on(n).phase(lr, steps=2) for lr in chosen["lrs"]]
            tried.append((arm, chosen["lrs"], one.number))
            model = nn.Linear(16, 3)
            nn.init.zeros_(model.weight)
            nn.init.zeros_(model.bias)
            ran = one.train(model, phases, x["train"], labels["train"]).ran
            return {"accuracy": accuracy(model(x["test"]), labels["test"])}, ran

        return ArmSetting({}, lambda: {"relation": "add_remove"}, train)

    def grid_of(arm, chosen):
        first = chosen["first"]["lrs"] if arm == "second" else []
        return [{"lrs": [*first, lr]} for lr in (0.01, 5.0)]

    arms = Arms(["first", "second"], str, lambda dealt: dealt, setting_of)
    tuning = Tuning(job, arms, grid_of, after)
    with torch.no_grad():
        return tuning, tuning.run(), tried


def test_a_grid_may_start_from_what_an_earlier_arm_chose_and_pays_for_its_trials(tmp_path):
    after = {"first": (), "second": ("first",)}
    tuning, (first, second), tried = small_tuning(tmp_path, after.get)
    assert [arm for arm, _, _ in tried] == ["first"] * 4 + ["second"] * 4
    assert [number for _, _, number in tried] == [0, 1] * 4
    for each in second["tried"]:
        assert each["settings"]["lrs"][:1] == first["chosen"]["lrs"]
    assert first["trials"] == 4 and second["trials"] == 8
    facts = [*tuning.trials["first"], *tuning.trials["second"]]
    composed = together([Ran.of(each) for each in facts], 1e-5, "add_remove", "rdp")[0]
    assert second["trials_epsilon"] == pytest.approx(composed) and second["trials_epsilon"] > 0
    assert first["trials_epsilon"] < second["trials_epsilon"]
    assert (
        tuning.ledger("m", "c")["chosen_on_private_data"] == "the settings of all arms, by 8 trials"
    )


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([0.5] * 4, 0.01), ([0.6, 0.6, 0.9, 0.1], 0.01), ([0.1, 0.9, 0.6, 0.6], 5.0)],
)
def test_the_best_mean_is_chosen_and_of_equal_ones_the_first(tmp_path, monkeypatch, scores, chosen):
    given = itertools.cycle(scores)
    monkeypatch.setattr("test_trials.accuracy", lambda outputs, labels: next(given))
    _, rows, _ = small_tuning(tmp_path, lambda arm: ())
    assert [row["chosen"]["lrs"][-1] for row in rows] == [chosen, chosen]
    assert [score for each in rows[0]["tried"] for score in each["scores"]] == scores
