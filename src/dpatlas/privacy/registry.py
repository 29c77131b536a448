"""The rule of every type of layer of this package, and how a layer's rule is found."""

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from dpatlas.models.vit import ClassToken, Offset
from dpatlas.privacy.attention import Attention
from dpatlas.privacy.convolution import Conv1d, Conv2d, Convolution
from dpatlas.privacy.embedding import Embedding
from dpatlas.privacy.layers import (
    ClassTokenRule,
    FrozenBatchNorm,
    GroupNorm,
    LayerNorm,
    Linear,
    OffsetRule,
    RMSNorm,
)
from dpatlas.privacy.rules import Rule

RULES: dict[type[nn.Module], type[Rule]] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Convolution,
    nn.ConvTranspose1d: Convolution,
    nn.ConvTranspose2d: Convolution,
    nn.ConvTranspose3d: Convolution,
    nn.Embedding: Embedding,
    nn.MultiheadAttention: Attention,
    nn.GroupNorm: GroupNorm,
    nn.LayerNorm: LayerNorm,
    nn.RMSNorm: RMSNorm,
    nn.BatchNorm1d: FrozenBatchNorm,
    nn.BatchNorm2d: FrozenBatchNorm,
    nn.BatchNorm3d: FrozenBatchNorm,
    Offset: OffsetRule,
    ClassToken: ClassTokenRule,
}


def rule_of(layer: nn.Module) -> type[Rule] | None:
    """The rule of the layer's type, or of the one from which it inherits its forward; else None.

    A rule of one's own (`Rule.register`) goes before one of this package.
    """
    if is_parametrized(layer):
        return None
    for kind in type(layer).__mro__:
        rule = Rule.of_types.get(kind) or RULES.get(kind)
        if rule is not None and type(layer).forward is getattr(kind, "forward", None):
            return rule
    return None


def is_built_in(rule: type[Rule]) -> bool:
    """Whether the rule is one of this package."""
    return rule.__module__.startswith("dpatlas.privacy.")
