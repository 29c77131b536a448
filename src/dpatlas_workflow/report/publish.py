"""Publish a run: copy its summaries, never its raw records, after checking that they are whole.

Of a partial run what it shows has to be whole, and README.md says what waits for what. So a tier of
many hours is run a figure at a time, on several machines.

What is copied: claims.csv, comparisons.csv, figures (pdf, png, csv, json), tables (csv, md, tex),
the effective config; beside them more_runs.json, manifest.json and README.md. The old folder stays
until the new one is complete; what it has of papers that are no part of the run is kept, and where
the run is partial also what waits in it.
"""

import csv
import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dpatlas.base.canonical import sha256
from dpatlas.base.files import (
    check_writable,
    read_json,
    read_rows,
    replacing_folder,
    write_atomic,
    write_json,
)
from dpatlas.base.folders import CONFIG, MORE_RUNS
from dpatlas.base.progress import duration
from dpatlas.base.specs import FIRST_RUN, RUNS, condition_id
from dpatlas.errors import InputError
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.evidence.claims import csv_text
from dpatlas_workflow.evidence.printed import printed_comparisons
from dpatlas_workflow.evidence.verdicts import (
    CLAIMS,
    COMPARISONS,
    OURS,
    counted,
    read_claims,
    read_comparisons,
)
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.report import state
from dpatlas_workflow.report.earlier_publication import Earlier, earlier_publication
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
    read_lineage,
    read_publication,
    short_digest,
)
from dpatlas_workflow.report.manifest import VERDICTS, require_numbers_as_made
from dpatlas_workflow.report.printed_rows import cell, printed_lines
from dpatlas_workflow.report.state import RERUN, file_sha256, require_as_made, unnamed

# Tiers with the papers' own data and sizes.
AS_PRINTED = ("printed", "printed-caption", "printed-stages", "paper")
# Conditions that README.md names of a figure or table that waits; manifest.json names all.
MOST_NAMED = 8


@dataclass(frozen=True)
class Expected:
    """What a complete run of a tier holds.

    figures, tables: ids of the records behind each, by name. blocks: keys of the papers and other
    blocks in it. waiting: of a partial run, what is not shown whole; None of a complete one.
    """

    tier: str
    figures: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, tuple[str, ...]]
    blocks: tuple[str, ...]
    waiting: tuple["Waiting", ...] | None = None

    @property
    def files(self) -> list[tuple[str, str, str]]:
        """Folder, name and suffix of every file of a figure or table that is published."""
        parts = {"figures": self.figures, "tables": self.tables}
        return [(part, name, x) for part in parts for name in parts[part] for x in SUFFIXES[part]]


@dataclass(frozen=True)
class Waiting:
    """A figure or table of which runs are missing: how many are there, and what it waits for.

    runs: with tunings and backbones. cpu_hours, gpu_hours: estimated, of the missing ones; a job on
    a GPU counts in both. files: published data sets and weights that are not on this machine.
    conditions: of which runs are missing.
    """

    name: str
    place: str
    runs: int
    there: int
    cpu_hours: float
    gpu_hours: float
    files: tuple[str, ...]
    conditions: tuple[str, ...]

    @property
    def words(self) -> str:
        """What it waits for."""
        hours = duration(3600 * (self.gpu_hours or self.cpu_hours))
        files = f"; files: {', '.join(self.files)}" if self.files else ""
        named, more = ", ".join(self.conditions[:MOST_NAMED]), len(self.conditions) - MOST_NAMED
        words = f"about {hours} of {'a GPU' if self.gpu_hours else 'CPU'}{files}; for {named}"
        return words + (f" and {more} more" if more > 0 else "")


