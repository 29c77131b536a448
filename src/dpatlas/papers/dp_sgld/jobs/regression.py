"""dp_sgld: softmax regression on bounded features, by Langevin steps or by DP-SGD."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from dpatlas.core.progress import say
from dpatlas.jobs.job import Job
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Search, Setting, Trial, accuracy
from dpatlas.papers.dp_sgld.jobs.arms import STEP_SIZE, LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression_data import Split
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.ledger import HELD_OUT, PUBLIC, Ran, holds_for

CONSTANTS = ("feature_norm", "lambda", "max_grad_norm", "n", "radius", "smoothness")
THEOREM = "Ryffel et al. 2022, Thm 3.2"


def problem_of(job: Job, split: Split) -> Problem:
    """What the job makes public; its warnings are said aloud.

    Fields that a spec may leave out: step_size (eta_0 in units of 1 / beta), radius, accountant.
    """
    fields = job.spec.fields
    problem = Problem(
        n=len(split.labels["train"]),
        classes=split.classes,
        feature_norm=fields["feature_norm"],
        delta=fields["delta"],
        step_size=fields.get("step_size", STEP_SIZE),
        radius=fields.get("radius"),
        accountant=fields.get("accountant", "auto"),
    )
    for warning in problem.warnings():
        say(f"{job.spec.id}: {warning}")
    return problem


def langevin_setting(plan: LangevinPlan, epsilon: float, split: Split) -> Setting:
    """The plan with the noise that `epsilon` asks for."""
    sigma2 = plan.sigma2(epsilon)
    chosen = plan.with_noise(sigma2)

    def score(trial: Trial) -> tuple[float, Ran]:
        x, labels = split.x["train"], split.labels["train"]
        run = LangevinRun(
            chosen,
            x,
            labels,
            split.classes,
            noise=trial.noise,
            repetition=trial.repetition,
        )
        trial.finish(run)
        return _accuracy(run.weights, split, trial.part), plan.ran(run)

    facts = {
        "lambda": plan.lam,
        "beta": plan.beta,
        "lipschitz": plan.problem.lipschitz,
        "radius": chosen.radius,
        "lr": chosen.rates[0],
        "batch": chosen.sampler.batch,
        "epochs": plan.passes,
        "steps": chosen.steps,
        "sigma": chosen.sigma,
        "sampler": chosen.sampler.name,
    }
    return Setting(facts, lambda: plan.stated(sigma2).as_row(), score)


def sgd_setting(plan: DpSgdPlan, lr: float, split: Split) -> Setting:
    """DP-SGD from zero weights."""

    def score(trial: Trial) -> tuple[float, Ran]:
        x, labels = split.x["train"], split.labels["train"]
        layer = nn.Linear(x.shape[1], split.classes, bias=False)
        nn.init.zeros_(layer.weight)
        training = trial.train(layer, [plan.phase(lr)], x, labels)
        return _accuracy(layer.weight.detach(), split, trial.part), training.ran

    return Setting(sgd_facts(plan, lr), lambda: plan.stated.as_row(), score)


def sgd_facts(plan: DpSgdPlan, lr: float) -> dict[str, Any]:
    """What a row says of DP-SGD."""
    return {"lr": lr, "epochs": plan.steps / plan.sampler.steps_per_epoch, **plan.facts()}


def arms_ledger(mechanism: str, clip: str, search: Search) -> dict[str, Any]:
    """One ledger for a job of many arms, each with its own under `arms`."""
    in_arms = "as each arm says"
    fields = search.job.spec.fields
    return {
        "mechanism": mechanism,
        "neighbour_relation": in_arms,
        "sampler": sorted({row["sampler"] for row in search.rows}),
        "accountant": in_arms,
        "epsilon": None,
        "delta": fields["delta"],
        "guaranteed": f"{in_arms}, for the last iterate of one run of that arm; all arms together "
        "have no guarantee here",
        "claimed": in_arms,
        "clip": clip,
        "noise_multiplier": None,
        "chosen_on_private_data": "settings, by the validation scores of trainings on the private "
        f"records: each arm says what that costs by composition; {HELD_OUT}",
        "holds_for": holds_for(search.noise.source, "one run of one arm"),
        "arms": search.ledgers,
    }


def regression_search(
    job: Job, arms: Sequence[Any], settings_of: Callable[[Any], Sequence[Setting]]
) -> Search:
    """The search of softmax regression on bounded features."""
    return Search(job, arms, asdict, settings_of, named=_arm_name, in_ledger=_in_ledger(job))


def _in_ledger(job: Job) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def stated(row: dict[str, Any]) -> dict[str, Any]:
        claimed = None
        if row["claimed_epsilon"] is not None:
            by = {"delta": job.spec.fields["delta"], "by": THEOREM}
            claimed = {"epsilon": row["claimed_epsilon"], **by}
        return {"constants": dict.fromkeys(CONSTANTS, PUBLIC), "claimed": claimed}

    return stated


def _arm_name(row: dict[str, Any]) -> str:
    names = (row["method"], row["comparison"], row.get("schedule"))
    return ", ".join(
        [
            *filter(None, names),
            f"{row['steps']} steps",
            "without privacy" if row["epsilon"] is None else f"epsilon {row['epsilon']:g}",
        ]
    )


def regression_ledger(search: Search) -> dict[str, Any]:
    """Of softmax regression on bounded features."""
    fields = search.job.spec.fields
    found = arms_ledger(
        "Langevin SGD and DP-SGD on softmax regression over bounded features",
        f"records of norm at most {fields['feature_norm']:g}; DP-SGD: max_grad_norm "
        f"{fields['max_grad_norm']:g}",
        search,
    )
    return {**found, "public_constants": sorted(CONSTANTS)}


def _accuracy(weights: Tensor, split: Split, part: str) -> float:
    return accuracy(split.x[part] @ weights.T, split.labels[part])
