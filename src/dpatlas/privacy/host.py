"""What the host draws for a step, on the device that takes it."""

import numpy as np
import torch
from torch import Tensor


def on_device(drawn: np.ndarray | Tensor, device: torch.device | str) -> Tensor:
    """The numbers on `device`; a GPU goes on with what it was doing while they are copied."""
    drawn = torch.as_tensor(drawn)
    if torch.device(device).type == "cuda":
        return drawn.pin_memory().to(device, non_blocking=True)
    return drawn.to(device)
