"""`python -m dpatlas bench`: our kernels beside a plain step and beside peers."""

import argparse
import importlib.util
import json
from collections.abc import Sequence
from typing import Any

from dpatlas.base.guard import integer, one_of
from dpatlas.bench.kernels import KERNELS, Kernel
from dpatlas.bench.race import race
from dpatlas.errors import ArgumentParser, InputError

EPILOG = """\
Candidates take turns, each in a process of its own, on one thread. Ratios are of CPU time, to the
candidate `plain` of the same case and round; memory is the peak resident size less the size after
set-up. `same products` is the ratio to the plain step with the same matrix product routine. In the
race `kl`, peers that materialise per-record gradients run on a share of the records and are scaled
up; elsewhere a candidate that needs too much memory for a case is left out. On a GPU (--device
cuda) there are further cases, ratios are of wall time between two waits for the GPU, and memory is
the peak of torch's allocations."""
REPEATS = 7


def main(arguments: Sequence[str]) -> int:
    """Run the sub-command; InputError for an unknown kernel or case and for other repeats."""
    parser = ArgumentParser(
        prog="dpatlas bench",
        description="\n".join(f"{name}: {kernel.sentence}" for name, kernel in KERNELS.items()),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("no torch to time", name="torch")
    parser.add_argument("kernel", help=", ".join(KERNELS))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="N", help="rounds per case")
    parser.add_argument(
        "--case", action="append", metavar="CASE", help="only this case; repeatable"
    )
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    options = parser.parse_args(arguments)
    one_of(*KERNELS).check("bench kernel", options.kernel)
    kernel = KERNELS[options.kernel]
    integer(ge=1).check("--repeats", options.repeats)
    if options.device not in ("cpu", "cuda"):
        raise InputError("--device", repr(options.device), "cpu or cuda")
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("--device", "'cuda' without a usable GPU", "cpu")
    cases = kernel.cases_on(options.device)
    names = options.case or list(cases)
    for name in names:
        one_of(*cases).check("--case", name)
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        candidates = kernel.candidates_on(options.device, name)
        rows += race(kernel.module, name, cases[name], candidates, options.repeats)
    if options.json:
        print(json.dumps({"kernel": options.kernel, "cases": rows}, allow_nan=False))
    else:
        print(table(kernel, rows))
    return 0


def table(kernel: Kernel, rows: list[dict[str, Any]]) -> str:
    """The rows for a reader: both time ratios with their spread, memory, and who is who."""
    shown = [row for row in rows if "left_out" not in row]
    clock = "gpu_s" if any("gpu_s" in row for row in rows) else "cpu_s"
    seconds = {"cpu_s": "CPU s", "gpu_s": "GPU s"}[clock]
    head = ["case", "candidate", "time / plain", "same products", "memory", "extra MB", seconds]
    body = [
        [
            row["case"],
            row["candidate"],
            _spread(row["time_ratio"]),
            _spread(row["time_ratio_same_products"]),
            "-" if row["memory_ratio"] is None else f"{row['memory_ratio']:.2f}",
            f"{row['memory_mb']:.0f}",
            f"{row[clock]:.3g}",
        ]
        for row in shown
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = [
        "  ".join(
            # Names to the left, numbers to the right.
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *body]
    ]
    longest = max(len(candidate.name) for candidate in kernel.candidates)
    legend = [f"{who.name:<{longest}}  {who.sentence}" for who in kernel.candidates]
    absent = [f"{row['case']}: {row['left_out']}" for row in rows if "left_out" in row]
    return "\n".join([*lines, "", *legend, *absent])


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3g} [{ratio['min']:.3g}, {ratio['max']:.3g}]"
