"""Run what docs/epsilon.md shows: its commands, and the claims of its table of printed epsilons."""

import re
import subprocess
import sys
from pathlib import Path

from dpatlas.base.rounding import downward, upward
from dpatlas.commands.epsilon import read_file
from dpatlas.epsilon.check import check
from dpatlas.epsilon.claim import EpsilonClaim
from dpatlas.epsilon.report import REFUTED
from dpatlas.epsilon.valid import NAMES

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "epsilon.md"
CLAIMS = read_file(str(DOCS / "examples" / "printed_epsilons.yaml"), "printed_epsilons.yaml")
BLOCK = re.compile(
    r"(```console\n\$ python -m dpatlas (?:epsilon|bound) .*?[^\\]\n)(.*?)(```)", re.S
)
TABLE = re.compile(r"(?<=<!-- printed -->\n).*(?=<!-- /printed -->)", re.S)
HEADER = [
    "| printed by | settings | printed | verdict | odds: what gives it |",
    "|---|---|---|---|---|",
]


def printed(block: re.Match[str]) -> str:
    """The block with the present output of its command."""
    words = block.group(1).partition("dpatlas ")[2].replace("\\\n", " ").split()
    run = subprocess.run(
        [sys.executable, "-m", "dpatlas", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode not in (0, 1) or run.stderr:
        sys.exit(run.stderr)
    return block.group(1) + run.stdout + block.group(3)


def row(claim: EpsilonClaim) -> str:
    """A claim in a line of the table."""
    report = check(claim)
    where, _, settings = claim.name.partition(": ")
    best, found = report.tightest, report.searched
    assert claim.claimed is not None and best is not None and found is not None
    verdict = f"{report.verdict}: {NAMES[best.accountant]} {upward(best.epsilon)}"
    if report.verdict == REFUTED:
        verdict += f", at least {downward(min(filter(None, report.least.values())))}"
    causes = [
        f"{hit.odds:.1g}: {'; '.join([*(hit.changes or ['as stated']), hit.convention])}"
        for hit in found.hits
    ] or ["no better than chance" if found.by_chance else "no known slip"]
    cells = (
        f"[{where}]({claim.source})" if claim.source else where,
        settings,
        claim.claimed.text,
        verdict,
        "<br>".join(causes),
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    page = BLOCK.sub(printed, PAGE.read_text(encoding="utf-8"))
    table = "".join(f"{line}\n" for line in [*HEADER, *map(row, CLAIMS)])
    PAGE.write_text(TABLE.sub(lambda _: table, page), encoding="utf-8")
