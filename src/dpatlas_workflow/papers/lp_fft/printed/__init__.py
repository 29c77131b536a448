"""The printed tables of lp_fft, and which of our rows belong beside them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dpatlas.base.files import read_rows
from dpatlas_workflow.evidence.printed import Pairs, PrintedComparison, Rows, estimate, is_same_data

HERE = Path(__file__).parent
PERCENT = 100
# The share of LP in Table 1, 5 of 20 epochs.
LP_SHARE = 0.25
# The paper's backbones by what the name of ours has; of another kind ours stands for ResNet18, or
# with LoRA for the transformer.
FAMILIES = {"resnet18": "ResNet18", "mobilenet": "MobileNet-v3", "deit": "Mini-DeiT-Ti"}


def _strategies(rows: Rows) -> Iterator[PrintedComparison]:
    """Tables 1 and 2 of lp_fft, where noise or epsilon are the printed ones."""
    (data,) = read_rows(HERE / "data.csv")
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
                yield PrintedComparison(
                    f"{cell['backbone']}, {row['strategy']}, epsilon {epsilon}: accuracy, %",
                    PERCENT * float(cell["value"]),
                    PERCENT * float(cell["standard_error"] or 0),
                    f"{row['scenario']}: {row['data']}, {row['backbone']}",
                    estimate(row, "value", "standard_error", PERCENT),
                    same_data=is_same_data(data, row),
                )


def _same_privacy(cell: Mapping[str, str], row: Mapping[str, str]) -> bool:
    if not cell["printed_epsilon"]:
        return row["noise_multiplier"] != "" and float(row["noise_multiplier"]) == 0
    if row["target_epsilon"]:
        return float(row["target_epsilon"]) == float(cell["printed_epsilon"])
    return row["noise_multiplier"] == cell["noise_multiplier"] != ""


TABLES: Mapping[str, Pairs] = {"lpfft_strategies": _strategies, "lpfft_lora": _strategies}
