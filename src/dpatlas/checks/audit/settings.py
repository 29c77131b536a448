"""audit: attacks on our own mechanisms and the private training that the config asks for.

No paper stands behind this block: it checks the code that the papers' results rest on.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.checks.audit.records.mechanism import Levels, Mechanism
from dpatlas.config.root import General
from dpatlas.config.types import DigitsSplit, SmallNetwork
from dpatlas.core.fields import (
    Batch,
    Delta,
    Epsilon,
    MaxGradNorm,
    Model,
    Momentum,
    Once,
    Optimizer,
    Rate,
    SettingsTried,
    Updates,
    setting,
)
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "audit"
# Fields of a `training` spec that no config sets; the command `train` may change them.
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
# Fields of a training that a selection lacks: it releases one network, and its ledger says how the
# settings were chosen.
UNSELECTED = ("runs", "canaries", "ema_decay", "settings_tried")


class PrivateTraining(Model):
    """DP-SGD on a small network with Poisson batches; neighbours add or remove a record."""

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
    settings_tried: SettingsTried

    @property
    def records(self) -> int:
        """Number of records that batches are drawn from."""
        return self.data.n_train

    @model_validator(mode="after")
    def _batch_and_optimizer_are_possible(self) -> "PrivateTraining":
        if self.batch > self.records:
            raise InputError("batch", self.batch, f"at most {self.records}, the number of records")
        if self.optimizer == "adam" and self.momentum:
            raise InputError("momentum", self.momentum, "0 with adam")
        return self


class Training(PrivateTraining):
    """Private training of a small network: DP-SGD, Poisson batches, add-or-remove neighbours."""

    runs: int = setting(
        "Number of networks trained; a standard error needs at least 2.", ge=1, le=1000
    )


class Canaries(PrivateTraining):
    """Audit of one private training run by canaries."""

    canaries: int = setting(
        "Number of canaries: blank images with a private input coordinate each, in or out of the "
        "training set by a fair coin.",
        ge=2,
        le=100_000,
    )

    @property
    def records(self) -> int:
        """Number of records that batches are drawn from: each canary has a slot in them."""
        return self.data.n_train + self.canaries

    @model_validator(mode="after")
    def _canaries_prove_something(self) -> "Canaries":
        if 2 * self.canaries * self.delta > 1:
            allowed = f"at most 1 / (2 canaries) = {1 / (2 * self.canaries):.2g}"
            raise InputError("delta", self.delta, allowed)
        return self


class Enabled(Model):
    """What comes first in the block."""

    enabled: bool = setting("Whether the audit is part of the run.")


class Settings(Levels, Enabled):
    """Attacks on our own private mechanisms, and a network trained by them."""

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
    def _verdicts_are_at_least_as_confident(self) -> "Settings":
        if self.verdict_level < self.level:
            raise InputError("verdict_level", self.verdict_level, "at least audit.level")
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """Specs by group: an attack per mechanism, the audit by canaries, the private training."""
    block: Settings = config.audit
    seeds, levels = config.plain("seed", "noise_source"), block.plain("level", "verdict_level")
    one_run = {**_fields(block.canaries), **block.plain("level")}
    return {
        "mechanisms": [
            mechanism_spec(seeds, name, block.runs, block.delta, **levels)
            for name in block.mechanisms
        ],
        "canaries": [training_spec(seeds, one_run)],
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
    """The attack on one mechanism: `runs` times the factor of its entry on each neighbour.

    seeds: `seed`, the base of all seeds, and `noise_source`.
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
    """A private training; with canaries, its audit. `settings` override `DEFAULTS`.

    seeds: as in `mechanism_spec`.
    """
    fields = {"key": KEY, "kind": "training", **seeds, **DEFAULTS, **settings}
    purpose = "canaries" if fields["canaries"] else "training"
    return Spec.of(fields, f"{purpose}-{fields['model']}")


def selection_spec(
    seeds: Mapping[str, Any], settings: Mapping[str, Any], selection: Mapping[str, Any]
) -> Spec:
    """A private selection among trainings with `settings`.

    selection: `law` and `expected_trials` of the number of trials; `ranges` {name: [low, high]}
    of the settings that each trial draws, which replace those of `settings`; `score_noise`, the
    standard deviation of the noise on the count of right answers (None: public records).
    """
    fields = dict(training_spec(seeds, settings).fields)
    for name in (*UNSELECTED, *selection["ranges"]):
        del fields[name]
    return Spec.of({**fields, **selection, "kind": "selection"}, f"selection-{fields['model']}")


def _fields(block: PrivateTraining) -> dict[str, Any]:
    """Fields of the block for a spec; its data set has no records to add (`n_add` of 0)."""
    return {**block.plain(), "data": {**block.data.fields(), "n_add": 0}}
