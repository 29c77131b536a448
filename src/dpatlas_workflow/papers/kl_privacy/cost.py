"""The cost of kl_privacy's jobs."""

from functools import partial
from typing import Any

from dpatlas.formulas.kl_privacy.theorems import gradient_norm_constant
from dpatlas_workflow.config.sizes import inputs_of, records_of_steps
from dpatlas_workflow.cost.counting import KindCost, mlp_work


def _network(s: Any, depth: int) -> float:
    return mlp_work(inputs_of(s.data), *[s.width] * (depth - 1), s.outputs)


def _numbers_of_training(s: Any) -> float:
    """Activations, weights, cumulative KL of a network and its copy, and what is kept of runs."""
    records, inputs = records_of_steps(s.data), inputs_of(s.data)
    networks = s.width * (records * (s.depth + 3) + 6 * (inputs + s.width * s.depth))
    return networks + 4 * records * (s.steps + s.runs * len(s.record_steps))


def _numbers_of_linearized(s: Any) -> float:
    """NTK matrices in float64, networks' activations, and the KL at every step of fixed noise."""
    bound = gradient_norm_constant(s.init, inputs_of(s.data), s.width, max(s.depths), 1)
    steps = max(s.min_steps, 0.1 * s.time * bound)
    return 8 * s.n_train * (8 * s.n_train + max(s.width, *s.widths) + steps)


def _training(s: Any) -> float:
    """Steps times records times multiplications; an activation takes as long as 400 of them."""
    of_a_record = _network(s, s.depth) + 400 * s.width * s.depth
    return s.runs * s.networks * s.steps * records_of_steps(s.data) * of_a_record


kl = partial(KindCost, base_mb=650)
KINDS = {
    "training": kl(_training, ("width", "data.n_train"), gpu=True, numbers=_numbers_of_training),
    # Steps, whose number grows with n, of n x n products and what is beside them.
    "linearized": kl(
        lambda s: s.runs * len(s.depths) * s.n_train * (s.n_train**2 + 125_000),
        ("linearized.width", "linearized.n_train"),
        numbers=_numbers_of_linearized,
    ),
    "constants": kl(
        lambda s: s.draws * len(s.inits) * sum(_network(s, each) + 50_000 for each in s.depths),
        ("constants.width",),
    ),
}
