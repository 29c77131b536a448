"""Copies of what the host draws for a step to the device that computes it."""

import numpy as np
import torch
from torch import Tensor


def to_device(drawn: np.ndarray | Tensor, device: torch.device | str) -> Tensor:
    """The numbers on `device`; a GPU continues its queued work while they are copied."""
    drawn = torch.from_numpy(drawn) if isinstance(drawn, np.ndarray) else drawn
    if torch.device(device).type == "cuda" and drawn.device.type == "cpu":
        return drawn.pin_memory().to(device, non_blocking=True)
    return drawn.to(device)
