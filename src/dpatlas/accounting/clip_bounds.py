"""Clipping by other bounds than one for the whole gradient: a bound by layer, an adaptive bound.

Both keep what accounting assumes: in units of the noise, a record adds a vector of norm at most
1 / z to what a step releases, z the accounted noise multiplier; replaced, it moves it by twice
that. Under `LayerBounds` the parts of a gradient have norms C_l at most, and the whole one
C = sqrt(sum C_l^2). Under `AdaptiveClip` a step releases a second number.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpatlas.accounting.parameter_names import longest_prefix
from dpatlas.base.guard import hold, plain, real
from dpatlas.errors import InputError

# An adaptive bound stays within this factor of the first one: noise cannot drive it to 0 or
# infinity.
FARTHEST = 1e6


@dataclass(frozen=True)
class LayerBounds:
    """A clip bound C_l for the layers under each prefix, together; `total` is sqrt(sum C_l^2).

    The bounds are relative to `max_grad_norm` of the phase: C_l = max_grad_norm bound / total. With
    max_grad_norm=total they are what they say. A layer belongs to its longest prefix.
    """

    words: ClassVar[str] = "per-layer"

    by_prefix: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.by_prefix:
            raise InputError("LayerBounds", "no bound", "at least one prefix with its bound")
        for prefix, bound in self.by_prefix.items():
            real(gt=0).check(f"bound of {prefix!r}", bound)
        held = {prefix: plain(bound) for prefix, bound in self.by_prefix.items()}
        object.__setattr__(self, "by_prefix", held)

    def __hash__(self) -> int:
        return hash(tuple(self.by_prefix.items()))

    @property
    def total(self) -> float:
        """Upper bound on the norm of the whole clipped gradient."""
        return math.sqrt(sum(bound**2 for bound in self.by_prefix.values()))

    def scaled(self, max_grad_norm: float) -> dict[str, float]:
        """The bounds by prefix, of which max_grad_norm is the total."""
        return {
            prefix: max_grad_norm * bound / self.total for prefix, bound in self.by_prefix.items()
        }

    def parts(self, layers: Iterable[str]) -> list[tuple[str, list[int]]]:
        """The prefixes, each with the indices of its layers.

        Raises InputError for a layer without a prefix and for a prefix without a layer.
        """
        parts: dict[str, list[int]] = {prefix: [] for prefix in self.by_prefix}
        for index, layer in enumerate(layers):
            found = longest_prefix(layer, self.by_prefix)
            if found is None:
                allowed = f"a layer under {', '.join(map(repr, self.by_prefix))}"
                raise InputError(f"layer {layer or 'model'}", "no bound in LayerBounds", allowed)
            parts[found[0]].append(index)
        for prefix, indices in parts.items():
            if not indices:
                raise InputError("LayerBounds", f"prefix {prefix!r}", "prefixes of trained layers")
        return list(parts.items())


@dataclass(frozen=True)
class AdaptiveClip:
    """A clip bound that follows a quantile of the norms, which every step releases with noise.

    Andrew, Thakkar, McMahan and Ramaswamy (2021), Algorithm 1: besides the noisy sum of gradients
    clipped at C, a step releases

        count = sum_i (1[||g_i|| <= C] - 1/2) + count_noise N(0, 1)

    and goes on with C exp(-lr (count / expected batch + 1/2 - quantile)). max_grad_norm of the
    phase is the first C; C stays within a factor of `FARTHEST` of it.

    A record adds 1/2 in absolute value to the count, and replaced it moves it by 1: as its clipped
    gradient adds C, and replaced moves the sum by 2 C. Both releases together are therefore one
    Gaussian release under either relation, of `joint_noise`. This counts in exact arithmetic: a
    norm that equals the bound but for rounding may be rounded otherwise in another batch.

    quantile: share of records that are not clipped. count_noise: a twentieth of the expected batch
    costs little; where it is no larger than the noise multiplier, the count costs as much as the
    gradients. lr: of the bound's logarithm.
    """

    words: ClassVar[str] = "adaptive"

    quantile: float
    count_noise: float
    lr: float = 0.2

    def __post_init__(self) -> None:
        hold(self, "quantile", real(ge=0, le=1))
        hold(self, "count_noise", real(gt=0))
        hold(self, "lr", real(gt=0), "lr of the clip bound")

    def joint_noise(self, noise_multiplier: float) -> float:
        """Noise multiplier of both releases together: (z^-2 + (2 count_noise)^-2)^(-1/2)."""
        real(ge=0).check("noise_multiplier", noise_multiplier)
        if noise_multiplier == 0:
            return 0.0
        return 1 / math.hypot(1 / noise_multiplier, 1 / (2 * self.count_noise))

    def after(self, bound: float, noisy_count: float, expected_batch: float, first: float) -> float:
        """The bound of the next step; first: that of the first step."""
        share = noisy_count / expected_batch + 0.5
        power = math.log(bound / first) - self.lr * (share - self.quantile)
        farthest = math.log(FARTHEST)
        return first * math.exp(min(max(power, -farthest), farthest))


Clipping = str | LayerBounds | AdaptiveClip


@dataclass(frozen=True)
class StatedClip:
    """How a phase clipped, for its ledger: noise_multiplier is that of the gradients alone."""

    clipping: LayerBounds | AdaptiveClip
    max_grad_norm: float
    noise_multiplier: float

    def facts(self) -> dict[str, Any]:
        """As JSON values, of which `stated_clip` makes it again."""
        return {
            "clipping": clipping_facts(self.clipping),
            "max_grad_norm": float(self.max_grad_norm),
            "noise_multiplier": float(self.noise_multiplier),
        }

    def entry(self) -> dict[str, Any]:
        """The entry of a ledger."""
        if isinstance(self.clipping, LayerBounds):
            by_layer = self.clipping.scaled(self.max_grad_norm)
            return {"total": float(self.max_grad_norm), "by_layer": by_layer}
        clip = self.clipping
        return {
            "first": float(self.max_grad_norm),
            "adaptive": "the bound follows a quantile of the norms (Andrew et al. 2021)",
            "quantile": float(clip.quantile),
            "lr": float(clip.lr),
            "released_at_every_step": "the noisy sum of clipped gradients, and the noisy number of "
            "gradients within the bound less half the batch: one Gaussian release together",
            "gradient_noise_multiplier": float(self.noise_multiplier),
            "count_noise": float(clip.count_noise),
            "count_sensitivity": "1/2 added or removed, 1 replaced",
            "joint_noise_multiplier": clip.joint_noise(self.noise_multiplier),
        }


def clipping_facts(clipping: Clipping) -> Any:
    """The setting as JSON values."""
    if isinstance(clipping, str):
        return clipping
    if isinstance(clipping, LayerBounds):
        return {"by_layer": {name: float(bound) for name, bound in clipping.by_prefix.items()}}
    return {"adaptive": {name: float(value) for name, value in vars(clipping).items()}}


def stated_clip(facts: Mapping[str, Any] | None) -> StatedClip | None:
    """The inverse of `StatedClip.facts`."""
    if facts is None:
        return None
    ((kind, setting),) = facts["clipping"].items()
    clipping = AdaptiveClip(**setting) if kind == "adaptive" else LayerBounds(setting)
    return StatedClip(clipping, facts["max_grad_norm"], facts["noise_multiplier"])
