"""The papers' printed tables beside ours: value by value, with differences and intervals.

Outside the paper tier other data and networks stand for the paper's; then a difference says how far
the stand-in is from the paper, and only signs and orders can be compared.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpatlas.core.statistics import Estimate
from dpatlas.report.page_tables import read_rows

Rows = Sequence[Mapping[str, str]]
PAPERS = Path("workflow/papers")
CONFIDENCE = 0.95
PERCENT = 100
METHODS = {"dp-sgld": "DP-SGLD", "dp-sgd": "DP-SGD", "no-dp": "No DP"}
# epsilon of the printed rows; the share of LP in Table 1, 5 of 20 epochs.
EPSILON, LP_SHARE = 1.0, 0.25
# The paper's backbones of lp_fft by what the name of ours has; of another kind ours stands for
# ResNet18, or with LoRA for the transformer.
FAMILIES = {"resnet18": "ResNet18", "mobilenet": "MobileNet-v3", "deit": "Mini-DeiT-Ti"}
PRIORS = {"independent": "data-independent", "dp-sgd": "DP-SGD"}
QUANTITIES = {
    "risk_prior": "risk_prior",
    "certificate_prior": "bound_prior",
    "risk_posterior": "risk_posterior",
    "kl": "kl",
    "certificate_posterior": "bound_posterior",
}


@dataclass(frozen=True)
class Beside:
    """A printed number and ours, in the same unit.

    printed_error: its printed spread, as a standard error; 0 where none is printed. ours: from the
    runs of the arm in `setting`.
    """

    what: str
    printed: float
    printed_error: float
    setting: str
    ours: Estimate

    @property
    def interval(self) -> tuple[float, float]:
        """Of our value, at level `CONFIDENCE`."""
        return self.ours.interval(CONFIDENCE)

    @property
    def difference(self) -> float:
        """Ours minus printed."""
        return self.ours.value - self.printed

    @property
    def difference_interval(self) -> tuple[float, float]:
        """Of the difference, both errors taken together."""
        error = math.hypot(self.ours.standard_error, self.printed_error)
        together = Estimate(self.difference, error, self.ours.degrees, self.ours.runs)
        return together.interval(CONFIDENCE)


def beside(name: str, rows: Rows, papers: Path = PAPERS) -> list[Beside]:
    """Pairs for the table `name` with these csv rows; none if the paper prints none."""
    return list(TABLES[name](rows, papers)) if name in TABLES else []


def _accuracies(file: str) -> Callable[[Rows, Path], Iterator[Beside]]:
    """Tables 1 and 2 of dp_sgld, and what DP-SGLD gains over DP-SGD."""

    def pairs(rows: Rows, papers: Path) -> Iterator[Beside]:
        printed = read_rows(papers / file)
        for row in rows:
            if row["features"] == "softmax" or row["comparison"] not in ("", "published"):
                continue
            if row["method"] not in METHODS or row["epsilon"] not in ("", str(EPSILON)):
                continue
            wanted = (*_stands_for(row), METHODS[row["method"]])
            for cell in printed:
                if (cell["dataset"], cell["backbone"], cell["method"]) == wanted:
                    yield _accuracy(cell, row)

    return pairs


def _finetune(rows: Rows, papers: Path) -> Iterator[Beside]:
    """Table 3 of dp_sgld: the last two blocks."""
    for row in rows:
        blocks = row["unfreeze"] == "last two blocks"
        if not blocks or row["method"] not in METHODS or row["epsilon"] not in ("", str(EPSILON)):
            continue
        for cell in read_rows(papers / "dp_sgld_table3_finetune.csv"):
            if cell["method"] == METHODS[row["method"]]:
                yield _accuracy(cell, row)


def _stands_for(row: Mapping[str, str]) -> tuple[str, str]:
    """The paper's data set and backbone in whose place a row of ours stands."""
    medical = row["data"].startswith(("pneumonia", "breast"))
    plain = any(word in row["backbone"] for word in ("mlp", "alexnet"))
    return "Pneumonia" if medical else "CIFAR10", "alexnet" if plain else "resnet18"


