"""An audit as its tests run it."""

from dpatlas.base.seeds import Noise
from dpatlas_workflow.checks.audit.jobs.mechanism import audit
from dpatlas_workflow.checks.audit.records.mechanism import MechanismSpec

DELTA, LEVEL, VERDICT_LEVEL = 1e-2, 0.95, 0.99


def no_progress():
    """Called after each run."""


def audited(name, runs):
    """Facts of an attack under noise of the mechanism's name."""
    spec = MechanismSpec(
        **{"key": "audit", "kind": "mechanism", "seed": 0, "noise_source": "keyed"},
        **{"mechanism": name, "runs": runs},
        **{"delta": DELTA, "level": LEVEL, "verdict_level": VERDICT_LEVEL},
    )
    return audit(spec, Noise(f"test {name}", "keyed"), no_progress)
