"""A tier's config with every size made small: same sets, networks, strategies, products.

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


# Names of keys by their rule.
BY_RULE: dict[Rule, str] = {
    # Settings; `utility` has a theorem that holds for few classes and inputs or many records.
    keep: (
        "seed classes options image_shape links looks outputs utility.n utility.batch "
        "utility.inputs epsilon padding lora_rank noise_multiplier head_scale feature_scale "
        "lp_lr noise_lp noise_fft lr_lp records inputs hidden records_per_input "
        "sensitivity.drift.d certificates.test_repetitions normalise priors_per_job "
        "agreement.set kappa.base settings_tried watched n_power p_power epsilon_power "
        "delta_power fixed weight_decays"
    ),
    at_most(2): (
        "runs runs_per_job every transfer.splits horizons.early counterexample.steps "
        "max_physical_batch scenarios.batch lora.batch views umap.batch hs K1 sets.grid.epochs "
        "networks"
    ),
    # Blocks of more than one run are joined in kl_privacy and feature_learning.
    at_most(1): (
        "tuning_runs epochs fft_steps early head.draws all.draws agreement.repetitions "
        "scenarios.runs lora.runs clip_sweep.runs feature_quality.runs certificates.runs "
        "finetune.runs"
    ),
    at_most(48): "n_train",
    at_most(20): (
        "n_test paths cifar10.n_train mnist.n_train digits.n_validation counterexample.n "
        "utility.steps public_known dims canaries.canaries"
    ),
    at_most(4): (
        "batch batches steps kl_privacy.cifar10.n_add stl10.n_validation horizons.long depth "
        "depths certificates.draws width_depth"
    ),
    at_most(3): (
        "neighbours pneumonia-224.n_validation umap.mnist.n_validation horizons.short "
        "privacy_loss.classes scenarios.steps lora.steps"
    ),
    at_most(10): (
        "draws seeds transfer.n_test cifar10.n_validation mnist.n_validation min_steps "
        "public_asked after_probing.runs simulation.m"
    ),
    at_most(100): "trials privacy_loss.batch",
    ends: (
        "lrs lr lambdas counterexample.alphas ratios sigma2s etas sweeps.epsilon head_scales "
        "head_variances angles zetas kappa.axes.n kappa.axes.zeta_over_sigma kappa.axes.E "
        "kappa.axes.T kappa.axes.delta kappa.axes.n_at_T ys"
    ),
    first: (
        "lrs.head lrs.full lrs.lora noise_multipliers epsilons max_grad_norms "
        "feature_quality.head_scales feature_quality.lrs sizes taus"
    ),
    lambda values: values[:2]: "times grid.taus",
    # A prepared set by its name: the miniatures hold little more.
    at_most(8): (
        "kl_privacy.cifar10.n_train stl10.n_train stl10.n_test pneumonia-224.n_train "
        "umap.mnist.n_train linearized.n_train points audit.runs"
    ),
    at_most(12): "stl10-32.n_train stl10-32.n_test",
    at_most(6): "stl10-32.n_validation pneumonia-224.n_test umap.mnist.n_test umap.points",
    at_most(60): "digits.n_train",
    # Depth and width that two sweeps share stay shared.
    scaled(64, 16): "width widths",
    scaled(30, 4): "accuracy.grid.steps sets.grid.steps",
    scaled(10, 4): "long_training.steps",
    at_most(400): "privacy_loss.n",
    at_most(50): "feature_learning.n_test",
    scaled(500): "base.n sweeps.n table.n",
    scaled(32): "base.d sweeps.d",
    scaled(16): "ladder.d",
    scaled(64): "base.p sweeps.p table.p",
    # Of 3 steps, one at least in either phase.
    lambda shares: [share for share in shares if 0.25 <= share <= 0.75][:1]: "shares",
    scaled(45): "feature_quality.steps lp_steps",
    scaled(45, thin=False): "at",
    # ResNet50 on images of 224 x 224 pixels.
    lambda steps: at_most(1)(steps)[-1:]: "umap.lp_steps",
    at_most(5): "grid.m",
    at_most(500): "simulation.draws",
}
RULES = {name: rule for rule, names in BY_RULE.items() for name in names.split()}


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
        raise KeyError(f"{'.'.join(path)}: a size or a setting? Say so in shrink.BY_RULE")
    return value if rule is None or not _has_number(value) else rule(value)


def _rule(path: tuple[str, ...]) -> Rule | None:
    ends_of_path = (".".join(path[start:]) for start in range(len(path)))
    return next((RULES[each] for each in ends_of_path if each in RULES), None)


def _has_number(value: Any, kinds: Any = int | float) -> bool:
    """Whether it is one, or a list of them, however deep."""
    if isinstance(value, list):
        return any(_has_number(each, kinds) for each in value)
    return isinstance(value, kinds) and not isinstance(value, bool)
