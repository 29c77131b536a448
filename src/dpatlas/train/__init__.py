"""Private training of a network, from a file of settings or from Python.

    dpatlas train mine.yaml

    from dpatlas.train import train
    record = train({"data": "mine.py:records", "model": "mine.py:network", ...}, output="trained")

Both take the keys of `dpatlas.train.Settings` and do the same.
"""

from dpatlas.train.run import train
from dpatlas.train.settings import TrainSettings as Settings

__all__ = ["Settings", "train"]
