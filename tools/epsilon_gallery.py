"""Run the commands of docs/epsilon.md and put what they print into the page."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "epsilon.md"
BLOCK = re.compile(
    r"(```console\n\$ python -m dpatlas (?:epsilon|bound) .*?[^\\]\n)(.*?)(```)", re.S
)


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


PAGE.write_text(BLOCK.sub(printed, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
