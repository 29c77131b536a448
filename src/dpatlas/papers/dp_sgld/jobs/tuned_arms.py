"""dp_sgld: rows and ledgers of the jobs that tune several arms."""

from typing import Any

from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Search
from dpatlas.privacy.ledger import HELD_OUT, holds_for


def sgd_facts(plan: DpSgdPlan, lr: float) -> dict[str, Any]:
    """The settings of DP-SGD, or SGD, that a row holds."""
    return {"lr": lr, "epochs": plan.steps / plan.sampler.steps_per_epoch, **plan.facts()}


def arms_ledger(mechanism: str, clip: str, search: Search[Any, Any]) -> dict[str, Any]:
    """The ledger of a job of many arms; each arm's own stands under `arms`."""
    in_arms = "as each arm says"
    return {
        "mechanism": mechanism,
        "neighbour_relation": in_arms,
        "sampler": sorted({row.sampler for row in search.rows}),
        "accountant": in_arms,
        "epsilon": None,
        "delta": search.job.fields.delta,
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
