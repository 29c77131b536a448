"""How priors and posteriors are trained; none of it may be chosen after a look at a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from dpatlas.base.guard import hold, integer, real
from dpatlas.errors import InputError


@dataclass(frozen=True)
class CertifySettings:
    """Settings of the training of posteriors and of priors.

    Posterior: `epochs` passes in batches of `batch` by Adam at step size `lr`. Prior "held-out":
    `held_out` is the share of the records that it learns from, for `prior_epochs` passes at
    `prior_lr`. Prior "dp-sgd": `private_epochs` passes in disjoint batches of `private_batch`
    records (a quarter of the records if None) at `private_lr`, gradients clipped at `max_grad_norm`
    with noise of `noise_multiplier` times that on their sum.

    Raises InputError for values outside these ranges.
    """

    epochs: int = 100
    lr: float = 0.005
    batch: int = 100
    held_out: float = 0.5
    prior_epochs: int = 40
    prior_lr: float = 0.005
    private_epochs: int = 1
    private_batch: int | None = None
    private_lr: float = 2.0
    max_grad_norm: float = 1.0
    noise_multiplier: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name == "held_out":
                hold(self, field.name, real(gt=0, lt=1))
            elif field.name == "private_epochs":
                # As many as kappa is defined for.
                hold(self, field.name, integer(ge=1, le=1000))
            elif field.type is float:
                hold(self, field.name, real(gt=0, le=1e30))
            elif getattr(self, field.name) is not None:
                hold(self, field.name, integer(ge=1, le=10**6))

    @classmethod
    def of(cls, texts: Sequence[str]) -> "CertifySettings":
        """From texts NAME=VALUE; InputError for an unknown name and for a value of another kind."""
        kinds = {field.name: float if field.type is float else int for field in fields(cls)}
        given: dict[str, int | float] = {}
        for text in texts:
            name, _, value = text.partition("=")
            if name not in kinds:
                raise InputError("--set", repr(text), f"NAME=VALUE of {', '.join(kinds)}")
            if name in given:
                raise InputError(f"--set {name}", f"{given[name]} and {value}", "one value")
            try:
                given[name] = kinds[name](value)
            except ValueError:
                kind = "a number" if kinds[name] is float else "a whole number"
                raise InputError(f"--set {name}", repr(value), kind) from None
        return cls(**given)  # type: ignore[arg-type]
