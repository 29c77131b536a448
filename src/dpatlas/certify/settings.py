"""How priors and posteriors are trained; none of it may be chosen after a look at a certificate."""

from dataclasses import dataclass, fields

from dpatlas.core.guard import integer, real


@dataclass(frozen=True)
class Settings:
    """Settings of the training of posteriors and of priors.

    Posterior: `epochs` passes in batches of `batch` by Adam at step size `lr`. Prior "held-out":
    `held_out` is the share of the records that it learns from, for `prior_epochs` passes at
    `prior_lr`. Prior "dp-sgd": `private_epochs` passes in disjoint batches of `private_batch`
    records (a quarter of the records if None) at `private_lr`, gradients clipped at `max_grad_norm`
    with noise of `noise_multiplier` times that on their sum.

    Raises InputError for values outside these ranges.
    """

    epochs: int = 60
    lr: float = 0.005
    batch: int = 100
    held_out: float = 0.5
    prior_epochs: int = 60
    prior_lr: float = 0.005
    private_epochs: int = 1
    private_batch: int | None = None
    private_lr: float = 1.0
    max_grad_norm: float = 1.0
    noise_multiplier: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "held_out":
                real(gt=0, lt=1).check(field.name, value)
            elif field.type is float:
                real(gt=0).check(field.name, value)
            elif value is not None:
                integer(ge=1, le=10**6).check(field.name, value)
