"""The cost of lp_fft's jobs: private steps of a network, and simulated paths."""

from functools import partial
from typing import Any

from dpatlas_workflow.config.sizes import draws_records
from dpatlas_workflow.cost.counting import KindCost
from dpatlas_workflow.papers.lp_fft.records.private import HEAD
from dpatlas_workflow.papers.lp_fft.strategies import STRATEGIES


def _steps(s: Any, name: str) -> float:
    """Of a strategy at every share, but those on the head alone, which cost little."""
    first, last = STRATEGIES[name][0], STRATEGIES[name][-1]
    if last == HEAD:
        return 0
    if len(STRATEGIES[name]) == 1:
        return s.steps
    if first == last:
        return s.steps * sum(0 < share < 1 for share in s.control_shares)
    return s.steps * sum(1 - share for share in s.shares if 0 < share < 1)


def _tuning(s: Any) -> float:
    rates = {name: getattr(s.lrs, STRATEGIES[name][-1]) for name in s.strategies}
    return s.tuning_runs * sum(len(rates[name]) * _steps(s, name) for name in rates)


def _paths(s: Any) -> float:
    """Steps of simulated paths, times neurons."""
    relu, phases = s.relu, (s.relu.phases.head, s.relu.phases.all)
    paths = sum(len(each.sigmas) * each.draws * each.paths for each in phases)
    return paths * relu.times[-1] / relu.step * relu.records * relu.hidden


def takes_features(s: Any) -> bool:
    """Whether some strategy trains the head alone, on features computed once for all runs."""
    on_features = any(set(STRATEGIES[name]) == {HEAD} for name in s.strategies)
    return s.augmentation is None and on_features and not draws_records(s.data)


BATCHES = ("max_physical_batch", "batch")
trained = partial(KindCost, steps=True, gpu=True, base_mb=1200, copies=6)
compared = partial(trained, takes_features=takes_features)
theory = partial(KindCost, lower=("paths", "trials", "seeds"), base_mb=700)
KINDS = {
    "strategies": compared(
        lambda s: s.runs * sum(_steps(s, name) for name in s.strategies), (*BATCHES, "data.n_train")
    ),
    "strategies_tuning": compared(_tuning, (*BATCHES, "tuning_runs")),
    "feature_quality": trained(
        lambda s: s.runs * len(s.head_scales) * len(s.lrs) * s.steps, (*BATCHES, "public_known")
    ),
    # In its memory is a compiler.
    "umap": trained(
        lambda s: s.runs * sum(s.fft_steps + lp_steps for lp_steps in s.lp_steps),
        (*BATCHES, "points"),
        base_mb=1700,
    ),
    "dynamics": theory(_paths),
    "distortion": theory(lambda s: s.after_probing.runs * s.clusters.trials),
    "sensitivity": theory(lambda s: s.drift.seeds * s.drift.steps * s.drift.d**2),
    "imbalance": theory(
        lambda s: sum(of.paths * of.steps * of.inputs * of.hidden for of in (s.gap, s.drift))
    ),
}
