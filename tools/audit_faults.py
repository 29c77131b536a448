"""Audit every training of docs/examples/faults.py and put the table into docs/audit.md.

python tools/audit_faults.py [NAME ...]    (some minutes; with names, the rows are only printed)
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import math
import re
import sys
from pathlib import Path

from dpatlas.audit import Report, audit_training

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "examples"))
from beside import put

import faults

RUNS = (50, 100, 300)
SEED = 11
ROWS = {
    "correct": "none",
    "correct_opacus": "none, by Opacus",
    "numpy_dp_sgd": "none, in numpy",
    "our_engine": "none, by dpatlas.privacy",
    "shuffled": "shuffled passes, accounted as Poisson",
    "noise_per_micro_batch": "a quarter of the noise per micro-batch",
    "clip_after_mean": "the mean gradient clipped, not each record's",
    "noise_by_the_wrong_batch": "noise for a mean over 64, not 16",
    "frozen_batch_norm": "BatchNorm, statistics of private records",
    "training_batch_norm": "BatchNorm in training mode",
    "private_mean": "features centred by the private mean",
    "accumulated_without_clip": "half of the batch not clipped",
    "rate_by_private_loss": "learning rate by the private loss",
    "stop_by_private_loss": "stop by the private loss",
    "class_weights": "losses weighted by private class counts",
    "best_epoch": "weights of the least private loss",
    "best_accuracy": "weights of the best private accuracy",
    "twice_the_rate": "Poisson batches at twice the rate",
    "record_removed": "Opacus, record removed: divisor 15, not 16",
    "dropped_last_batch": "last batch dropped (no fault)",
}
# What the report says of a premise, in the words of the table.
SHORTER = (
    (r"acts through its gradient only", "weight zero"),
    (r"acts through sums only", "sums only"),
    (r"in (\d+) of (\d+) pairs (?:it|they) changes? (.*)", r"changes \3, \1/\2"),
    (r"the canary acts by (step \d+) in (\d+) of (\d+) pairs", r"\1, \2/\3"),
    (r"the canary moves the sum by ", ""),
    (r"it (changes '.*') in a run in which it changes no sum", r"\1, but no sum"),
    (r"noise (.* (?:coordinate|step)): .* (\S+) of the stated", r"\1: \2"),
    (r"standard deviation (\S+ of the stated)", r"\1"),
    (r"law of the noise: (\S+) of the sums lie within (\S+) stated", r"law: \1 within \2"),
    (r"(fewer sums than accounted) .*", r"\1"),
    (r"as at a rate of", "rate"),
    (r"once in (\d+) steps, as in shuffled batches", r"one in \1 steps, shuffled"),
    (r"none were given to", "no"),
)


def row(name: str) -> str:
    """One line of the table."""
    train = getattr(faults, name)
    premises = audit_training(train, faults.claim, premises_only=True, seed=SEED)
    for runs in RUNS:
        report = audit_training(train, faults.claim, runs=runs, seed=SEED)
        if report.contradicted:
            break
    return f"| {ROWS[name]} | {_premises(premises)} | {_bound(report, runs)} |"


def _premises(report: Report) -> str:
    shown = [f"{each.name}: {each.found}" for each in report.violated]
    notes = [each.note for each in report.premises if "sums than accounted" in each.note]
    untested = [each.found for each in report.premises if each.name == "noisy sums"]
    return "; ".join(map(_shorter, shown or notes or untested)) or "hold"


def _shorter(said: str) -> str:
    for pattern, short in SHORTER:
        said = re.sub(pattern, short, said)
    return said


def _bound(report: Report, runs: int) -> str:
    best = report.best
    assert best is not None and best.test is not None
    if report.contradicted:
        bound = math.floor(100 * best.bound.epsilon) / 100
        return f"{best.adversary}, {runs}: {bound:.2f}"
    return f"no, {runs}: {max(each.bound.epsilon for each in report.attacks):.2f}"


def main(names: list[str]) -> None:
    """Print the rows, and write the page if they are all there."""
    lines = ["| fault | premises | contradicted by, runs: bound |", "|---|---|---|"]
    for name in names or ROWS:
        lines.append(row(name))
        print(lines[-1], flush=True)
    if not names:
        put("audit.md", "faults", lines)


if __name__ == "__main__":
    main(sys.argv[1:])
