"""A small vision transformer whose every parameter sits in a leaf module of one operation.

The transformers of torch and torchvision hold parameters outside of such layers, and so have no
rule for per-record gradients.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.network import Network


class ClassToken(nn.Module):
    """Prepends the learned token `value` (dim,) to every record's tokens."""

    def __init__(self, dim: int):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(records, tokens, dim) to (records, tokens + 1, dim)."""
        return torch.cat([self.value.expand(len(x), 1, -1), x], dim=1)


class Offset(nn.Module):
    """Adds the learned `value` (tokens, dim) to every record's tokens."""

    def __init__(self, tokens: int, dim: int):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(tokens, dim))

    def forward(self, x: Tensor) -> Tensor:
        """(records, tokens, dim) to the same."""
        return x + self.value


class Tokens(nn.Module):
    """Positions of a map as tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """(records, dim, h, w) to (records, h w, dim)."""
        return x.flatten(2).transpose(1, 2)


class First(nn.Module):
    """The class token."""

    def forward(self, x: Tensor) -> Tensor:
        """(records, tokens, dim) to (records, dim)."""
        return x[:, 0]


class SelfAttention(nn.Module):
    """Self-attention among the tokens of a record."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(records, tokens, dim) to the same."""
        records, tokens, dim = x.shape
        split = self.qkv(x).view(records, tokens, 3, self.heads, dim // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(records, tokens, dim))


class TransformerBlock(nn.Module):
    """Pre-norm transformer block: attention, then two linear layers with GELU between them."""

    def __init__(self, dim: int, heads: int, mlp_ratio: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.linear1 = nn.Linear(dim, mlp_ratio * dim)
        self.linear2 = nn.Linear(mlp_ratio * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(records, tokens, dim) to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.linear2(functional.gelu(self.linear1(self.norm2(x))))


@checked(
    patch=integer(ge=1),
    dim=integer(ge=1),
    depth=integer(ge=1),
    heads=integer(ge=1),
    mlp_ratio=integer(ge=1),
)
def vit(
    image_shape: Sequence[int] = (3, 32, 32),
    outputs: int = 10,
    *,
    patch: int = 4,
    dim: int = 192,
    depth: int = 12,
    heads: int = 3,
    mlp_ratio: int = 4,
) -> Network:
    """Vision transformer with a class token (Dosovitskiy et al., 2021), pre-norm, no dropout.

    The defaults are ViT-tiny's block stack (Touvron et al., 2021) on 4x4 patches of 32x32 images:
    65 tokens, 5.36 million parameters.

    Raises InputError for an image that is not a whole number of patches and for heads that do not
    divide `dim`.
    """
    channels, height, width = image_shape
    if height % patch or width % patch:
        raise InputError("patch", patch, f"a divisor of the image's sides, {height} x {width}")
    if dim % heads:
        raise InputError("heads", heads, f"a divisor of dim = {dim}")
    patches = (height // patch) * (width // patch)
    return Network(
        [
            ("patches", nn.Conv2d(channels, dim, patch, patch)),
            ("tokens", Tokens()),
            ("class_token", ClassToken(dim)),
            ("position", Offset(patches + 1, dim)),
            (
                "blocks",
                nn.Sequential(*(TransformerBlock(dim, heads, mlp_ratio) for _ in range(depth))),
            ),
            ("norm", nn.LayerNorm(dim)),
            ("first", First()),
            ("head", nn.Linear(dim, outputs)),
        ]
    )
