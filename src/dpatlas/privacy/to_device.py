"""Copies of what the host draws for a step to the device that computes it."""

import numpy as np
import torch
from torch import Tensor


def to_device(drawn: np.ndarray | Tensor, device: torch.device | str) -> Tensor:
    """The numbers on `device`; a GPU continues its queued work while they are copied."""
    # A script may have set another default device.
    drawn = drawn if isinstance(drawn, Tensor) else torch.as_tensor(drawn, device="cpu")
    if torch.device(device).type == "cuda" and drawn.device.type == "cpu":
        return drawn.pin_memory().to(device, non_blocking=True)
    return drawn.to(device)
