"""Train on chest X-rays by `dpatlas.train` with one option after the other, and print the table.

python tools/xrays.py PNEUMONIAMNIST.npz    (some five minutes)

At 28 x 28 pixels the children's names are gone: persons with one to four X-rays, all of one class,
are dealt here. So the row shows what a guarantee per person costs, not who these children are.
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.train import train

NETWORK = """
from torch import nn


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 2),
    )
"""
COMMON = {
    "data": "train.npz",
    "test": "test.npz",
    "model": "network.py:network",
    "delta": 1e-5,
    "batch": 256,
    "epochs": 15.0,
    "max_grad_norm": 1.0,
    "lr": 0.25,  # of .1, .25, .5, 1 the best on the validation part, at epsilon 3
    "momentum": 0.9,
    "noise_source": "keyed",
}
ROWS: dict[str, dict[str, Any]] = {
    "SGD with momentum": {},
    "averaged weights (`ema_decay: 0.9`)": {"ema_decay": 0.9},
    "warm-up and cosine": {"lr_schedule": {"name": "warmup-cosine", "warmup": 30}},
    "bounds by layer": {"layer_bounds": {"0": 0.6, "2": 0.6, "5": 0.53}, "max_grad_norm": None},
    "adaptive clip": {"adaptive_clip": {"quantile": 0.5, "count_noise": 12.0}},
    "per person": {"data": "persons.npz", "batch": 100},
}
EPSILONS, SEEDS = (1.0, 3.0), range(5)


def persons(labels: np.ndarray) -> np.ndarray:
    """For every record a person with one to four records, all of one class; int64 (n,)."""
    draws = np.random.default_rng(0)
    groups, number = np.empty(len(labels), dtype=np.int64), 0
    for each in np.unique(labels):
        rows = np.flatnonzero(labels == each)
        while len(rows):
            count = int(draws.integers(1, 5))
            groups[rows[:count]], rows, number = number, rows[count:], number + 1
    return groups


def main(path: Path) -> None:
    """Print the table in Markdown."""
    with np.load(path) as arrays, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "network.py").write_text(NETWORK)
        for part in ("train", "test"):
            x = arrays[f"{part}_images"][:, None] / np.float32(255)
            y = arrays[f"{part}_labels"].ravel().astype(np.int64)
            np.savez(folder / part, x=x, y=y)
            if part == "train":
                np.savez(folder / "persons", x=x, y=y, groups=persons(y))
        print("| option | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |")
        print("|---|" + "---|" * len(EPSILONS))
        for row, changes in ROWS.items():
            cells = [_cell({**COMMON, **changes, "epsilon": each}, folder) for each in EPSILONS]
            print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


def _cell(settings: dict[str, Any], folder: Path) -> str:
    """Mean accuracy of the runs in percent, and their range."""
    records = [
        train({**settings, "seed": seed}, output=folder / "out", base=folder, progress=False)
        for seed in SEEDS
    ]
    accuracies = [100 * record["metrics"]["accuracy"] for record in records]
    return f"{statistics.mean(accuracies):.1f} ({min(accuracies):.1f}-{max(accuracies):.1f})"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
