"""The printed tables of dp_sgld, and which of our rows belong beside them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dpatlas.base.files import read_rows
from dpatlas_workflow.evidence.printed import Pairs, PrintedComparison, Rows, estimate, is_same_data

HERE = Path(__file__).parent
PERCENT = 100
METHODS = {"dp-sgld": "DP-SGLD", "dp-sgd": "DP-SGD", "no-dp": "No DP"}
# epsilon of the printed rows, and the reading of their settings that counts.
EPSILON, READING = 1.0, "paper"


def accuracies_of_table_1(
    data: str, classes: int, backbone: str | None
) -> dict[str, tuple[int, float | None, float]]:
    """By method of ours: printed number of records, epsilon (None: no privacy) and accuracy in %.

    data, classes, backbone: of ours; empty where they are not the paper's.
    """
    found = {}
    for cell in read_rows(HERE / "table1_constant_lr.csv"):
        theirs = _sets()[cell["dataset"]]
        same = (theirs["data"], int(theirs["classes"])) == (data.partition("-")[0], classes)
        if same and cell["backbone"] in (backbone or ""):
            (method,) = (name for name, printed in METHODS.items() if printed == cell["method"])
            epsilon = None if method == "no-dp" else float(cell["epsilon"])
            found[method] = (int(theirs["records"]), epsilon, float(cell["accuracy_percent"]))
    return found


def _sets() -> dict[str, dict[str, str]]:
    """The paper's data sets by their names in its tables."""
    return {row["dataset"]: row for row in read_rows(HERE / "data.csv")}


def _accuracies(file: str) -> Pairs:
    """Tables 1 and 2 of dp_sgld, and our rows of the same protocol, with the L2 term."""

    def pairs(rows: Rows) -> Iterator[PrintedComparison]:
        printed = read_rows(HERE / file)
        for row in rows:
            if not (_at_printed_epsilon(row) and _as_printed(row)):
                continue
            wanted = (*_stands_for(row), METHODS[row["method"]])
            for cell in printed:
                if (cell["dataset"], cell["backbone"], cell["method"]) == wanted:
                    yield _accuracy(cell, row)

    return pairs


def _at_printed_epsilon(row: Mapping[str, str]) -> bool:
    return row["method"] in METHODS and row["epsilon"] in ("", str(EPSILON))


def _as_printed(row: Mapping[str, str]) -> bool:
    """Whether a row is of the paper's protocol, with the L2 term.

    Of tables published before ours had it: whether it is under the published accounting.
    """
    if "reading" in row:
        return row["reading"] == READING and row["weight_decay"] != "0.0"
    return row["features"] != "softmax" and row["comparison"] in ("", "published")


def _finetune(rows: Rows) -> Iterator[PrintedComparison]:
    """Table 3 of dp_sgld: the most trained parts of every backbone."""
    most = {
        backbone: max(int(row["trained_parameters"]) for row in rows if row["backbone"] == backbone)
        for backbone in {row["backbone"] for row in rows}
    }
    for row in rows:
        if int(row["trained_parameters"]) < most[row["backbone"]] or not _at_printed_epsilon(row):
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
    size = f", n = {row['n_train']}" if row.get("reading") else ""
    return PrintedComparison(
        f"{cell['dataset']}, {cell['backbone']}, {cell['method']}: accuracy, %",
        float(cell["accuracy_percent"]),
        0.0,
        f"{row['data']}, {backbone}{size}",
        estimate(row, "accuracy_mean", "accuracy_standard_error", PERCENT),
        same_data=is_same_data(_sets()[cell["dataset"]], row),
    )


TABLES: Mapping[str, Pairs] = {
    "sgld_accuracy_constant": _accuracies("table1_constant_lr.csv"),
    "sgld_accuracy_decreasing": _accuracies("table2_decreasing_lr.csv"),
    "sgld_finetune": _finetune,
}
