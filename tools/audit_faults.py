"""Audit every training of docs/examples/faults.py and put the table into docs/audit.md.

python tools/audit_faults.py [NAME ...]    (some minutes; with names, the rows are only printed)
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import math
import sys
import time
from pathlib import Path

from dpatlas.audit import Report, audit_training

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "examples"))
from beside import put

import faults

RUNS = (50, 100, 300)
SEED = 11
ROWS = {
    "correct": "none",
    "correct_opacus": "none, by Opacus with the record blanked",
    "numpy_dp_sgd": "none, in numpy",
    "our_engine": "none, by dpatlas.privacy",
    "shuffled": "shuffled passes, accounted as Poisson samples",
    "noise_per_micro_batch": "a quarter of the noise on each of four micro-batches",
    "clip_after_mean": "the mean gradient is clipped, not each record's",
    "noise_by_the_wrong_batch": "the noise of a mean over 64 on a mean over 16",
    "frozen_batch_norm": "BatchNorm with statistics of the private records",
    "training_batch_norm": "BatchNorm in training mode",
    "private_mean": "features centred by the private mean",
    "accumulated_without_clip": "half of the batch is accumulated without the clip",
    "rate_by_private_loss": "the rate falls when the private loss does not",
    "stop_by_private_loss": "the training stops when the private loss does not fall",
    "class_weights": "losses weighted by the private counts of the classes",
    "best_epoch": "the weights after the step with the least private loss are published",
    "twice_the_rate": "Poisson batches at twice the claimed rate",
    "record_removed": "Opacus with the record removed: the divisor falls from 16 to 15",
    "dropped_last_batch": "the last batch dropped (no fault)",
}


def row(name: str) -> str:
    """One line of the table."""
    train = getattr(faults, name)
    began = time.process_time()
    premises = audit_training(train, faults.claim, premises_only=True, seed=SEED)
    seconds = time.process_time() - began
    began = time.process_time()
    for runs in RUNS:
        report = audit_training(train, faults.claim, runs=runs, seed=SEED)
        if report.contradicted:
            break
    cost = f"{seconds:.0f} + {time.process_time() - began:.0f} s"
    cells = (ROWS[name], _premises(premises), _bound(report, runs), cost)
    return f"| {' | '.join(cells)} |"


def _premises(report: Report) -> str:
    shown = [f"{each.name}: {each.found}" for each in report.violated]
    notes = [each.note for each in report.premises if "sums than accounted" in each.note]
    untested = [each.found for each in report.premises if each.name == "noisy sums"]
    return "; ".join(shown or notes or untested) or "hold"


def _bound(report: Report, runs: int) -> str:
    best = report.best
    assert best is not None and best.test is not None
    if report.contradicted:
        bound = math.floor(100 * best.bound.epsilon) / 100
        return f"{best.adversary}, {runs} + {runs} runs: epsilon at least {bound:.2f}"
    return f"not by {runs} + {runs} runs: {max(each.bound.epsilon for each in report.attacks):.2f}"


def main(names: list[str]) -> None:
    """Print the rows, and write the page if they are all there."""
    lines = ["| fault | premises | contradicted by | CPU time |", "|---|---|---|---|"]
    for name in names or ROWS:
        lines.append(row(name))
        print(lines[-1], flush=True)
    if not names:
        put("audit.md", "faults", lines)


if __name__ == "__main__":
    main(sys.argv[1:])
