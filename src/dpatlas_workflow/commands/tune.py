"""`python -m dpatlas tune`: the tunings of a tier; `--write` copies their outcomes to the papers.

`snakemake tune` runs them. Runs whose tuning is in a paper's tuned.yaml take its choice.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.digest import code_digest
from dpatlas.base.files import write_atomic
from dpatlas.base.folders import RESULTS, command
from dpatlas.base.schema import check_shape, validated
from dpatlas.base.yaml_files import read_yaml
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_tier, tiers
from dpatlas_workflow.config.tuned import FILE, Tuned, outcomes, shipped
from dpatlas_workflow.report.publish import commit_of
from dpatlas_workflow.report.tuned import text_of


def main(arguments: Sequence[str]) -> int:
    """List the tunings of a tier, or write their outcomes beside the papers."""
    parser = ArgumentParser(prog="dpatlas tune", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of all tiers")
    parser.add_argument("--write", action="store_true", help="write the papers' tuned.yaml")
    options = parser.parse_args(arguments)
    atlas = Atlas(load_tier(options.tier), options.results)
    if not options.write:
        for name, spec in atlas.tunings.items():
            print(f"{name}: {'runs first' if shipped(spec) is None else 'its choice is shipped'}")
        return 0
    commit = commit_of(Path.cwd())
    # Outcomes that no tier takes any more are left out.
    taken = {name for tier in tiers() for name in Atlas(load_tier(tier)).tunings}
    # All texts are made before one is written: what is refused leaves the papers as they were.
    texts = []
    for key in atlas.tuned_papers:
        path = atlas.blocks[key].folder / FILE
        found = _outcomes(atlas, key, commit)
        kept = {name: each.plain() for name, each in outcomes(path).items() if name in taken}
        texts.append((path, text_of({**kept, **found})))
    for path, text in texts:
        write_atomic(path, text)
        print(path)
    return 0


def _outcomes(atlas: Atlas, key: str, commit: str | None) -> dict[str, dict[str, Any]]:
    """Outcomes of a paper's tunings by the code of this commit.

    Raises InputError for a file of other content, for a tuning that is missing, and for one by
    other code than the commit's.
    """
    source, again = Path(atlas.tuned_file(key)), command("tune", atlas.tier)
    if commit is None or " " in commit:
        raise InputError("code", commit or "no commit", "a commit without changes: git commit")
    if not source.is_file():
        raise InputError(str(source), "no such file", f"all tunings: {again}")
    content = read_yaml(source)
    check_shape(content)
    written = content.get("tuned")
    if isinstance(written, dict):
        # Their runs know of no commit.
        content["tuned"] = {
            name: {"commit": commit, **each} if isinstance(each, dict) else each
            for name, each in written.items()
        }
    found = validated(Tuned, content, place=f"{source}: ").tuned
    for name in atlas.tunings_of(key):
        if name not in found:
            raise InputError(str(source), f"no {name}", f"all tunings: {again}")
        kind = atlas.job(name).fields.kind
        now = code_digest(atlas.blocks[key].job_module(kind))
        if found[name].code != now:
            made = f"{name} by code {found[name].code}"
            raise InputError(str(source), made, f"{now}, the commit's: {again}")
    return {name: found[name].plain() for name in atlas.tunings_of(key)}
