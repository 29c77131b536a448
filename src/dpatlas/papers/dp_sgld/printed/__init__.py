"""The printed tables of dp_sgld, and which of our rows belong beside them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dpatlas.core.files import read_rows
from dpatlas.evidence.printed import Pairs, PrintedComparison, Rows, estimate

HERE = Path(__file__).parent
PERCENT = 100
METHODS = {"dp-sgld": "DP-SGLD", "dp-sgd": "DP-SGD", "no-dp": "No DP"}
# epsilon of the printed rows.
EPSILON = 1.0


def _accuracies(file: str) -> Pairs:
    """Tables 1 and 2 of dp_sgld, and what DP-SGLD gains over DP-SGD."""

    def pairs(rows: Rows) -> Iterator[PrintedComparison]:
        printed = read_rows(HERE / file)
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


def _finetune(rows: Rows) -> Iterator[PrintedComparison]:
    """Table 3 of dp_sgld: the last two blocks."""
    for row in rows:
        blocks = row["unfreeze"] == "last two blocks"
        if not blocks or row["method"] not in METHODS or row["epsilon"] not in ("", str(EPSILON)):
            continue
        for cell in read_rows(HERE / "table3_finetune.csv"):
            if cell["method"] == METHODS[row["method"]]:
                yield _accuracy(cell, row)


def _stands_for(row: Mapping[str, str]) -> tuple[str, str]:
    """The paper's data set and backbone in whose place a row of ours stands."""
    medical = row["data"].startswith(("pneumonia", "breast"))
    plain = any(word in row["backbone"] for word in ("mlp", "alexnet"))
    return "Pneumonia" if medical else "CIFAR10", "alexnet" if plain else "resnet18"


def _accuracy(cell: Mapping[str, str], row: Mapping[str, str]) -> PrintedComparison:
    backbone = row["backbone"] or "raw features"
    return PrintedComparison(
        f"{cell['dataset']}, {cell['backbone']}, {cell['method']}: accuracy, %",
        float(cell["accuracy_percent"]),
        0.0,
        f"{row['data']}, {backbone}",
        estimate(row, "accuracy_mean", "accuracy_standard_error", PERCENT),
    )


TABLES: Mapping[str, Pairs] = {
    "sgld_accuracy_constant": _accuracies("table1_constant_lr.csv"),
    "sgld_accuracy_decreasing": _accuracies("table2_decreasing_lr.csv"),
    "sgld_finetune": _finetune,
}
