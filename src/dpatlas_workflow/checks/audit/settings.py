"""audit: attacks on our own mechanisms and the private training that the config asks for.

No paper stands behind this block: it checks the code that the papers' results rest on.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from dpatlas.base.fields import Model, Once, setting
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas_workflow.checks.audit.mechanisms import MORE_RUNS
from dpatlas_workflow.checks.audit.records.mechanism import AuditLevels, Mechanism
from dpatlas_workflow.checks.audit.records.network import NetworkTraining
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.types import DigitsSplit, SmallNetwork

KEY = "audit"


class PrivateTraining(NetworkTraining):
    """DP-SGD on a small network with Poisson batches; neighbours add or remove a record."""

    data: DigitsSplit
    model: SmallNetwork

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


class TrainedNetwork(PrivateTraining):
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


class AuditEnabled(Model):
    """What comes first in the block."""

    enabled: bool = setting("Whether the audit is part of the run.")


class AuditSettings(AuditLevels, AuditEnabled):
    """Attacks on our own private mechanisms, and a network trained by them."""

    runs: int = setting(
        "Runs of every mechanism on each of two neighbouring data sets; Langevin SGD takes 2 to 6 "
        "times as many, the releases of feature_learning 10 times.",
        ge=2,
        le=1_000_000,
    )
    mechanisms: Once[Mechanism] = setting("The mechanisms to attack.", min_length=1)
    training: TrainedNetwork
    canaries: Canaries

    @model_validator(mode="after")
    def _verdicts_are_at_least_as_confident(self) -> "AuditSettings":
        if self.verdict_level < self.level:
            raise InputError("verdict_level", self.verdict_level, "at least audit.level")
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """Specs by group: an attack per mechanism, the audit by canaries, the private training."""
    block: AuditSettings = config.audit
    seeds, levels = config.plain("seed", "noise_source"), block.plain("level", "verdict_level")
    return {
        "mechanisms": [
            mechanism_spec(seeds, name, block.runs, block.delta, **levels)
            for name in block.mechanisms
        ],
        "canaries": [_network_spec(seeds, "canaries", block.canaries, **block.plain("level"))],
        "training": [_network_spec(seeds, "training", block.training)],
    }


def mechanism_spec(
    seeds: Mapping[str, Any],
    name: str,
    runs: int,
    delta: float,
    level: float,
    verdict_level: float,
) -> Spec:
    """The attack on one mechanism: `runs` times the factor of its steps on each neighbour.

    seeds: `seed`, the base of all seeds, and `noise_source`.
    """
    fields = {
        "key": KEY,
        "kind": "mechanism",
        **seeds,
        "mechanism": name,
        "runs": runs * MORE_RUNS.get(name, 1),
        "delta": delta,
        "level": level,
        "verdict_level": verdict_level,
    }
    return Spec.of(fields, name)


def _network_spec(
    seeds: Mapping[str, Any], purpose: str, block: PrivateTraining, **level: float
) -> Spec:
    """Networks trained by `dpatlas.train`; their data set has no records to add (`n_add` of 0)."""
    fields = {"key": KEY, "kind": "network", **seeds, **block.plain(), **level}
    fields["data"] = {**block.data.fields(), "n_add": 0}
    return Spec.of(fields, f"{purpose}-{block.model}")


SETTINGS = AuditSettings
