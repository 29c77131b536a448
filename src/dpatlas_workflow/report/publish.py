"""Publish a run: copy its summaries, never its raw records, after checking that they are whole.

Each paper of the run gets a folder of its own below docs/results/TIER, in the place of an earlier
one: manifest.json, README.md, claims.csv, comparisons.csv, figures (pdf, png, csv, json), tables
(csv, md, tex), the effective config, more_runs.json. Papers that are no part of the run stay as
they are. Of a partial run what it shows has to be whole, and README.md says what waits for what:
so a tier of many hours is run a figure at a time, in one results folder.
"""

import subprocess
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2

from dpatlas.base.canonical import sha256
from dpatlas.base.files import check_writable, read_rows, replacing_folder, write_atomic, write_json
from dpatlas.base.folders import MORE_RUNS
from dpatlas.base.progress import duration
from dpatlas.errors import InputError
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.evidence.printed import printed_comparisons
from dpatlas_workflow.evidence.verdicts import CLAIMS, COMPARISONS, OURS, counted, read_comparisons
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.report import state
from dpatlas_workflow.report.index import (
    MANIFEST,
    README,
    SUFFIXES,
    Content,
    Index,
    Node,
    block_key,
    cost_beside,
    job_module,
    product_node,
    publications,
    read_lineage,
    read_publication,
    short_digest,
)
from dpatlas_workflow.report.manifest import VERDICTS, require_numbers_as_made
from dpatlas_workflow.report.printed_rows import cell, printed_lines
from dpatlas_workflow.report.published_tier import by_paper, published_parts, write_beside
from dpatlas_workflow.report.state import RERUN, file_sha256, require_as_made, unnamed
from dpatlas_workflow.report.text import days

# Tiers with the papers' own data and sizes.
AS_PRINTED = ("printed", "printed-caption", "printed-stages", "paper")
# Conditions that README.md names of a figure or table that waits; manifest.json names all.
MOST_NAMED = 8
# What a complete run shows: ids of the records behind each of its figures and tables, by folder and
# name.
Behind = Mapping[str, Collection[str]]


def publish(
    run: Path,
    docs: Path,
    behind: Behind,
    waiting: Sequence[Content] | None = None,
    commit: str | None = None,
) -> Path:
    """Copy the run in `run` to `docs`/<tier>, whole or not at all; returns that folder.

    waiting: of a partial run the figures and tables that lack runs: `name`; `place` in the paper;
    `runs`, with tunings and backbones, and how many are `there`; `cpu_hours` and `gpu_hours`,
    estimated, of the missing ones, where a job on a GPU counts in both; `files`, published data
    sets and weights that are not on this machine; `conditions` of which runs are missing. commit:
    of the code.

    Raises InputError, naming the first thing that is missing, stale or edited, for a run that is
    not complete, and where `docs` has what no publication wrote, or what a partial run lacks.
    """
    tier, target = run.name, docs / run.name
    check_writable(docs)
    require_replaceable(target)
    nodes = complete_run(run, behind)
    manifest = {"tier": tier, "commit": commit, **_manifest(Index(run), nodes)}
    manifest |= {} if waiting is None else {"waiting": [*waiting]}
    made, earlier = by_paper(manifest, run, files_of(behind)), Index(target).products
    for key, (part, _) in [*made.items()] if waiting is not None else ():
        before = {name for name in earlier if block_key(earlier[name].module) == key}
        lost = (before & all_products().keys()) - part["products"].keys()
        if lost and part["products"]:
            found = f"{min(lost)}, of which this partial run lacks records"
            raise InputError(str(target / key), found, "records of both, or a tier of another name")
        if lost:
            del made[key]
    with replacing_folder(target) as fresh:
        for key, (part, files) in {**published_parts(target, made), **made}.items():
            for path, content in files.items():
                write_atomic(fresh / key / path, content)
            part["files"] = {path: sha256(content) for path, content in files.items()}
            write_atomic(fresh / key / README, readme(part, fresh / key))
            write_json(fresh / key / MANIFEST, part)
        write_beside(fresh, tier)
    return target


def files_of(behind: Behind) -> list[str]:
    """Every file of a figure or table that is published."""
    return [f"{name}.{suffix}" for name in behind for suffix in SUFFIXES[name.partition("/")[0]]]


def require_replaceable(target: Path) -> None:
    """InputError if `target` holds anything that a publication would not have written."""
    allowed = "another folder: --docs DIR"
    if not target.is_dir() and (target.exists() or target.is_symlink()):
        raise InputError(str(target), "a file", allowed)
    named = [CLAIMS, COMPARISONS, MORE_RUNS, README] if (paths := publications(target)) else []
    for path in paths:
        folder = path.parent.relative_to(target)
        files = [*read_publication(path)["files"], MANIFEST, README]
        named += [(folder / name).as_posix() for name in files]
    if others := unnamed(target, named):
        raise InputError(str(target / others[0]), "a file that no publication wrote", allowed)


def commit_of(folder: Path) -> str | None:
    """The git commit checked out in `folder`, marked if files differ from it; None without one."""
    try:
        head, status = (
            subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
            ).stdout.strip()
            for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head} with changes" if status else head


