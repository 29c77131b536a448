"""The pages that compare this engine with Opacus say what the installed versions do."""

import re
import subprocess
import sys
from pathlib import Path

import adversarial
import beside
import beside_accuracy
import opacus
import pytest
import torch
from torch import nn

DOCS = Path(__file__).parents[1] / "docs"


def rows():
    """{input: cells by tool} of the table of inputs."""
    page = (DOCS / "beside.md").read_text(encoding="utf-8")
    table = re.search(r"<!-- inputs -->\n(.*?)<!-- /inputs -->", page, re.S)[1]
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    return {title: dict(zip(lines[0][1:], cells, strict=True)) for title, *cells in lines[2:]}


TABLE = rows()
TITLES = [*adversarial.CASES, *adversarial.OTHERS]


def test_the_table_has_a_row_for_every_input_and_a_column_for_every_tool():
    assert list(TABLE) == TITLES
    for cells in TABLE.values():
        assert list(cells) == [*adversarial.TOOLS, *beside.ELSEWHERE]


# Records that move others, which others take, are refused; looked at first.
QUICK = ("contrastive loss", "`x - x[:1]` inside the network")


@pytest.mark.parametrize(
    "title",
    [pytest.param(title, marks=[pytest.mark.slow] * (title not in QUICK)) for title in TITLES],
)
def test_our_column_is_what_the_engine_does(title):
    assert beside.cell(adversarial.outcome(title, "dpatlas")) == TABLE[title]["dpatlas"]


@pytest.mark.slow
@pytest.mark.skipif(opacus.__version__ != "1.6.0", reason="the page names Opacus 1.6.0")
@pytest.mark.parametrize("tool", adversarial.TOOLS[1:])
@pytest.mark.parametrize("title", TITLES)
def test_the_columns_of_opacus_are_what_it_does(title, tool):
    outcome = adversarial.outcome(title, tool)
    assert outcome.kind == TABLE[title][tool].split(":")[0]


@pytest.mark.parametrize("tool", adversarial.TOOLS)
@pytest.mark.parametrize("case", beside.EQUAL, ids=lambda case: case.title)
def test_clipped_sums_are_those_of_autograd_one_record_at_a_time(case, tool):
    assert 20 < beside.reference(case, case.clip)[1] < 44
    assert beside.reference(case, beside.NO_CLIP)[1] == 0
    assert beside.distance(case, tool, beside.NO_CLIP) < 1e-6
    # Ours clips by an upper bound on the norm, Opacus adds 1e-6 to it.
    assert beside.distance(case, tool, case.clip) < 1e-4


def test_a_bound_that_is_not_kept_shows():
    """The measure itself: a record twice as long as the clip bound moves a sum by 2 C."""
    case = adversarial.CASES["frames folded into the batch, outputs pooled"]
    assert adversarial.measured(case, "Opacus hooks").text == "16 C of C"


@pytest.mark.parametrize("name", beside.SCRIPTS)
def test_the_page_shows_our_script_and_has_the_lines_of_both(name):
    page = (DOCS / "migrate.md").read_text(encoding="utf-8")
    code = (DOCS / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert name == beside.OPACUS or f"```python\n{code.rstrip()}\n```" in page
    assert re.search(rf"\b{len(code.splitlines())}\b", page), "number of lines"


@pytest.mark.slow
def test_both_scripts_train_to_the_same_epsilon():
    epsilons = []
    for name in beside.SCRIPTS:
        command = [sys.executable, "-W", "ignore", str(DOCS / "examples" / f"{name}.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-800:]
        found = re.search(r"^epsilon (\S+), accuracy (\S+)$", done.stdout, re.M)
        epsilons.append(float(found[1]))
        assert float(found[2]) > 0.6
    theirs, ours = epsilons
    assert abs(theirs - ours) < 0.02
    assert max(epsilons) <= 3.0


@pytest.mark.slow
def test_equal_settings_give_equal_epsilons_and_networks_that_learn():
    draws = torch.Generator().manual_seed(0)
    x, directions = (torch.randn(*shape, generator=draws) for shape in ((600, 8), (8, 3)))
    y = (x @ directions).argmax(1)
    stated = []
    for train in beside_accuracy.TOOLS.values():
        model = nn.Linear(8, 3)
        epsilon = train(model, (x, y, x, y), 60, 60, 1.0, 1.0)
        assert (model(x).argmax(1) == y).float().mean() > 0.8
        stated.append(epsilon())
    assert stated[0] == pytest.approx(stated[1], rel=0.01)
