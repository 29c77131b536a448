"""Keyed Gaussian noise for tensors of any size.

Small tensors take numpy's ziggurat. Large ones take the Box-Muller transform of the same
counter-based generator's raw bits, in blocks that stay in the cache: 2.4 times as fast, which is a
tenth of a training step of a ResNet18 at batch 16.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.seeds import Noise

LARGE = 2**14
# Pairs of normals made at a time.
BLOCK = 2**16


def add_noise(
    tensors: Iterable[Tensor], scale: float, noise: Noise, *, repetition: int, step: int
) -> None:
    """Add scale * N(0, I) to `tensors` in place, in their order, keyed by (repetition, step).

    A CPU draws from Philox as numpy has it, a GPU from its own counter-based generator: both are
    keyed and differ from each other, so a record says which device it ran on.
    """
    draws = noise.generator(repetition=repetition, step=step, use="noise")
    on_device: dict[torch.device, torch.Generator] = {}
    for tensor in tensors:
        if tensor.device.type != "cpu":
            if tensor.device not in on_device:
                key = noise.key(repetition, step, "noise")
                on_device[tensor.device] = device_generator(key, tensor.device)
            normals = torch.empty_like(tensor).normal_(generator=on_device[tensor.device])
            tensor.add_(normals, alpha=scale)
        elif tensor.numel() < LARGE:
            normals = draws.standard_normal(tensor.numel(), dtype=np.float32)
            tensor.add_(torch.from_numpy(normals).view_as(tensor), alpha=scale)
        else:
            _add_box_muller(tensor.view(-1), scale, draws.bit_generator)


def device_generator(key: int, device: torch.device | str) -> torch.Generator:
    """A GPU's own counter-based generator, which takes 63 bits of the key."""
    draws = torch.Generator(device=device)
    draws.manual_seed(key % 2**63)
    return draws


def _add_box_muller(flat: Tensor, scale: float, bits: np.random.BitGenerator) -> None:
    """r cos(t) and r sin(t) with r^2 = -2 log U and t uniform, 32 random bits for each of both."""
    radius, angle = torch.empty(BLOCK), torch.empty(BLOCK)
    wave = torch.empty(BLOCK)
    for start in range(0, len(flat), 2 * BLOCK):
        block = flat[start : start + 2 * BLOCK]
        half = (len(block) + 1) // 2
        words = torch.from_numpy(bits.random_raw(half).view(np.int32))
        r, t, w = radius[:half], angle[:half], wave[:half]
        # Words are whole numbers in [-2^31, 2^31): U = |word + 1/2| / 2^31 lies in (0, 1], finest
        # near 0, where the normal's tail comes from; t lies in [-pi, pi).
        r.copy_(words[:half]).add_(0.5).abs_().mul_(2.0**-31)
        r.log_().mul_(-2 * scale**2).sqrt_()
        t.copy_(words[half:]).mul_(2 * math.pi * 2.0**-32)
        block[:half].add_(torch.cos(t, out=w).mul_(r))
        rest = len(block) - half
        block[half:].add_(torch.sin(t, out=w).mul_(r)[:rest])
