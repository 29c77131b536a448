"""max_information: standard normals for weights and outputs that are drawn, keyed.

They hide no record, so float32 and numpy's ziggurat do: two thirds of the time of the noise that
`privacy.noise` adds to sums.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.seeds import Noise, generator
from dpatlas.privacy.noise import device_generator, device_normals


def standard_normals(
    sizes: Sequence[tuple[int, int]],
    noise: Noise,
    *,
    repetition: int,
    step: int,
    device: torch.device,
) -> list[Tensor]:
    """N(0, 1) draws of every size, float32, which depend on (noise, repetition, step) alone.

    A GPU draws other ones than a CPU.
    """
    counts = [rows * width for rows, width in sizes]
    key = noise.key(repetition, step, "normals")
    if device.type == "cpu":
        draws = generator(key).standard_normal(sum(counts), dtype=np.float32)
        flat = torch.from_numpy(draws)
    else:
        flat = device_normals([sum(counts)], device_generator(key, device)).float()
    return [part.view(size) for part, size in zip(flat.split(counts), sizes, strict=True)]
