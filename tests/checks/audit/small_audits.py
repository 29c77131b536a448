"""An audit as its tests run it."""

import pytest
import torch

from dpatlas.checks.audit.jobs.mechanism import audit
from dpatlas.checks.audit.records.mechanism import Spec
from dpatlas.core.seeds import Noise

DELTA, LEVEL, VERDICT_LEVEL = 1e-2, 0.95, 0.99


def spec_of(name, runs, **changes):
    fields = {
        **{"key": "audit", "kind": "mechanism", "seed": 0, "noise_source": "keyed"},
        **{"mechanism": name, "runs": runs},
        **{"delta": DELTA, "level": LEVEL, "verdict_level": VERDICT_LEVEL},
    }
    return Spec(**{**fields, **changes})


def audited(name, runs):
    """Metrics of an attack under noise of the mechanism's name."""
    return audit(spec_of(name, runs), Noise(f"test {name}", "keyed"), lambda: None)


@pytest.fixture(autouse=True)
def one_thread_without_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
