"""The cost of max_information's jobs."""

from typing import Any

from dpatlas_workflow.config.sizes import inputs_of
from dpatlas_workflow.cost.counting import KindCost, mlp_work


def _network(s: Any) -> float:
    """Multiplications of a forward pass; of the convolutional network on 3 x 32 x 32 pixels."""
    if s.model != "mlp":
        return 157_000_000
    return mlp_work(
        inputs_of(s.data), *(s.options.widths or [1024, 512]), len(s.data.classes or ())
    )


def _certificates(s: Any, network: float) -> float:
    """Pairs of a record and weights: a training's visit takes as long as three."""
    pairs = s.draws + s.test_repetitions * s.data.n_test
    pairs += 3 * s.training.epochs * s.data.n_train
    # Beside its products a pair takes as long as 20,000 multiplications.
    return s.runs * len(s.priors) * len(s.taus) * pairs * (_network(s) + 20_000)


KINDS = {
    "certificates": KindCost(
        _certificates,
        lower=("options.widths", "training.batch", "data.n_train"),
        gpu=True,
        base_mb=1100,
    ),
    "agreement": KindCost(
        lambda s, network: s.repetitions * s.draws * _network(s),
        lower=("agreement.draws",),
        gpu=True,
        base_mb=1100,
    ),
    "coefficients": KindCost(lower=("coefficients.betas",), base_mb=200),
    "kappa": KindCost(lower=("kappa.axes",), base_mb=200),
    "simulation": KindCost(
        lambda s, network: len(s.laws) * len(s.nus) * s.draws * s.m,
        lower=("simulation.draws",),
        base_mb=200,
        numbers=lambda s: 52 * s.draws,
    ),
}
