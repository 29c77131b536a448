"""dp-atlas: five papers on differential privacy, reproduced, checked and audited."""

import importlib
from typing import Any

__version__ = "0.2.0"
# Public names, from the modules that they live in: imported when they are asked for.
PUBLIC = {"check_epsilon": "dpatlas.epsilon.check"}


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(importlib.import_module(PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
