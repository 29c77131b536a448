"""The cost of max_information's jobs."""

from functools import partial
from typing import Any

from dpatlas_workflow.config.sizes import inputs_of
from dpatlas_workflow.cost.counting import KindCost, mlp_work


def _network(s: Any) -> float:
    """Multiplications of a forward pass; of the convolutional network on 3 x 32 x 32 pixels."""
    if s.model != "mlp":
        return 157_000_000
    widths = s.options.widths or [1024, 512]
    return mlp_work(inputs_of(s.data), *widths, len(s.data.classes or ()))


def _certificates(s: Any) -> float:
    """Pairs of a record and weights: a training's visit takes as long as three."""
    pairs = s.draws + s.test_repetitions * s.data.n_test
    pairs += 3 * s.training.epochs * s.data.n_train
    # Beside its products a pair takes as long as 20,000 multiplications.
    return s.runs * len(s.priors) * len(s.taus) * pairs * (_network(s) + 20_000)


trained = partial(KindCost, gpu=True, base_mb=1100)
small = partial(KindCost, base_mb=200)
KINDS = {
    "certificates": trained(_certificates, ("options.widths", "training.batch", "data.n_train")),
    "agreement": trained(lambda s: s.repetitions * s.draws * _network(s), ("agreement.draws",)),
    "coefficients": small(lower=("coefficients.betas",)),
    "kappa": small(lower=("kappa.axes",)),
    "simulation": small(
        lambda s: len(s.laws) * len(s.nus) * s.draws * s.m,
        ("simulation.draws",),
        numbers=lambda s: 52 * s.draws,
    ),
}