def _accuracy(cell: Mapping[str, str], row: Mapping[str, str]) -> Beside:
    backbone = row["backbone"] or "raw features"
    return Beside(
        f"{cell['dataset']}, {cell['backbone']}, {cell['method']}: accuracy, %",
        float(cell["accuracy_percent"]),
        0.0,
        f"{row['data']}, {backbone}",
        _estimate(row, "accuracy_mean", "accuracy_standard_error", PERCENT),
    )


def _strategies(rows: Rows, papers: Path) -> Iterator[Beside]:
    """Tables 1 and 2 of lp_fft, where noise or epsilon are the printed ones."""
    theirs = [row for row in rows if row["source"] == "printed"]
    for row in rows:
        if row["source"] == "printed" or float(row["share"]) not in (0.0, LP_SHARE, 1.0):
            continue
        family = next((kind for kind in FAMILIES if kind in row["architecture"]), None)
        own = "Mini-DeiT-Ti" if row["lora_rank"] else "ResNet18"
        backbone = own if family is None else FAMILIES[family]
        for cell in theirs:
            wanted = (cell["backbone"], cell["strategy"]) == (backbone, row["strategy"])
            if wanted and _same_privacy(cell, row):
                epsilon = cell["printed_epsilon"] or "inf"
                yield Beside(
                    f"{cell['backbone']}, {row['strategy']}, epsilon {epsilon}: accuracy, %",
                    PERCENT * float(cell["value"]),
                    PERCENT * float(cell["standard_error"] or 0),
                    f"{row['scenario']}: {row['data']}, {row['backbone']}",
                    _estimate(row, "value", "standard_error", PERCENT),
                )


def _same_privacy(cell: Mapping[str, str], row: Mapping[str, str]) -> bool:
    if not cell["printed_epsilon"]:
        return row["noise_multiplier"] != "" and float(row["noise_multiplier"]) == 0
    if row["target_epsilon"]:
        return float(row["target_epsilon"]) == float(cell["printed_epsilon"])
    return row["noise_multiplier"] == cell["noise_multiplier"] != ""


def _certificates(rows: Rows, papers: Path) -> Iterator[Beside]:
    """Tables 1 to 3 of max_information."""
    printed = read_rows(papers / "max_information_tables2_3.csv")
    for row in rows:
        if row["part"] != "ours" or row["prior"] not in PRIORS:
            continue
        data = "CIFAR-10" if row["data"] == "cifar10" else "MNIST"
        for ours, theirs in QUANTITIES.items():
            for cell in printed:
                found = (cell["dataset"], cell["prior"], cell["quantity"])
                if found == (data, PRIORS[row["prior"]], theirs):
                    yield Beside(
                        f"{data}, {cell['prior']} prior: {theirs.replace('_', ' of ')}",
                        float(cell["mean"]),
                        float(cell["std"]) / math.sqrt(3),
                        f"{row['data']}, {row['model']}",
                        _spread(row, ours),
                    )


def _spread(row: Mapping[str, str], name: str) -> Estimate:
    """Of a mean whose standard deviation over runs is in the csv."""
    runs = int(row["runs_used"])
    error = float(row[f"{name}_std"]) / math.sqrt(runs) if runs > 1 else math.inf
    return Estimate(float(row[f"{name}_mean"]), error, max(runs - 1.0, 1.0), runs)


def _estimate(row: Mapping[str, str], mean: str, error: str, unit: float) -> Estimate:
    runs = int(row["runs_used"])
    spread = unit * float(row[error]) if row[error] and runs > 1 else math.inf
    return Estimate(unit * float(row[mean]), spread, max(runs - 1.0, 1.0), runs)


TABLES: dict[str, Callable[[Rows, Path], Iterator[Beside]]] = {
    "sgld_accuracy_constant": _accuracies("dp_sgld_table1_constant_lr.csv"),
    "sgld_accuracy_decreasing": _accuracies("dp_sgld_table2_decreasing_lr.csv"),
    "sgld_finetune": _finetune,
    "lpfft_strategies": _strategies,
    "lpfft_lora": _strategies,
    "maxinf_certificates": _certificates,
}
