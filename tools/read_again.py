"""Read the published verdicts again by today's claims.yaml files, without any record.

python tools/read_again.py [TIER ...]    (all published tiers without names)

It writes claims.csv, README.md and manifest.json of each tier, comparisons.csv where the runs of a
changed entry were judged again, and docs/index.html. read_again.yaml beside this file has a
`dpatlas.report.read_again.Rule` by entry. The commit that a manifest then names has the claims.yaml
files of HEAD.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from dpatlas.config.load import project_root
from dpatlas.config.model import validated
from dpatlas.core.files import read_rows, write_atomic, write_json
from dpatlas.core.folders import DOCS
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas.evidence.claims import COMPARISON_COLUMNS, at_tier, read_claims, write_claims
from dpatlas.evidence.verdicts import CLAIMS, COMPARISONS, read_comparisons
from dpatlas.report.lineage import MANIFEST
from dpatlas.report.page import write_site
from dpatlas.report.publication import README, read_publication
from dpatlas.report.publish import commit_of, readme
from dpatlas.report.read_again import Rule, questions, read_again
from dpatlas.report.state import file_sha256
from dpatlas.report.verify import published_differences


def main(arguments: Sequence[str]) -> int:
    """Read the tiers again; refused where src differs from HEAD or a publication was edited."""
    parser = ArgumentParser(prog="python tools/read_again.py", description=__doc__)
    parser.add_argument("tiers", nargs="*", metavar="TIER")
    options = parser.parse_args(arguments)
    status = ["git", "status", "--porcelain", "--", "src"]
    root = project_root()
    if changes := subprocess.run(status, cwd=root, capture_output=True, text=True).stdout:
        raise InputError("src", changes.splitlines()[0], "the files of a commit")
    commit = (commit_of(root) or "").split()[0]
    written = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    rules = {name: validated(Rule, rule, place=f"{name}: ") for name, rule in written.items()}
    docs = root / DOCS
    for tier in options.tiers or sorted(path.parent.name for path in docs.glob(f"*/{MANIFEST}")):
        print(f"{tier}: {read_tier(docs / tier, commit, rules)}")
    write_site(docs)
    return 0


def read_tier(folder: Path, commit: str, rules: dict[str, Rule]) -> str:
    """Read one publication again; returns what became of entries that changed."""
    if slips := published_differences(folder):
        raise InputError(str(folder), slips[0], "a publication as it was made")
    manifest, tier = read_publication(folder / MANIFEST), folder.name
    then = questions(tier, manifest.get("asked", manifest["commit"]).split()[0])
    changed = {name for name, asked in questions(tier).items() if then.get(name) != asked}
    reading = read_again(
        at_tier(read_claims(), tier),
        read_rows(folder / CLAIMS),
        read_comparisons(folder),
        changed,
        rules,
        manifest["files"],
    )
    write_claims(folder / CLAIMS, reading.rows)
    if reading.judged and COMPARISONS in manifest["files"]:
        write_claims(folder / COMPARISONS, reading.compared, COMPARISON_COLUMNS)
    before = manifest.get("read_again", {"judged": [], "withdrawn": []})
    done = {"judged": reading.judged, "withdrawn": reading.withdrawn}
    manifest["asked"] = commit
    manifest["read_again"] = {"commit": commit} | {
        what: sorted({*before[what], *names}) for what, names in done.items()
    }
    for name in {CLAIMS, COMPARISONS} & manifest["files"].keys():
        manifest["files"][name] = file_sha256(folder / name)
    files = {name: (folder / name).read_bytes() for name in manifest["files"]}
    write_atomic(folder / README, readme(manifest, files, read_rows(folder / CLAIMS)))
    write_json(folder / MANIFEST, manifest)
    return f"judged again: {reading.judged}; withdrawn: {reading.withdrawn}"


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
