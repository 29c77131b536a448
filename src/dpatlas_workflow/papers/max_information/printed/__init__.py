"""The printed tables of max_information, and which of our rows belong beside them."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpatlas.base.files import read_rows
from dpatlas_workflow.evidence.printed import Pairs, PrintedComparison, Rows
from dpatlas_workflow.statistics import Estimate

HERE = Path(__file__).parent
# Spreads are printed over so many runs.
PRINTED_RUNS = 3
DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
PRIORS = {"independent": "data-independent", "dp-sgd": "DP-SGD"}
QUANTITIES = {
    "risk_prior": "risk_prior",
    "certificate_prior": "bound_prior",
    "risk_posterior": "risk_posterior",
    "kl": "kl",
    "certificate_posterior": "bound_posterior",
}


def _certificates(rows: Rows) -> Iterator[PrintedComparison]:
    """Tables 1 to 3 of max_information."""
    printed = read_rows(HERE / "tables2_3.csv")
    for row in rows:
        if row["part"] != "ours" or row["prior"] not in PRIORS:
            continue
        # Other data stand for MNIST.
        data = DATA.get(row["data"], "MNIST")
        for ours, theirs in QUANTITIES.items():
            for cell in printed:
                found = (cell["dataset"], cell["prior"], cell["quantity"])
                if found == (data, PRIORS[row["prior"]], theirs):
                    yield PrintedComparison(
                        f"{data}, {cell['prior']} prior: {theirs.replace('_', ' of ')}",
                        float(cell["mean"]),
                        float(cell["std"]) / math.sqrt(PRINTED_RUNS),
                        f"{row['data']}, {row['model']}",
                        _spread(row, ours),
                        PRINTED_RUNS - 1,
                        same_data=row["data"] in DATA,
                    )


def _spread(row: Mapping[str, str], name: str) -> Estimate:
    """Of a mean whose standard deviation over runs is in the csv."""
    runs = int(row["runs_used"])
    error = float(row[f"{name}_std"]) / math.sqrt(runs) if runs > 1 else math.inf
    return Estimate(float(row[f"{name}_mean"]), error, max(runs - 1.0, 1.0), runs)


TABLES: Mapping[str, Pairs] = {"maxinf_certificates": _certificates}
