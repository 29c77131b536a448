"""An audit as its tests run it."""

import pytest
import torch

from dpatlas.checks.audit.jobs import dispatch as audit
from dpatlas.core.seeds import Noise

DELTA, LEVEL, VERDICT_LEVEL = 1e-2, 0.95, 0.99


def audited(name, runs):
    noise = Noise(f"test {name}", "keyed")
    return audit.audit(name, runs, noise, DELTA, LEVEL, VERDICT_LEVEL, lambda: None)


@pytest.fixture(autouse=True)
def one_thread_without_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
