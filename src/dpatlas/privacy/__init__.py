"""Private training, its accounting, its ledger, audits of it, and the KL kernel.

    from dpatlas.privacy import PrivateTraining, TrainingPhase, Poisson, calibrate

The names of `MODULES` are what others may build on. Each is imported when it is asked for: no one
who does not train pays for torch.
"""

import importlib
from typing import Any

# No import statements: a digest of code follows those, and every job would depend on all of these.
MODULES = {
    "dpatlas.base.seeds": ("Noise",),
    "dpatlas.models.group_norm": ("to_group_norm",),
    "dpatlas.models.lora": ("lora_parameters", "with_lora"),
    "dpatlas.accounting.guarantees": ("Phase", "calibrate", "composition", "guarantee"),
    "dpatlas.accounting.audit_statistics": ("epsilon_lower_bound",),
    "dpatlas.privacy.calibration": ("at_epsilon",),
    "dpatlas.accounting.clip_bounds": ("AdaptiveClip", "LayerBounds"),
    "dpatlas.privacy.losses": (
        "TokenCrossEntropy",
        "binary_cross_entropy",
        "cross_entropy",
        "squared_error",
    ),
    "dpatlas.privacy.optimizers": ("ParameterGroup",),
    "dpatlas.privacy.noise": ("noisy_sum",),
    "dpatlas.privacy.per_record": ("NetworkGradients", "PerRecordWarning"),
    "dpatlas.privacy.phases": ("TrainingPhase",),
    "dpatlas.accounting.samplers": ("Cyclic", "FixedSize", "FullBatch", "Poisson", "Shuffled"),
    "dpatlas.privacy.saved": ("load_model", "load_weights"),
    "dpatlas.accounting.schedules": ("InverseTime", "StepDecay", "WarmupCosine"),
    "dpatlas.privacy.training": ("PrivateTraining",),
}
__all__ = sorted(name for names in MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    """A public name, from the module that it lives in."""
    for module, names in MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