def publish(expected: Expected, results: Path, docs: Path, commit: str | None) -> Path:
    """Copy the run in `results`/<tier> to `docs`/<tier>, whole or not at all; returns that folder.

    commit: of the code, or None. Raises InputError, naming the first thing that is missing, stale
    or edited, for a run that is not complete, and where `docs` has what no publication wrote.
    """
    run, target = results / expected.tier, docs / expected.tier
    check_writable(docs)
    require_replaceable(target)
    nodes = complete_run(expected, run)
    rows, waits = read_claims(run, "statement"), expected.waiting
    earlier = earlier_publication(target, expected.blocks, None if waits is None else nodes)
    claims, past = earlier.claims(rows), earlier.index.publication
    copied = [f"{part}/{name}.{suffix}" for part, name, suffix in expected.files]
    files = {path: (target / path).read_bytes() for path in earlier.files}
    files |= {path: (run / path).read_bytes() for path in (CLAIMS, COMPARISONS, *copied)}
    kept = {row["claim"]: row for row in rows if earlier.keeps(row)}
    if claims != rows:
        files[CLAIMS] = csv_text(claims, [*rows[0]]).encode()
    if kept:
        order = [row["claim"] for row in rows]
        reader = csv.DictReader(files[COMPARISONS].decode().splitlines())
        past_rows = [row for row in read_comparisons(target) if row["claim"] in kept]
        compared = sorted([*reader, *past_rows], key=lambda row: order.index(row["claim"]))
        files[COMPARISONS] = csv_text(compared, [*(reader.fieldnames or ())]).encode()
    if (run / CONFIG).is_file():
        old = target / CONFIG
        before = read_json(old) if earlier.products and old.is_file() else {}
        others = before.keys() & all_blocks().keys() - {*expected.blocks}
        config = {**read_json(run / CONFIG), **{key: before[key] for key in others}}
        files[CONFIG] = public_config(config)
    manifest = {"tier": expected.tier, "commit": commit, **_manifest(Index(run), nodes, earlier)}
    made = {name for name, (_, block) in all_products().items() if block.key in expected.blocks}
    waiting = earlier.waiting(None if waits is None else [asdict(each) for each in waits], made)
    manifest |= {} if waiting is None else {"waiting": waiting}
    if earlier.products:
        # What was kept before comes from further back still.
        commits = dict.fromkeys(earlier.products, past["commit"]) | past.get("kept", {})
        manifest["kept"] = {name: commits[name] for name in earlier.products}
        manifest |= {name: past[name] for name in ("read_again",) if name in past}
    files[MORE_RUNS] = _more_runs(manifest["records"])
    manifest["files"] = {path: sha256(content) for path, content in files.items()}
    with replacing_folder(target) as fresh:
        for path, content in files.items():
            write_atomic(fresh / path, content)
        write_atomic(fresh / README, readme(manifest, fresh))
        write_json(fresh / MANIFEST, manifest)
    return target


def require_replaceable(target: Path) -> None:
    """InputError if `target` holds anything that a publication would not have written."""
    path, allowed = target / MANIFEST, "another folder: --docs DIR"
    if not target.is_dir() and (target.exists() or target.is_symlink()):
        raise InputError(str(target), "a file", allowed)
    files = [*read_publication(path)["files"], MANIFEST, README] if path.is_file() else []
    if others := unnamed(target, files):
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


def complete_run(expected: Expected, run: Path) -> dict[str, Node]:
    """Figures and tables by name, once all is as `verify` wants it of what the run is to hold.

    That is every file of a figure or table and every record behind it, as its lineage says, and
    every csv, the verdicts among them, as manifest.txt says. What else lies in the folder, say of
    papers that the config has no more, does not matter.

    Raises InputError, naming the first thing that is missing, stale or edited.
    """
    if not run.is_dir():
        raise InputError(str(run), "no such folder", f"the results of a run at {expected.tier}")
    nodes, numbers = {}, [*VERDICTS]
    for part, name, _ in (file for file in expected.files if file[2] == "csv"):
        path = run / "lineage" / f"{name}.json"
        if not path.is_file():
            raise InputError(str(path), "no such file", RERUN)
        nodes[name] = node = product_node(path, read_lineage(path))
        # A file that the lineage does not name is of unknown origin.
        copied = dict.fromkeys((f"{part}/{name}.{suffix}" for suffix in SUFFIXES[part]), "")
        require_as_made(run, copied | {**node.files}, path.name)
        planned = set(getattr(expected, part)[name])
        for ids, found in (
            (planned - node.inputs, "nothing of"),
            (node.inputs - planned, "more than the config asks:"),
        ):
            if ids:
                raise InputError(str(path), f"{found} {min(ids)}", RERUN)
        numbers.append(f"{part}/{name}.csv")
    require_numbers_as_made(run, numbers)
    return nodes


def public_config(config: dict[str, Any]) -> bytes:
    """The config without the places of local data: they say something about one machine only."""
    sources = config.get("data", {})
    data = {**sources, "root": None}
    if "own" in sources:
        data["own"] = {name: {**mine, "path": name} for name, mine in sources["own"].items()}
    return (json.dumps({**config, "data": data}, indent=1, sort_keys=True) + "\n").encode()


