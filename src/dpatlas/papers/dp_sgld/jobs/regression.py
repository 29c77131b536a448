"""dp_sgld: softmax regression on bounded features, by Langevin steps or by DP-SGD."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

from dpatlas.core.progress import say
from dpatlas.jobs.job import Job
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Search, Setting, Trial, accuracy
from dpatlas.papers.dp_sgld.jobs.arms import LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression_data import Split
from dpatlas.papers.dp_sgld.jobs.tuned_arms import arms_ledger, sgd_facts
from dpatlas.papers.dp_sgld.records.regression import RegressionSpec
from dpatlas.papers.dp_sgld.records.trained import ArmRow
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.ledger import PUBLIC, Ran

CONSTANTS = ("feature_norm", "lambda", "max_grad_norm", "n", "radius", "smoothness")
THEOREM = "Ryffel et al. 2022, Thm 3.2"
A = TypeVar("A")
R = TypeVar("R", bound=ArmRow)


def problem_of(job: Job, split: Split) -> Problem:
    """What is public of the job's data and settings; its warnings are printed."""
    fields: RegressionSpec = job.fields
    problem = Problem(
        n=len(split.labels["train"]),
        classes=split.classes,
        feature_norm=fields.feature_norm,
        delta=fields.delta,
        step_size=fields.step_size,
        radius=fields.radius,
        accountant=fields.accountant,
    )
    for warning in problem.warnings():
        say(f"{job.spec.id}: {warning}")
    return problem


def langevin_setting(plan: LangevinPlan, epsilon: float, split: Split) -> Setting:
    """The plan with the noise for `epsilon`."""
    sigma2 = plan.sigma2(epsilon)
    settings = plan.with_noise(sigma2)

    def score(trial: Trial) -> tuple[float, Ran]:
        x, labels = split.x["train"], split.labels["train"]
        run = LangevinRun(
            settings,
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
        "radius": settings.radius,
        "lr": settings.rates[0],
        "batch": settings.sampler.batch,
        "epochs": plan.passes,
        "steps": settings.steps,
        "sigma": settings.sigma,
        "sampler": settings.sampler.name,
    }
    return Setting(facts, lambda: plan.stated(sigma2).as_row(), score)


def sgd_setting(plan: DpSgdPlan, lr: float, split: Split) -> Setting:
    """DP-SGD, or SGD if the plan has no noise, from zero weights."""

    def score(trial: Trial) -> tuple[float, Ran]:
        x, labels = split.x["train"], split.labels["train"]
        layer = nn.Linear(x.shape[1], split.classes, bias=False)
        nn.init.zeros_(layer.weight)
        training = trial.train(layer, [plan.phase(lr)], x, labels)
        return _accuracy(layer.weight.detach(), split, trial.part), training.ran

    return Setting(sgd_facts(plan, lr), lambda: plan.stated.as_row(), score)


def regression_search(
    job: Job,
    arms: Sequence[A],
    settings_of: Callable[[A], Sequence[Setting]],
    row_of: Callable[[dict[str, Any]], R],
    named: Callable[[R], str],
) -> Search[A, R]:
    """The search over arms of softmax regression; their ledgers name the public constants."""
    delta = job.fields.delta

    def in_ledger(row: R) -> dict[str, Any]:
        claimed = None
        if row.claimed_epsilon is not None:
            claimed = {"epsilon": row.claimed_epsilon, "delta": delta, "by": THEOREM}
        return {"constants": dict.fromkeys(CONSTANTS, PUBLIC), "claimed": claimed}

    return Search(
        job,
        arms,
        lambda arm: vars(arm).copy(),
        settings_of,
        row_of=row_of,
        named=named,
        in_ledger=in_ledger,
    )


def arm_name(row: ArmRow, *names: str | None) -> str:
    """A row in words: its method, those of `names` that are not None, its steps and privacy."""
    privacy = "without privacy" if row.epsilon is None else f"epsilon {row.epsilon:g}"
    return ", ".join([row.method, *filter(None, names), f"{row.steps} steps", privacy])


def regression_ledger(search: Search[Any, R]) -> dict[str, Any]:
    """The job's ledger, with one for every arm."""
    fields: RegressionSpec = search.job.fields
    shared = arms_ledger(
        "Langevin SGD and DP-SGD on softmax regression over bounded features",
        f"records of norm at most {fields.feature_norm:g}; DP-SGD: max_grad_norm "
        f"{fields.max_grad_norm:g}",
        search,
    )
    return {**shared, "public_constants": sorted(CONSTANTS)}


def _accuracy(weights: Tensor, split: Split, part: str) -> float:
    return accuracy(split.x[part] @ weights.T, split.labels[part])