def complete_run(run: Path, behind: Behind) -> dict[str, Node]:
    """Figures and tables by name, once all is as `verify` wants it of what the run is to hold.

    That is every file of a figure or table and every record behind it, as its lineage says, and
    every csv, the verdicts among them, as manifest.txt says. What else lies in the folder, say of
    papers that the config has no more, does not matter.

    Raises InputError, naming the first thing that is missing, stale or edited.
    """
    if not run.is_dir():
        raise InputError(str(run), "no such folder", f"the results of a run at {run.name}")
    nodes = {}
    for product, planned in behind.items():
        name = Path(product).name
        path = run / "lineage" / f"{name}.json"
        if not path.is_file():
            raise InputError(str(path), "no such file", RERUN)
        nodes[name] = node = product_node(path, read_lineage(path))
        # A file that the lineage does not name is of unknown origin.
        copied = dict.fromkeys(files_of({product: planned}), "")
        require_as_made(run, copied | {**node.files}, path.name)
        for ids, found in (
            ({*planned} - node.inputs, "nothing of"),
            (node.inputs - {*planned}, "more than the config asks:"),
        ):
            if ids:
                raise InputError(str(path), f"{found} {min(ids)}", RERUN)
    require_numbers_as_made(run, [*VERDICTS, *(f"{product}.csv" for product in behind)])
    return nodes


def _manifest(run: Index, nodes: Mapping[str, Node]) -> Content:
    made = [run.record(name) for name in sorted({*chain(*(n.inputs for n in nodes.values()))})]
    records: dict[str, Content] = {}
    # What many records share, by digest.
    data: dict[str | None, Any] = {}
    ledgers: dict[str, Any] = {}
    versions: dict[str, Content] = {}
    code: dict[str, set[str]] = defaultdict(set)
    for node in nodes.values():
        code[node.facts["module"]].add(node.facts["code_digest"])
    costs = []
    for node in made:
        facts, cost = node.facts, cost_beside(node.path)
        record = records[node.name] = {
            "sha256": file_sha256(node.path),
            **{what: facts[what] for what in ("code_digest", "device", "seeds", "spec")},
            "data": facts["data"] and facts["data"]["sha256"],
            **{what: short_digest(facts[what]) for what in ("ledger", "versions")},
            **({"processor": cost["processor"]} if cost and "processor" in cost else {}),
        }
        data[record["data"]] = facts["data"]
        ledgers[record["ledger"]] = facts["ledger"]
        versions[record["versions"]] = facts["versions"]
        spec = record["spec"]
        code[job_module(spec["key"], spec.get("kind"))].add(record["code_digest"])
        costs += [cost] if cost else []
    finished = [cost["finished"] for cost in costs]
    cpu, wall = (sum(cost[name] for cost in costs) / 3600 for name in ("cpu_s", "wall_s"))
    return {
        "code": {
            module: {"in_run": sorted(digests), "at_publication": state.digest_now(module)}
            for module, digests in code.items()
        },
        "products": {name: dict(node.facts) for name, node in nodes.items()},
        "records": records,
        "data": {sha: of for sha, of in data.items() if sha},
        "ledgers": ledgers,
        "versions": [*versions.values()],
        "cost": {
            "jobs": len(made),
            "cpu_hours": cpu,
            "wall_hours": wall,
            "first_finished": min(finished, default=None),
            "last_finished": max(finished, default=None),
        },
    }


def readme(manifest: Content, folder: Path) -> str:
    """README.md of the publication in a folder that has all its other files but the manifest."""
    claims, compared = [*Index(folder).claims.values()], read_comparisons(folder)
    # In the order of the papers; what is no product any more comes last.
    order = {name: manifest["products"].get(name) for name in all_products()}
    products = {name: of for name, of in {**order, **manifest["products"]}.items() if of}
    code = manifest["code"]
    figures, tables = (
        [name for name, of in products.items() if of["kind"] == kind]
        for kind in ("figure", "table")
    )
    pairs = []
    for name in tables if manifest["tier"] in AS_PRINTED else ():
        block = all_blocks()[block_key(products[name]["module"])]
        pairs += printed_comparisons(block, name, read_rows(folder / f"tables/{name}.csv"))
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"cell": cell, "verdict": _verdict, "waits_for": waits_for}
    template = Path(__file__).with_name("published.md.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        {"waiting": None, **manifest},
        sets=sorted({(of["name"], of["what"]) for of in manifest["data"].values()}),
        stale=[name for name, of in code.items() if of["in_run"] != [of["at_publication"]]],
        printed=printed_lines(pairs, claims, compared) if manifest["tier"] in AS_PRINTED else [],
        compared=compared,
        claims=claims,
        counted=counted(claims),
        ours=counted(claims, OURS),
        figures=figures,
        tables=tables,
        days=days(*(manifest["cost"][f"{end}_finished"] for end in ("first", "last"))),
        duration=duration,
    )


def waits_for(row: Mapping[str, Any]) -> str:
    """What a figure or table waits for, in words."""
    hours = duration(3600 * (row["gpu_hours"] or row["cpu_hours"]))
    files = f"; files: {', '.join(row['files'])}" if row["files"] else ""
    conditions = row["conditions"]
    more = f" and {len(conditions) - MOST_NAMED} more" if len(conditions) > MOST_NAMED else ""
    words = f"about {hours} of {'a GPU' if row['gpu_hours'] else 'CPU'}{files}"
    return f"{words}; for {', '.join(conditions[:MOST_NAMED])}{more}"


def _verdict(row: Mapping[str, str]) -> str:
    """The verdict of a row of claims.csv with its failure and reason."""
    failure = f" ({row['failure']})" if row.get("failure") else ""
    return ": ".join(filter(None, (row["verdict"] + failure, row.get("because"))))