def _more_runs(records: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Runs by condition, of records by id: where `decide` added any, the config alone has fewer."""
    runs: dict[str, int] = defaultdict(int)
    for name, spec in ((name, record["spec"]) for name, record in records.items()):
        if FIRST_RUN in spec:
            condition = condition_id(name.rpartition("-")[0], spec)
            runs[condition] = max(runs[condition], spec[FIRST_RUN] + spec[RUNS])
    return (json.dumps(runs, indent=1, sort_keys=True) + "\n").encode()


def _manifest(run: Index, nodes: Mapping[str, Node], earlier: Earlier) -> Content:
    products = {**earlier.products, **{name: dict(node.facts) for name, node in nodes.items()}}
    made = {
        name: run.record(name) for name in sorted({*chain(*(n.inputs for n in nodes.values()))})
    }
    old = earlier.index.publication
    kept = {name for lineage in earlier.products.values() for name in lineage["records"]}
    records: dict[str, Content] = {}
    # What many records share, by digest.
    data: dict[str | None, Any] = {}
    ledgers: dict[str | None, Any] = {}
    versions: dict[str, Content] = {}
    for name in sorted(kept - made.keys()):
        facts = earlier.index.record(name).facts
        record = records[name] = dict(old["records"][name])
        data[record["data"]] = facts["data"]
        ledgers[record.get("ledger")] = facts["ledger"]
        if facts["versions"]:
            record["versions"] = short_digest(facts["versions"])
        every = [facts["versions"]] if facts["versions"] else old["versions"]
        versions |= {short_digest(one): one for one in every}
    costs = []
    for name, node in made.items():
        facts, cost = node.facts, cost_beside(node.path)
        record = records[name] = {
            "sha256": file_sha256(node.path),
            **{what: facts[what] for what in ("code_digest", "device", "seeds", "spec")},
            "data": facts["data"] and facts["data"]["sha256"],
            **{what: short_digest(facts[what]) for what in ("ledger", "versions")},
            **({"processor": cost["processor"]} if cost and "processor" in cost else {}),
        }
        data[record["data"]] = facts["data"]
        ledgers[record["ledger"]] = facts["ledger"]
        versions[record["versions"]] = facts["versions"]
        costs += [cost] if cost else []
    code: dict[str, set[str]] = defaultdict(set)
    for lineage in products.values():
        code[lineage["module"]].add(lineage["code_digest"])
    for record in records.values():
        spec = record["spec"]
        code[job_module(spec["key"], spec.get("kind"))].add(record["code_digest"])
    finished = [cost["finished"] for cost in costs]
    cpu, wall = (sum(cost[name] for cost in costs) / 3600 for name in ("cpu_s", "wall_s"))
    return {
        "code": {
            module: {"in_run": sorted(digests), "at_publication": state.digest_now(module)}
            for module, digests in code.items()
        },
        "products": products,
        "records": records,
        "data": {sha: of for sha, of in data.items() if sha},
        "ledgers": {digest: ledger for digest, ledger in ledgers.items() if digest},
        "versions": [*versions.values()],
        "cost": {
            "jobs": len(made),
            "cpu_hours": cpu,
            "wall_hours": wall,
            "first_finished": min(finished, default=None),
            "last_finished": max(finished, default=None),
        },
    }


def _printed(manifest: Mapping[str, Any], folder: Path) -> list[str]:
    if manifest["tier"] not in AS_PRINTED:
        return []
    pairs = []
    for name in _named(manifest, "table"):
        block = all_blocks()[block_key(manifest["products"][name]["module"])]
        pairs += printed_comparisons(block, name, read_rows(folder / f"tables/{name}.csv"))
    return printed_lines(pairs, read_claims(folder), read_comparisons(folder))


def _named(manifest: Mapping[str, Any], kind: str) -> list[str]:
    """Names of the figures or tables of a publication, in the order of the papers."""
    names = [name for name, of in manifest["products"].items() if of["kind"] == kind]
    order = [*all_products()]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def readme(manifest: Mapping[str, Any], folder: Path) -> str:
    """README.md of the publication in a folder that has all its other files but the manifest."""
    claims = read_claims(folder)
    cost, tier = manifest["cost"], manifest["tier"]
    data = {of["name"]: of["what"] for of in manifest["data"].values() if "what" in of}
    run = "a part of a run, so far" if "waiting" in manifest else "a complete run"
    lines = [
        f"# Results of tier {tier}",
        "",
        f"Copied by `python -m dpatlas publish --tier {tier}` from {run} "
        f"of {cost['jobs']} jobs ({duration(3600 * cost['cpu_hours'])} of CPU, finished "
        f"{_days(cost)}). [manifest.json](manifest.json) has checksums, specs, code digests, data "
        "sources and versions; `python -m dpatlas explain` traces each file here to them. "
        f"A run of the same config that finds [{MORE_RUNS}]({MORE_RUNS}) in its folder makes as "
        "many runs.",
        "",
        *(f"- {name}: {what}" for name, what in sorted(data.items())),
        "",
        *_past_lines(manifest),
        *_stale_code(manifest["code"]),
        *_waiting_lines(manifest),
        *_printed(manifest, folder),
        "## Claims",
        "",
        f"Of the papers' claims: {counted(claims)}. Claims of our own stand apart: "
        f"{counted(claims, OURS)}. Parts are not counted. All columns: [claims.csv](claims.csv)"
        + "; what was compared: [comparisons.csv](comparisons.csv)"
        * (folder / COMPARISONS).is_file()
        + ".",
        "",
        "| claim | whose question | verdict | statement |",
        "|---|---|---|---|",
        *(f"| {' | '.join(map(cell, _words(row)))} |" for row in claims),
        "",
        "## Figures",
    ]
    for name in _named(manifest, "figure"):
        others = ", ".join(f"[{suffix}](figures/{name}.{suffix})" for suffix in ("pdf", "csv"))
        lines += ["", f"### {name}", "", f"![{name}](figures/{name}.png)", "", others]
        if redrawn := manifest["products"][name].get("redrawn"):
            lines += ["", f"Drawn again from its csv: {redrawn['why']}."]
    lines += ["", "## Tables", ""]
    for name in _named(manifest, "table"):
        links = ", ".join(f"[{each}](tables/{name}.{each})" for each in SUFFIXES["tables"])
        lines.append(f"- {name}: {links}")
    return "\n".join(lines) + "\n"


def _words(row: Mapping[str, str]) -> list[str]:
    """Claim, origin, verdict with its failure and reason, and statement."""
    failure = f" ({row['failure']})" if row.get("failure") else ""
    verdict = ": ".join(filter(None, (row["verdict"] + failure, row.get("because"))))
    restated = f" (Restated, {row['restated']}.)" if row.get("restated") else ""
    return [row["claim"], row.get("origin", ""), verdict, row["statement"] + restated]


def _past_lines(manifest: Mapping[str, Any]) -> list[str]:
    """What was kept of earlier publications, and which of the verdicts were read again."""
    lines = []
    if "kept" in manifest:
        names = ", ".join(manifest["kept"])
        lines += [f"Kept from earlier publications, as that run has not made them: {names}.", ""]
    if reading := manifest.get("read_again"):
        said = [
            f"The verdicts were read again by the claims.yaml files of commit {reading['commit']}, "
            "from comparisons.csv, without the records."
        ]
        for what, names in (
            ("Judged again by the published runs", reading["judged"]),
            ("Withdrawn, as another test asks now", reading["withdrawn"]),
        ):
            said += [f"{what}: {', '.join(names)}."] if names else []
        lines += [" ".join(said), ""]
    return lines


def _stale_code(code: Mapping[str, Mapping[str, Any]]) -> list[str]:
    stale = [name for name, of in code.items() if of["in_run"] != [of["at_publication"]]]
    line = (
        "Code that these modules are or import changed between the run and this publication "
        f"(`explain` has both digests): {', '.join(stale)}."
    )
    return [line, ""] if stale else []


def _waiting_lines(manifest: Mapping[str, Any]) -> list[str]:
    if "waiting" not in manifest:
        return []
    return [
        "A figure is here if all its runs are, a table with the rows whose runs are; a claim is "
        "judged if all runs of the groups that it reads are here. Hours are estimates at the "
        "default rates of `plan`; those of kept products are as they were first published.",
        "",
        "## What waits",
        "",
        "| figure or table | in the paper | runs here | waits for |",
        "|---|---|---|---|",
        *(
            f"| {row.name} | {cell(row.place)} | {row.there} of {row.runs} | {cell(row.words)} |"
            for row in (Waiting(**each) for each in manifest["waiting"])
        ),
        "",
    ]


def _days(cost: Mapping[str, Any]) -> str:
    days = (cost[name] for name in ("first_finished", "last_finished"))
    first, last = ("on an unknown day" if day is None else day[:10] for day in days)
    return first if first == last else f"{first} to {last}"
