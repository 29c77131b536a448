"""Does my training code keep its epsilon? Audits of one's own code, and the statistics behind them.

    from dpatlas.audit import Claim

    claim = Claim(sampler="poisson", n=64, batch=16, noise=0.8, steps=8, delta=1e-5)

    def train(run):
        ...                        # one's own code, seeded by run.seed; plants the canary if
                                   # run.member is true, else a blank record
        run.see(noisy_sum / C)     # at every step, if the attacker sees the noisy sums
        return {"loss": loss}      # what is published

and `dpatlas audit mine.py:train`, or `audit_training(train, claim)` from Python.
Each name is imported when it is asked for: no one who does not train pays for torch.
"""

import importlib
from typing import Any

MODULES = {
    "dpatlas.audit.claim": ("Claim",),
    "dpatlas.audit.run": ("Run",),
    "dpatlas.audit.audit": ("audit_training",),
    "dpatlas.audit.report": ("Report",),
    "dpatlas.audit.membership": ("attack_model",),
    "dpatlas.audit.loops": ("opacus", "plant", "torch_loop", "watch_opacus"),
    "dpatlas.accounting.one_run": ("one_run_profile_test",),
    "dpatlas.models.side_door": (
        "SideDoor",
        "side_door_canaries",
        "side_door_records",
        "side_door_scores",
    ),
    "dpatlas.accounting.audit_statistics": (
        "epsilon_lower_bound",
        "one_run_lower_bound",
        "one_run_p_value",
        "profile_excess",
    ),
}
__all__ = sorted(name for names in MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
