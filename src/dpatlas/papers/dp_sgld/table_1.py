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
        same = is_same_data(cell["dataset"], data, classes)
        if same and cell["backbone"] in (backbone or ""):
            method, epsilon = METHODS[cell["method"]], float(cell["epsilon"])
            private = None if method == "no-dp" else epsilon
            records = DATA[cell["dataset"]][2]
            found[method] = (records, private, float(cell["accuracy_percent"]))
    return found


def is_same_data(printed: str, data: str, classes: int) -> bool:
    """Whether data of ours with so many classes are the printed data set."""
    return (data.partition("-")[0], classes) == DATA[printed][:2]
