"""Augmented views of a record, such as ones shifted by a few pixels and possibly mirrored."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError


class Augmentation(Protocol):
    """Several views of each record, whose gradients are averaged before the clip."""

    views: int

    def draw(self, draws: np.random.Generator, records: int) -> Tensor:
        """Parameters of all views of `records` records, (records, ...).

        A function of `draws` alone: nothing is kept from one call to the next.
        """

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        """(records, ...) -> (records * views, ...), the views of one record consecutively."""


class ShiftAndFlip:
    """`views` copies of each image, each moved by up to `padding` pixels along both axes.

    flip: mirror a view left to right with probability 1/2. What moves in from outside is 0. The
    private engine averages the gradients of a record's views before the clip, so a record still
    moves the sum by one clip bound at most (De et al., 2022).

    Records are flat, image_shape = (channels, height, width). Raises InputError for a padding that
    could move the image out of sight.
    """

    @checked(views=integer(ge=1), padding=integer(ge=0))
    def __init__(self, image_shape: Sequence[int], views: int, padding: int, flip: bool):
        self.image_shape, self.views = tuple(image_shape), views
        self.padding, self.flip = padding, flip
        side = min(self.image_shape[1:])
        if padding >= side:
            raise InputError("padding", padding, f"less than {side}, the image's side")

    def draw(self, draws: np.random.Generator, records: int) -> Tensor:
        """Shifts down and right, and whether to mirror: int64 (records, views, 3)."""
        shifts = draws.integers(-self.padding, self.padding + 1, (records, self.views, 2))
        mirrored = draws.integers(0, 1 + self.flip, (records, self.views, 1))
        return torch.from_numpy(np.concatenate([shifts, mirrored], axis=2))

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        """(records, pixels) -> (records * views, pixels), the views of a record in a row."""
        channels, height, width = self.image_shape
        moves = parameters.reshape(-1, 3)
        images = x.view(-1, channels, height, width).repeat_interleave(self.views, 0)
        rows = torch.arange(height, device=x.device) - moves[:, :1]
        columns = torch.arange(width, device=x.device).expand(len(moves), -1)
        columns = torch.where(moves[:, 2:] == 1, columns.flip(1), columns) - moves[:, 1:2]
        row_inside, column_inside = (
            indices.ge(0) & indices.lt(size) for indices, size in ((rows, height), (columns, width))
        )
        inside = row_inside[:, :, None] & column_inside[:, None, :]
        sources = rows.clamp(0, height - 1)[:, :, None] * width
        sources = (sources + columns.clamp(0, width - 1)[:, None, :]).flatten(1)
        pixels = images.flatten(2).gather(2, sources[:, None, :].expand(-1, channels, -1))
        return torch.where(inside.flatten(1)[:, None, :], pixels, 0).flatten(1)


def drawn_views(augmentation: Augmentation, draws: np.random.Generator, records: int) -> Tensor:
    """Parameters of the views of `records` records, each drawn as if its record were alone.

    What is spread evenly over a batch, or shuffled in it, depends on the number of records: one
    record less would move the views of all others. `ShiftAndFlip` draws every number by itself.
    """
    if type(augmentation) is ShiftAndFlip and "draw" not in vars(augmentation):
        return augmentation.draw(draws, records)
    alone = [torch.as_tensor(augmentation.draw(draws, 1)) for _ in range(max(1, records))]
    for parameters in alone:
        if parameters.dim() == 0 or len(parameters) != 1:
            where = f"augmentation ({type(augmentation).__name__})"
            found = f"parameters of shape {tuple(parameters.shape)} for one record"
            raise InputError(where, found, "(records, ...): a row for each record")
    return torch.cat(alone)[:records]
