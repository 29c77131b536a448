"""The printed accuracies of Table 1, for figures of the same data and backbone."""

from pathlib import Path

from dpatlas.base.files import read_rows

PRINTED = Path(__file__).parent / "printed"
METHODS = {"DP-SGLD": "dp-sgld", "DP-SGD": "dp-sgd", "No DP": "no-dp"}


def printed_accuracies(
    data: str, classes: int, backbone: str | None
) -> dict[str, tuple[int, float | None, float]]:
    """By method of ours: printed number of records, epsilon (None: no privacy) and accuracy in %.

    data, classes, backbone: of ours; empty where they are not the paper's.
    """
    found = {}
    sets = {row["dataset"]: row for row in read_rows(PRINTED / "data.csv")}
    for cell in read_rows(PRINTED / "table1_constant_lr.csv"):
        theirs = sets[cell["dataset"]]
        same = (theirs["data"], int(theirs["classes"])) == (data.partition("-")[0], classes)
        if same and cell["backbone"] in (backbone or ""):
            method, epsilon = METHODS[cell["method"]], float(cell["epsilon"])
            private = None if method == "no-dp" else epsilon
            accuracy = float(cell["accuracy_percent"])
            found[method] = (int(theirs["records"]), private, accuracy)
    return found
