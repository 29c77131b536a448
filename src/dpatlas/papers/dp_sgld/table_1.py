"""The printed accuracies of Table 1, for figures of the same data and backbone."""

from pathlib import Path

from dpatlas.core.files import read_rows

TABLE = Path(__file__).parent / "printed" / "table1_constant_lr.csv"
METHODS = {"DP-SGLD": "dp-sgld", "DP-SGD": "dp-sgd", "No DP": "no-dp"}
# By printed data set: how ours name the data, its number of classes, and the paper's records.
DATA = {"CIFAR10": ("cifar10", 10, 50_000), "Pneumonia": ("pneumonia", 3, 5163)}


def printed_accuracies(
    data: str, classes: int, backbone: str | None
) -> dict[str, tuple[int, float | None, float]]:
    """By method of ours: printed number of records, epsilon (None: no privacy) and accuracy in %.

    data, classes, backbone: of ours; empty where they are not the paper's.
    """
    found = {}
    for cell in read_rows(TABLE):
        name, its_classes, records = DATA[cell["dataset"]]
        same = (data.partition("-")[0], classes) == (name, its_classes)
        if same and cell["backbone"] in (backbone or ""):
            method, epsilon = METHODS[cell["method"]], float(cell["epsilon"])
            private = None if method == "no-dp" else epsilon
            found[method] = (records, private, float(cell["accuracy_percent"]))
    return found
