"""One exact claim before the rest has run: `python -m dpatlas_workflow.evidence.first`.

It runs the tests of the claim's errata, judges the claim on its own records, and writes claims.csv
with its rows and finding.txt, what was found in a sentence that the paper's `claims` words.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.files import write_atomic
from dpatlas.errors import ArgumentParser, InputError, RunError, run_command
from dpatlas_workflow.evidence.claim_file import at_tier, read_claims
from dpatlas_workflow.evidence.claims import judge_claims, read_papers, write_claims
from dpatlas_workflow.evidence.errata import read_errata
from dpatlas_workflow.evidence.verdicts import CLAIMS
from dpatlas_workflow.registry import block_of

FINDING = "finding.txt"
TESTS = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def main(arguments: Sequence[str]) -> int:
    """Judge a claim alone; RunError if one of its tests fails."""
    parser = ArgumentParser(prog="python -m dpatlas_workflow.evidence.first", description=__doc__)
    parser.add_argument("--claim", required=True, help="a claim whose parts read one group each")
    parser.add_argument("--tier", required=True)
    parser.add_argument("--without-verdicts", action="store_true", help="settings mean nothing")
    parser.add_argument("--figure", required=True, help="path of the figure that shows it")
    parser.add_argument("--records", required=True, nargs="+", type=Path, help="of that group")
    parser.add_argument("--output", required=True, type=Path, help="folder to write to")
    options = parser.parse_args(arguments)
    claims = at_tier(read_claims(), options.tier)
    claim = next((each for each in claims.claims if each.id == options.claim), None)
    if claim is None:
        raise InputError("--claim", options.claim, "the id of a claim")
    tests = [
        test
        for erratum in read_errata()[claim.paper]
        if claim.id in erratum.claims
        for test in erratum.shown_by
    ]
    if subprocess.run([*TESTS, *tests], check=False).returncode:
        raise RunError(f"a test of {claim.id} fails: see the lines above")
    ids = [path.parent.name for path in options.records]
    groups = {entry.arguments["group"]: ids for entry in claim.entries}
    papers = read_papers({claim.paper: {"groups": groups}}, options.records)
    own = {claim.id, *(entry.id for entry in claim.entries)}
    judged = judge_claims(claims, papers, options.tier, verdicts=not options.without_verdicts)
    rows = {row["claim"]: row for row in judged if row["claim"] in own}
    finding = block_of(claim.paper).load("claims").FINDINGS[claim.id]
    write_claims(options.output / CLAIMS, list(rows.values()))
    lines = [
        finding({name: row["observed"] for name, row in rows.items()}),
        f"{claim.id} ({claim.statement.removesuffix('.')}): {rows[claim.id]['verdict']}; "
        f"{len(tests)} tests passed",
        f"figure: {options.figure}",
    ]
    write_atomic(options.output / FINDING, "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
