"""Send the adversarial inputs through every tool and put the tables into docs/beside.md.

python tools/beside.py [--opake PYTHON] [--jax PYTHON]    (three minutes; each PYTHON is an
interpreter that has the tool, without which its column says so. The scripts of docs/migrate.md are
copied into the page, too.)
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))
import adversarial  # noqa: E402
from adversarial import Apply, Case, normals, removed  # noqa: E402
from peer_errors import brief  # noqa: E402

NOT_TRIED = "not tried"
# Tools that have an interpreter of their own, and what sends the inputs through them.
ELSEWHERE = {"opake": "adversarial_opake.py", "jax-privacy": "adversarial_jax.py"}
# Two scripts that train to the same epsilon; the page shows the second.
SCRIPTS = OPACUS, OURS = "digits_opacus", "digits_dpatlas"


def convolutions() -> nn.Module:
    """Two convolutions with GroupNorm."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 3),
    )


def positions() -> nn.Module:
    """Linear layers and LayerNorm over 16 positions."""
    return nn.Sequential(
        nn.Linear(8, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        nn.Linear(64, 64),
        Apply(lambda rows: rows.mean(1)),
        nn.Linear(64, 3),
    )


# Clip bounds at which about half of the 64 records are clipped, and one that clips none.
EQUAL = (
    Case("softmax regression", lambda: nn.Linear(8, 3), *removed(normals(64, 8)), clip=2.2),
    Case("convolutions, GroupNorm", convolutions, *removed(normals(64, 3, 16, 16)), clip=8.4),
    Case("linear, LayerNorm over positions", positions, *removed(normals(64, 16, 8)), clip=2.2),
)
NO_CLIP = 1e4


def input_rows(elsewhere: Mapping[str, Mapping[str, Sequence[str]] | None]) -> list[str]:
    """The table of adversarial inputs; elsewhere: {tool: {input: (kind, text)}}, or None."""
    tools = [*adversarial.TOOLS, *elsewhere]
    lines = [f"| input | {' | '.join(tools)} |", "|---" * (len(tools) + 1) + "|"]
    for title in (*adversarial.CASES, *adversarial.OTHERS):
        cells = [cell(adversarial.outcome(title, tool)) for tool in adversarial.TOOLS]
        for outcomes in elsewhere.values():
            if outcomes is None:
                cells.append("not run")
            elif title in outcomes:
                cells.append(cell(adversarial.Outcome(*outcomes[title])))
            else:
                cells.append(NOT_TRIED)
        lines.append(f"| {title} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def by_interpreter(python: str | None, script: str) -> dict[str, list[str]] | None:
    """What a script of the examples prints under an interpreter; None without one."""
    if python is None:
        return None
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [python, "-W", "ignore", str(EXAMPLES / script)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    outcomes: dict[str, list[str]] = json.loads(done.stdout)
    return outcomes


def cell(outcome: adversarial.Outcome) -> str:
    """Messages in few words; what a record moves, of what it may, in units of C."""
    if re.match(r"\w+Error: ", outcome.text):
        return f"{outcome.kind}: {brief(outcome.text)}"
    moves = re.sub(r" C of (2?) ?C", lambda may: f" of {may[1] or 1}", outcome.text)
    return f"{outcome.kind}: {moves}"


def sum_rows() -> list[str]:
    """The distance of the tools' clipped sums from those of `reference`, relative to their norm."""
    heads = ["network", "records clipped", *adversarial.TOOLS]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case in EQUAL:
        for clip in (NO_CLIP, case.clip):
            cells = [f"{distance(case, tool, clip):.0e}" for tool in adversarial.TOOLS]
            lines.append(f"| {case.title} | {reference(case, clip)[1]} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines


def distance(case: Case, tool: str, clip: float) -> float:
    """From the reference, relative to its norm."""
    exact, _ = reference(case, clip)
    found = adversarial.clipped_sum(case, tool, case.x, clip)
    return float((found - exact).norm() / exact.norm())


def reference(case: Case, clip: float) -> tuple[torch.Tensor, int]:
    """The clipped sum by autograd in float64, one record at a time, and how many were clipped."""
    torch.manual_seed(0)
    model, total, clipped = case.make().double(), torch.zeros(()), 0
    for number, x in enumerate(case.x.double()):
        loss = case.loss(model(x[None]), torch.tensor([number % case.labels])).sum()
        gradient = adversarial.flat(torch.autograd.grad(loss, list(model.parameters())))
        norm = float(gradient.norm())
        total = total + gradient * min(1.0, clip / norm)
        clipped += norm > clip
    return total, clipped


def put(page: str, mark: str, lines: Sequence[str]) -> None:
    """Replace what stands between the marks of a page."""
    path = ROOT / "docs" / page
    between = rf"<!-- {mark} -->.*<!-- /{mark} -->"
    fresh = "\n".join([f"<!-- {mark} -->", *lines, f"<!-- /{mark} -->"])
    text, count = re.subn(between, lambda _: fresh, path.read_text("utf-8"), flags=re.S)
    if count != 1:
        raise SystemExit(f"docs/{page} has the marks of {mark} {count} times")
    path.write_text(text, "utf-8")


def main(words: Sequence[str]) -> None:
    """Measure, and write both pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--opake", metavar="PYTHON")
    parser.add_argument("--jax", metavar="PYTHON", dest="jax_privacy")
    given = vars(parser.parse_args(words))
    warnings.filterwarnings("ignore")
    code = (EXAMPLES / f"{OURS}.py").read_text("utf-8").rstrip()
    put("migrate.md", OURS, ["```python", code, "```"])
    elsewhere = {
        tool: by_interpreter(given[tool.replace("-", "_")], script)
        for tool, script in ELSEWHERE.items()
    }
    put("beside.md", "sums", sum_rows())
    put("beside.md", "inputs", input_rows(elsewhere))


if __name__ == "__main__":
    main(sys.argv[1:])
