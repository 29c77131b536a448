"""What a job takes by its spec: units of work and memory.

A block's `cost.py` may have a `KindCost` for each of its kinds in `KINDS`; other kinds have
`KindCost()`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dpatlas.base.networks import NETWORKS
from dpatlas_workflow.config.sizes import array_mb, features_mb, inputs_of
from dpatlas_workflow.registry import block_of

# Options behind the multiplications of the ViT in `NETWORKS`.
VIT: Mapping[str, int] = {"patch": 4, "dim": 192, "depth": 12}
# Multiplications that take as long as what a private step does beside its products.
STEP = 80_000_000


@dataclass(frozen=True)
class KindCost:
    """The cost of a kind of job; its functions take a spec as an object of the kind's class.

    units: of work, such as steps times records times parameters. steps: whether they are private
    steps of a network, each of which counts by its multiplications. lower: keys of the block of the
    config that lower the memory, those that change no result first. gpu: whether the work runs on a
    GPU where there is one. base_mb: peak memory without data. copies: of the data, or of their
    features, in memory. numbers: further float32 numbers there. takes_features: whether a job reads
    features of a frozen backbone.
    """

    units: Callable[[Any], float] = lambda s: getattr(s, "runs", 1)
    lower: tuple[str, ...] = ()
    steps: bool = False
    gpu: bool = False
    base_mb: int = 1000
    copies: float = 4
    numbers: Callable[[Any], float] = lambda s: 0
    takes_features: Callable[[Any], bool] = lambda s: False

    def memory_mb(self, spec: Any) -> int:
        """Peak memory of a job in MB."""
        data = filter(None, (getattr(spec, name, None) for name in ("data", "public_data")))
        data_mb = sum(map(array_mb, data))
        if self.takes_features(spec):
            data_mb = max(data_mb, features_mb(spec.data))
        return round(self.base_mb + self.copies * data_mb + 4 * self.numbers(spec) / 2**20)


def cost_of(spec: Any) -> KindCost:
    """The cost of the jobs of a spec's kind."""
    return block_of(spec.key).cost(spec.kind) or KindCost()


def units(spec: Any, backbone: Any = None) -> float:
    """Units of work of a spec, and of that of its backbone, as objects of their kinds' classes."""
    cost, of = cost_of(spec), backbone or spec
    if not cost.steps:
        return float(cost.units(spec))
    of_a_record = pass_work(of.model, inputs_of(spec.data), getattr(of, "options", {}))
    views = getattr(getattr(spec, "augmentation", None), "views", 1)
    return cost.units(spec) * (spec.batch * views * of_a_record + STEP)


def pass_work(model: str, inputs: int, options: Mapping[str, Any]) -> float:
    """Multiplications of the forward pass of a record; an activation counts as 260.

    options: arguments of the network's builder.
    """
    network = NETWORKS[model]
    # Networks with published weights resize whatever they are given.
    share = 1.0 if network.weights else inputs / network.inputs
    if model == "vit-tiny":
        patch, width, depth = (options.get(name, usual) / usual for name, usual in VIT.items())
        share *= depth * (width / patch) ** 2
    return share * (network.multiplications + 260 * network.activations)


def mlp_work(*widths: int) -> float:
    """Multiplications of the forward pass of a multilayer perceptron with these layers."""
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))
