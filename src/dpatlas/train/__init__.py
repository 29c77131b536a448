"""Private training of a network, from a file of settings or from Python.

    dpatlas train mine.yaml

    from dpatlas.train import train
    record = train({"data": "mine.py:records", "model": "mine.py:network", ...}, output="trained")

Both take the keys of `dpatlas.train.Settings` and do the same.
"""

import importlib
from typing import Any

# Imported when they are asked for: a job that trains by settings needs no fetcher of data.
PUBLIC = {
    "Settings": ("dpatlas.train.settings", "TrainSettings"),
    "train": ("dpatlas.train.run", "train"),
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, public = PUBLIC[name]
    return getattr(importlib.import_module(module), public)


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
