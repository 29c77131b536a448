"""audit: which attacks on our own mechanisms the config asks for, and what is trained by them.

No paper: it checks the code that the papers stand on.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.config.model import Model, Once, setting
from dpatlas.config.root import General
from dpatlas.config.types import (
    Batch,
    Delta,
    DigitsSplit,
    Epsilon,
    MaxGradNorm,
    Momentum,
    Optimizer,
    Rate,
    SettingsTried,
    Share,
    SmallNetwork,
    Updates,
)
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "audit"
if TYPE_CHECKING:
    Mechanism = str
else:
    Mechanism = Literal[tuple(MECHANISMS)]
# Of a `training` spec, what a command line may change and a config does not say.
DEFAULTS: Mapping[str, Any] = {
    "relation": "add_remove",
    "sampler": "poisson",
    "noise_multiplier": None,
    "weight_decay": 0.0,
    "clipping": "flat",
    "max_physical_batch": None,
    "ema_decay": None,
    "runs": 1,
    "canaries": 0,
}
# Of these a selection has none: one network comes out of it, and who chose is in its ledger.
UNSELECTED = ("runs", "canaries", "ema_decay", "settings_tried")


class Training(Model):
    """Private training of a small network: DP-SGD, Poisson batches, add-or-remove neighbours."""

    data: DigitsSplit
    model: SmallNetwork
    epsilon: Epsilon
    delta: Delta
    batch: Batch
    steps: Updates
    max_grad_norm: MaxGradNorm
    optimizer: Optimizer
    lr: Rate
    momentum: Momentum
    runs: int = setting("Networks trained; the standard error needs at least 2.", ge=1, le=1000)
    settings_tried: SettingsTried

    @model_validator(mode="after")
    def _goes_together(self) -> "Training":
        _check_training(self, self.data.n_train)
        return self


class Canaries(Model):
    """Audit of one private training run by canaries."""

    data: DigitsSplit
    canaries: int = setting(
        "Mislabelled validation records, each in or out of the training set by a fair coin.",
        ge=2,
        le=1797,
    )
    model: SmallNetwork
    epsilon: Epsilon
    delta: Delta
    batch: Batch
    steps: Updates
    max_grad_norm: MaxGradNorm
    optimizer: Optimizer
    lr: Rate
    momentum: Momentum
    settings_tried: SettingsTried

    @model_validator(mode="after")
    def _goes_together(self) -> "Canaries":
        _check_training(self, self.data.n_train + self.canaries)
        available = self.data.n_validation
        if self.canaries > available:
            allowed = (
                f"at most n_validation = {available}: canaries are mislabelled validation records"
            )
            raise InputError("canaries", self.canaries, allowed)
        if 2 * self.canaries * self.delta > 1:
            allowed = f"at most 1 / (2 canaries) = {1 / (2 * self.canaries):.2g}"
            raise InputError("delta", self.delta, allowed)
        return self


class Settings(Model):
    """Attacks on our own private mechanisms, and a network trained by them."""

    enabled: bool = setting("Whether the audit is part of the run.")
    delta: Share = setting("The delta at which lower bounds on epsilon are given.")
    level: Share = setting("Confidence of each lower bound.")
    verdict_level: Share = setting("Confidence with which a guarantee counts as contradicted.")
    runs: int = setting(
        "Runs of every mechanism on each of two neighbouring data sets; Langevin SGD takes 2 to 6 "
        "times as many, the releases of feature_learning 10 times.",
        ge=2,
        le=1_000_000,
    )
    mechanisms: Once[Mechanism] = setting("The mechanisms to attack.", min_length=1)
    training: Training
    canaries: Canaries

    @model_validator(mode="after")
    def _verdicts_are_surer(self) -> "Settings":
        if self.verdict_level < self.level:
            raise InputError("verdict_level", self.verdict_level, "at least audit.level")
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """Specs by group: one attack per mechanism, the one-run audit, the private training."""
    block: Settings = config.audit
    seeds, levels = config.plain("seed", "noise_source"), block.plain("level", "verdict_level")
    return {
        "mechanisms": [
            mechanism_spec(seeds, name, block.runs, block.delta, **levels)
            for name in block.mechanisms
        ],
        "canaries": [training_spec(seeds, {**_fields(block.canaries), **levels})],
        "training": [training_spec(seeds, _fields(block.training))],
    }


def mechanism_spec(
    seeds: Mapping[str, Any],
    name: str,
    runs: int,
    delta: float,
    level: float,
    verdict_level: float,
) -> Spec:
    """The attack on one mechanism: `runs` runs on each neighbour, times what its entry says.

    seeds: `seed`, the base of the seeds, and `noise_source`.
    """
    fields = {
        "key": KEY,
        "kind": "mechanism",
        **seeds,
        "mechanism": name,
        "runs": runs * MECHANISMS[name].runs,
        "delta": delta,
        "level": level,
        "verdict_level": verdict_level,
    }
    return Spec.of(fields, name)


def training_spec(seeds: Mapping[str, Any], settings: Mapping[str, Any]) -> Spec:
    """Private training with these settings and any of `DEFAULTS` changed; its audit, with canaries.

    seeds: as of `mechanism_spec`.
    """
    fields = {"key": KEY, "kind": "training", **seeds, **DEFAULTS, **settings}
    what = "canaries" if fields["canaries"] else "training"
    return Spec.of(fields, f"{what}-{fields['model']}")


def selection_spec(
    seeds: Mapping[str, Any], settings: Mapping[str, Any], selection: Mapping[str, Any]
) -> Spec:
    """A private selection among trainings with `settings`, those drawn from `ranges` left out.

    selection: `law` and `expected_trials`, `ranges` {name: [low, high]} of what each trial draws,
    and `score_noise`, the deviation on the count of right answers (None: public records).
    """
    fields = dict(training_spec(seeds, settings).fields)
    for name in (*UNSELECTED, *selection["ranges"]):
        del fields[name]
    return Spec.of({**fields, **selection, "kind": "selection"}, f"selection-{fields['model']}")


def settings(config: General) -> dict[str, Any]:
    """Nothing: the table is made of the records alone."""
    return {}


def _fields(block: Training | Canaries) -> dict[str, Any]:
    """A config block whose data set has no add-one records: it is split three ways."""
    return {**block.plain(), "data": {**block.data.fields(), "n_add": 0}}


def _check_training(block: Training | Canaries, n: int) -> None:
    if block.batch > n:
        raise InputError("batch", block.batch, f"at most {n}, the records")
    if block.optimizer == "adam" and block.momentum:
        raise InputError("momentum", block.momentum, "0 with adam")
