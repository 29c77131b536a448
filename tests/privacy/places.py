"""Where the engine's tests make their tensors: on the CPU, and on a GPU if there is one."""

import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
# Of the tests that run now; the fixture `device` sets it.
device = "cpu"


def put(made):
    """A tensor or a network on that device."""
    return made.to(device)
