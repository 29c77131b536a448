"""Measure the models of docs/examples/model_catalogue.py and put the table into docs/models.md.

python tools/models_elsewhere.py [PART OF A NAME]    (10 minutes; needs requirements-models.lock;
with a name, prints these rows alone.) Each number is of a process of its own, on one thread:
seconds and peak memory above the start of building a training, and the CPU seconds of a step on 16
records, the median of 5, of which the table shows ratios.
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import json
import os
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "examples"))
from model_catalogue import CASES, LARGE, Case, Made  # noqa: E402
from peer_errors import brief  # noqa: E402

from dpatlas.accounting.samplers import FullBatch  # noqa: E402
from dpatlas.base.seeds import Noise  # noqa: E402
from dpatlas.privacy.phases import TrainingPhase  # noqa: E402
from dpatlas.privacy.trace import called  # noqa: E402
from dpatlas.privacy.training import PrivateTraining  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
RECORDS, STEPS, MEGA = 16, 5, 2**20


def memory(name: str) -> int:
    """Bytes of memory of this process: VmRSS for now, VmHWM for the most since `forget_peak`."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", status)[0])


def forget_peak() -> int:
    """Begin to look for the most memory anew; what there is now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return memory("VmRSS")


def seconds(step: Callable[[], Any]) -> float:
    """CPU seconds of a step: the median, after one that is not counted."""
    times = []
    for _ in range(STEPS + 1):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def private(made: Made) -> dict[str, Any]:
    """Building a training, and its steps."""
    small = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 3))
    training_of(Made(small, torch.randn(RECORDS, 4), torch.zeros(RECORDS, dtype=torch.long)))
    start, before = time.process_time(), forget_peak()
    plan = [TrainingPhase(FullBatch(RECORDS), 1.0, max_grad_norm=1.0, steps=STEPS + 1, lr=0.01)]
    training = PrivateTraining(made.model, plan, made.x, made.labels, noise=Noise(), loss=made.loss)
    build, most = time.process_time() - start, memory("VmHWM") - before
    return {"build": build, "memory": most, "step": seconds(training.step)}


def training_of(made: Made) -> PrivateTraining:
    """A training on full batches."""
    plan = [TrainingPhase(FullBatch(RECORDS), 1.0, max_grad_norm=1.0, steps=STEPS + 1, lr=0.01)]
    return PrivateTraining(made.model, plan, made.x, made.labels, noise=Noise(), loss=made.loss)


def plain(made: Made) -> dict[str, Any]:
    """Steps without privacy, and the memory of the first two."""
    step = plain_step(made)
    before = forget_peak()
    step()
    step()
    most = memory("VmHWM") - before
    return {"memory": most, "step": seconds(step)}


def plain_step(made: Made) -> Callable[[], None]:
    """SGD on the mean loss."""
    trained = [value for value in made.model.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        made.loss(called(made.model, made.x), made.labels).mean().backward()
        optimizer.step()

    return step


def opacus(made: Made) -> dict[str, Any]:
    """Steps of Opacus with its hooks: GradSampleModule and DPOptimizer, with its own layers."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator

    if any(isinstance(m, nn.RNNBase | nn.MultiheadAttention) for m in made.model.modules()):
        made = made._replace(model=ModuleValidator.fix(made.model))
    for module in made.model.modules():
        # Which its hooks do not go with.
        if hasattr(module, "inplace"):
            module.inplace = False
    model = GradSampleModule(made.model)
    trained = [value for value in model.parameters() if value.requires_grad]
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": RECORDS}
    optimizer = DPOptimizer(torch.optim.SGD(trained, lr=0.01), **settings)

    def step() -> None:
        optimizer.zero_grad()
        losses = made.loss(called(model, made.x), made.labels)
        # A loss that the model makes is the mean already.
        losses.mean().backward()
        optimizer.step()

    return {"step": seconds(step)}


def apart(case: Case, measure: Callable[[Made], dict[str, Any]]) -> dict[str, Any]:
    """What `measure` finds in a process of its own, forked; "error" with its first line."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.manual_seed(0)
            made = case.make(RECORDS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = measure(made)
        except Exception as error:  # a stranger's package may raise anything
            text = " ".join(str(error).split())
            found = {"error": f"{type(error).__name__}: {text[:90]}"}
        os.write(writes, json.dumps(found).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as told:
        text = told.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process ended"}


def row(case: Case) -> str:
    """A line of the table."""
    ours, theirs, without = (apart(case, measure) for measure in (private, opacus, plain))
    if "error" in ours:
        return line(case, ours["error"], "", "", "", "")
    ratio = ours["step"] / without["step"]
    refused = "error" in theirs and f"no: {brief(theirs['error'])}".replace("|", "/")
    return line(
        case,
        f"{ours['build']:.1f}",
        f"{ours['memory'] / MEGA:.0f} ({max(0, without['memory']) / MEGA:.0f})",
        f"{1e3 * without['step']:.3g}",
        f"{ratio:.2g}",
        refused or format(theirs["step"] / without["step"], ".2g"),
    )


def line(case: Case, *cells: str) -> str:
    """The model, how it is trained, and its numbers."""
    return f"| {' | '.join((case.name, case.use, *cells))} |"


HEAD = (
    "|model|how|build, s|MB (2 plain steps)|plain step, ms|ours|Opacus|",
    "|---|---|---|---|---|---|---|",
)


def warm_up() -> None:
    """Import what a first use imports; no gradients, with which a forked process cannot go on."""
    import opacus.optimizers  # noqa: F401
    import torch._dynamo  # noqa: F401

    for case in [*CASES, *LARGE]:
        if case.installed and case.package:
            case.make(1)


def main(wanted: str = "") -> None:
    """Measure, print, and write the page unless rows were named."""
    warm_up()
    lines = list(HEAD)
    print(*HEAD, sep="\n")
    for case in [*CASES, *LARGE]:
        if case.installed and wanted.lower() in case.name.lower():
            lines.append(row(case))
            print(lines[-1], flush=True)
    if not wanted:
        inside = "\n".join(["<!-- models -->", *lines, "<!-- /models -->"])
        text = PAGE.read_text(encoding="utf-8")
        between = "<!-- models -->.*<!-- /models -->"
        text = re.sub(between, lambda _: inside, text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
