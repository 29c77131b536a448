"""The paper tier's config with every size made small: same sets, networks, strategies, products.

A rule is found by the end of a key's path, the longest first. Whole numbers need one, so that a new
size is not forgotten; other numbers are settings, which stay unless a rule thins their list.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

Rule = Callable[[Any], Any]


def keep(value: Any) -> Any:
    """Not a size."""
    return value


def ends(values: Any) -> Any:
    """First and last of a list."""
    return values[:: len(values) - 1] if isinstance(values, list) and len(values) > 1 else values


def first(values: list[Any]) -> list[Any]:
    """The first of a list."""
    return values[:1]


def scaled(divisor: int, most: float = math.inf, thin: bool = True) -> Rule:
    """Divided, but 1 at least and `most` at most; of a list the ends, or with `thin` False all."""

    def small(value: int) -> int:
        return value and int(min(max(1, value // divisor), most))

    def rule(value: Any) -> Any:
        if not isinstance(value, list):
            return small(value)
        found = sorted({small(each) for each in value})
        return ends(found) if thin else found

    return rule


def at_most(most: int) -> Rule:
    """No more than that; of a list the ends."""
    return scaled(1, most)


RULES: dict[str, Rule] = {
    "seed": keep,
    "classes": keep,
    "options": keep,
    "image_shape": keep,
    "links": keep,
    "looks": keep,
    "outputs": keep,
    "runs": at_most(2),
    "tuning_runs": at_most(1),
    "n_train": at_most(48),
    "n_test": at_most(20),
    "batch": at_most(4),
    "epochs": at_most(1),
    "steps": at_most(4),
    "neighbours": at_most(3),
    "draws": at_most(10),
    "paths": at_most(20),
    "trials": at_most(100),
    "seeds": at_most(10),
    "every": at_most(2),
    "lrs": ends,
    "lrs.head": first,
    "lrs.full": first,
    "lrs.lora": first,
    "lr": ends,
    "times": lambda times: times[:2],
    "transfer.n_test": at_most(10),
    "transfer.splits": at_most(2),
    # A prepared set by its name: the miniatures hold little more.
    "cifar10.n_train": at_most(20),
    "cifar10.n_validation": at_most(10),
    "kl_privacy.cifar10.n_train": at_most(8),
    "kl_privacy.cifar10.n_add": at_most(4),
    "stl10.n_train": at_most(8),
    "stl10.n_validation": at_most(4),
    "stl10.n_test": at_most(8),
    "stl10-32.n_train": at_most(12),
    "stl10-32.n_validation": at_most(6),
    "stl10-32.n_test": at_most(12),
    "mnist.n_train": at_most(20),
    "pneumonia-224.n_train": at_most(8),
    "pneumonia-224.n_validation": at_most(3),
    "pneumonia-224.n_test": at_most(6),
    "digits.n_train": at_most(60),
    "digits.n_validation": at_most(20),
    "horizons.early": at_most(2),
    "horizons.short": at_most(3),
    "horizons.long": at_most(4),
    # Depth and width that two sweeps share stay shared.
    "depth": at_most(4),
    "depths": at_most(4),
    "width": scaled(64, 16),
    "widths": scaled(64, 16),
    "linearized.n_train": at_most(8),
    "min_steps": at_most(10),
    "accuracy.grid.steps": scaled(30, 4),
    "sets.grid.steps": scaled(30, 4),
    "long_training.steps": scaled(10, 4),
    "lambdas": ends,
    "privacy_loss.n": at_most(400),
    "privacy_loss.batch": at_most(100),
    "privacy_loss.classes": at_most(3),
    "counterexample.n": at_most(20),
    "counterexample.steps": at_most(2),
    "counterexample.alphas": ends,
    "ratios": ends,
    "sigma2s": ends,
    "etas": ends,
    # A theorem that holds for few classes and inputs or many records.
    "utility.n": keep,
    "utility.batch": keep,
    "utility.inputs": keep,
    "utility.steps": at_most(20),
    "epsilon": keep,
    "sweeps.epsilon": ends,
    "feature_learning.n_test": at_most(50),
    "base.n": scaled(500),
    "sweeps.n": scaled(500),
    "table.n": scaled(500),
    "base.d": scaled(32),
    "sweeps.d": scaled(32),
    "base.p": scaled(64),
    "sweeps.p": scaled(64),
    "table.p": scaled(64),
    "max_physical_batch": at_most(2),
    "scenarios.steps": at_most(3),
    "scenarios.batch": at_most(2),
    "lora.steps": at_most(3),
    "lora.batch": at_most(2),
    "noise_multipliers": first,
    "epsilons": first,
    # Of 3 steps, one at least in either phase.
    "shares": lambda shares: [share for share in shares if 0.25 <= share <= 0.75][:1],
    "views": at_most(2),
    "padding": keep,
    "lora_rank": keep,
    "noise_multiplier": keep,
    "max_grad_norms": first,
    "head_scales": ends,
    "head_scale": keep,
    "feature_scale": keep,
    "lp_lr": keep,
    "feature_quality.head_scales": first,
    "feature_quality.lrs": first,
    "feature_quality.steps": scaled(45),
    "lp_steps": scaled(45),
    "at": scaled(45, thin=False),
    "public_known": at_most(20),
    "public_asked": at_most(10),
    # ResNet50 on images of 224 x 224 pixels.
    "umap.batch": at_most(2),
    "umap.lp_steps": lambda steps: at_most(1)(steps)[-1:],
    "fft_steps": at_most(1),
    "early": at_most(1),
    "noise_lp": keep,
    "noise_fft": keep,
    "lr_lp": keep,
    "points": at_most(8),
    "records": keep,
    "inputs": keep,
    "hidden": keep,
    "records_per_input": keep,
    "sensitivity.drift.d": keep,
    "head.draws": at_most(1),
    "all.draws": at_most(1),
    "sizes": first,
    "hs": at_most(2),
    "head_variances": ends,
    "after_probing.runs": at_most(10),
    "angles": ends,
    "dims": at_most(20),
    "certificates.test_repetitions": keep,
    "certificates.draws": at_most(4),
    "K1": at_most(2),
    "zetas": ends,
    "taus": first,
    "grid.m": at_most(5),
    "sets.grid.epochs": at_most(2),
    "normalise": keep,
    "priors_per_job": keep,
    "agreement.set": keep,
    "agreement.repetitions": at_most(1),
    "kappa.base": keep,
    "kappa.axes.n": ends,
    "kappa.axes.zeta_over_sigma": ends,
    "kappa.axes.E": ends,
    "kappa.axes.T": ends,
    "kappa.axes.delta": ends,
    "simulation.m": at_most(10),
    "simulation.draws": at_most(500),
    "ys": ends,
    "audit.runs": at_most(8),
    "canaries.canaries": at_most(20),
    "settings_tried": keep,
}


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same keys with small sizes; KeyError for a whole number that no rule knows.

    `data`, which says where files come from, stays.
    """
    return {
        key: value if key == "data" else _shrunk(value, (key,)) for key, value in config.items()
    }


def _shrunk(value: Any, path: tuple[str, ...]) -> Any:
    rule = _rule(path)
    if isinstance(value, Mapping) and rule is not keep:
        if path[-1] == "data":
            path = (*path[:-1], value["name"])
        return {key: _shrunk(inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return [_shrunk(each, path) for each in value]
    if rule is None and _has_number(value, int):
        raise KeyError(f"{'.'.join(path)}: a size or a setting? Say so in shrink.RULES")
    return value if rule is None or not _has_number(value) else rule(value)


def _rule(path: tuple[str, ...]) -> Rule | None:
    ends_of_path = (".".join(path[start:]) for start in range(len(path)))
    return next((RULES[each] for each in ends_of_path if each in RULES), None)


def _has_number(value: Any, kinds: Any = int | float) -> bool:
    """Whether it is one, or a list of them, however deep."""
    if isinstance(value, list):
        return any(_has_number(each, kinds) for each in value)
    return isinstance(value, kinds) and not isinstance(value, bool)
