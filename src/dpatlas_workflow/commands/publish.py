"""`python -m dpatlas publish`: copy the summaries of a run to docs/results, a folder by paper.

Of the tiers embedded, workstation, printed and paper it also writes docs/index.html and the pages
beside it, one by paper, with all of these that are published.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.folders import CONFIG, DOCS, RESULTS
from dpatlas.base.yaml_files import read_yaml
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.commands.data import needed
from dpatlas_workflow.config.atlas import COUNTING, Atlas
from dpatlas_workflow.config.load import load_tier, tiers, validate
from dpatlas_workflow.config.root import General
from dpatlas_workflow.cost.plan import jobs_of, make_plan, targets_of
from dpatlas_workflow.report.page import check_site, write_site
from dpatlas_workflow.report.publish import commit_of, publish


def main(arguments: Sequence[str]) -> int:
    """Publish a tier; refused where the settings carry no verdicts or the run is not complete.

    A run with `partial` says what waits for what.
    """
    parser = ArgumentParser(prog="dpatlas publish", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", required=True, help="folder under the results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of all tiers")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the copy goes")
    options = parser.parse_args(arguments)
    if options.tier in COUNTING:
        check_site(options.docs)
    config = config_of(options.tier, options.results)
    if not config.verdicts:
        raise InputError(
            "--tier", f"{options.tier}, whose numbers mean nothing", "a tier with verdicts: true"
        )
    atlas = Atlas(config, options.results)
    waiting = waiting_of(config, options.results) if config.partial else None
    commit = commit_of(Path.cwd())
    target = publish(atlas.folder, options.docs, behind_of(atlas), waiting, commit)
    print(f"published to {target}: {', '.join([*atlas.figures, *atlas.tables])}")
    if options.tier in COUNTING:
        print(f"{', '.join(COUNTING)}, as far as published: {write_site(options.docs)}")
    return 0


def behind_of(atlas: Atlas) -> dict[str, set[str]]:
    """Ids of the records behind each figure and table of a complete run, by folder and name."""
    return {
        f"{atlas.products[name].folder}/{name}": {Path(p).parent.name for p in atlas.behind(name)}
        for name in (*atlas.figures, *atlas.tables)
    }


def waiting_of(config: General, results: Path) -> list[dict[str, Any]]:
    """The figures and tables of which a partial run lacks some run."""
    atlas = Atlas(config.model_copy(update={"partial": None}), results)
    targets = targets_of(atlas)
    # Without past runs: a busy machine's would scale the hours of all others.
    plan = make_plan(jobs_of(atlas), config.device, (), 1, atlas.tier, targets=targets)
    missing = {file.name for file in needed(atlas) if file.found is None}
    columns = {"name": "target", "place": "place", "runs": "jobs", "there": "done"}
    columns |= {name: name for name in ("cpu_hours", "gpu_hours")}
    waiting = []
    for row in (row for row in plan["targets"] if row["done"] < row["jobs"]):
        files = sorted(missing & _published_files(atlas, row["target"]))
        paths = (Path(path) for path in atlas.behind(row["target"]))
        specs = (atlas.spec(path.parent.name) for path in paths if not path.is_file())
        conditions = dict.fromkeys(spec.condition.rpartition("-")[0] for spec in specs)
        values = {name: row[column] for name, column in columns.items()}
        waiting.append({**values, "files": files, "conditions": [*conditions]})
    return waiting


def _published_files(atlas: Atlas, product: str) -> set[str]:
    """Names, as `needed` has them, of the data sets and weights behind a figure or table."""
    names = set()
    for spec in (atlas.spec(name) for name in atlas.needed_for(product)):
        fields = spec.fields
        names |= {fields[set_]["name"] for set_ in ("data", "public_data") if set_ in fields}
        if fields["kind"] == "imported":
            names |= {f"weights of {spec.slug}", f"weights of {fields['model']}"}
    return names


def config_of(tier: str, results: Path) -> General:
    """The run's own config, which says what it should hold; a tier that ships can do without."""
    path = results / tier / CONFIG
    if not path.is_file():
        if tier not in (shipped := tiers()):
            run = sorted(each.parent.name for each in results.glob(f"*/{CONFIG}"))
            there = f"one with results in {results}: {', '.join(run)}" if run else ""
            others = f"one that ships with the project: {', '.join(shipped)}"
            raise InputError("--tier", repr(tier), "; ".join(filter(None, [there, others])))
        return load_tier(tier)
    config = validate(read_yaml(path))
    if config.tier != tier:
        raise InputError(str(path), f"tier {config.tier}", tier)
    return config
