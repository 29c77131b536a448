"""Tables 1 and 2 of lp_fft as printed, their contradictions, and the noise behind each epsilon."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.base.files import read_rows

PRINTED = Path(__file__).parent / "printed"
# By the name in the tables: the backbone and the data of its pre-training as printed; then ours, as
# a part of the name of the architecture, and the name of the data.
BACKBONES = {
    "resnet18": ("ResNet18", "CIFAR-10", "resnet18", "cifar10"),
    "mobilenetv3": ("MobileNet-v3", "CIFAR-10", "mobilenet", "cifar10"),
    "deit": ("Mini-DeiT-Ti", "ImageNet-1K", "deit", "imagenet"),
}
(_DATA,) = read_rows(PRINTED / "data.csv")
PRIVATE_DATA = _DATA["dataset"]
# Names of ours: strategies by the printed method; the private data and its number of classes.
BY_METHOD = {"LP": "lp", "LP-FFT": "lp-fft", "FFT": "fft", "LP-LoRA": "lp-lora", "LoRA": "lora"}
_OUR_DATA = _DATA["data"], int(_DATA["classes"])
# The setting in which noise multipliers are compared with the printed epsilons: Poisson batches,
# one record added or removed, delta = 1 / n. The paper states the batch size, and the number of
# epochs for one backbone alone.
N, BATCH, EPOCHS = 5000, 1000, 20
# Epsilon by noise multiplier in that setting, by PLD; a test recomputes it.
EPSILONS = {1.0: 12.07, 5.0: 1.280, 10.0: 0.568, 20.0: 0.256}
# Two printed means of one accuracy contradict each other beyond this many standard errors.
CONTRADICTION = 3.0


@dataclass(frozen=True)
class PrintedAccuracy:
    """One cell of Table 1 or 2: accuracy in % with its standard error, as printed."""

    table: int
    backbone: str
    method: str
    epsilon: float
    accuracy: float
    standard_error: float

    @property
    def noise_multiplier(self) -> float:
        """The noise of EPSILONS whose epsilon has the ratio nearest to 1; 0 without privacy."""
        if math.isinf(self.epsilon):
            return 0.0
        return min(EPSILONS, key=lambda noise: abs(math.log(EPSILONS[noise] / self.epsilon)))

    @property
    def recomputed_epsilon(self) -> float:
        """Epsilon at that noise; infinite without privacy."""
        return EPSILONS.get(self.noise_multiplier, math.inf)

    @property
    def shown(self) -> dict[str, Any]:
        """The accuracy as a fraction, as columns of a row, with our name of the strategy."""
        return {
            "strategy": BY_METHOD[self.method],
            "value": round(self.accuracy / 100, 4),
            "standard_error": round(self.standard_error / 100, 4),
        }


def _cells(table: int, file: str) -> tuple[PrintedAccuracy, ...]:
    return tuple(
        PrintedAccuracy(
            table,
            row["backbone"],
            row["method"],
            *(float(row[name]) for name in ("epsilon", "accuracy_percent", "standard_error")),
        )
        for row in read_rows(PRINTED / file)
    )


TABLE_1, TABLE_2 = _cells(1, "table1.csv"), _cells(2, "table2_lora.csv")


def printed_of(setting: Mapping[str, Any]) -> list[PrintedAccuracy]:
    """The cells of Table 1, with LoRA of Table 2, for a row of ours; none if they are of others.

    setting: with `data`, `classes`, `architecture`, `pretrained_on` and `lora_rank`.
    """
    data = setting["data"].partition("-")[0], setting["classes"]
    names = [
        name
        for name, (_, _, kind, source) in BACKBONES.items()
        if data == _OUR_DATA
        and kind in setting["architecture"]
        and setting["pretrained_on"] == source
    ]
    table = TABLE_2 if setting["lora_rank"] else TABLE_1
    return [cell for cell in table if cell.backbone in names]


def contradictions(cell: PrintedAccuracy, others: Sequence[PrintedAccuracy]) -> list[str]:
    """How cells of `others` contradict `cell`, in words.

    In its own table: another cell of the same backbone has the same mean. In the other table, for
    the same backbone and method: this epsilon has another mean, or another epsilon has this cell.
    """
    contradicting = []
    for other in others:
        if other == cell or other.backbone != cell.backbone:
            continue
        if other.table == cell.table and other.accuracy == cell.accuracy:
            contradicting.append(f"{other.method} at eps {other.epsilon:g} has the same mean")
        elif other.table != cell.table and other.method == cell.method:
            contradicting += _across_tables(cell, other)
    return contradicting


def _across_tables(cell: PrintedAccuracy, other: PrintedAccuracy) -> list[str]:
    if other.epsilon == cell.epsilon:
        error = math.hypot(cell.standard_error, other.standard_error)
        if abs(cell.accuracy - other.accuracy) > CONTRADICTION * error:
            return [f"Table {other.table} has {other.accuracy:.2f} ± {other.standard_error:.2f}"]
        return []
    same = (cell.accuracy, cell.standard_error) == (other.accuracy, other.standard_error)
    return [f"Table {other.table} has this at eps {other.epsilon:g}"] if same else []
