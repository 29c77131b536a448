"""Publish a run: copy its summaries, never its raw records, after checking that they are whole.

Of a partial run what it shows has to be whole, and README.md says what waits for what. So a tier of
many hours is run a figure at a time, on several machines.

What is copied: claims.csv, comparisons.csv, figures (pdf, png, csv, json), tables (csv, md, tex),
the effective config; beside them more_runs.json, manifest.json and README.md. The old folder stays
until the new one is complete; what it has of papers that are no part of the run is kept, and where
the run is partial also what waits in it.
"""

import csv
import io
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpatlas.config.products import all_products
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.files import check_writable, read_json, replacing_folder, write_atomic, write_json
from dpatlas.core.folders import CONFIG, MORE_RUNS
from dpatlas.core.progress import duration
from dpatlas.core.records import read_record
from dpatlas.core.specs import FIRST_RUN, RUNS, condition_id
from dpatlas.errors import InputError
from dpatlas.evidence.printed import printed_comparisons
from dpatlas.evidence.verdicts import CLAIMS, COMPARISONS, OURS, counted, read_claims
from dpatlas.registry import all_blocks
from dpatlas.report.earlier_publication import earlier_publication
from dpatlas.report.lineage import (
    MANIFEST,
    block_key,
    cost_beside,
    job_module,
    read_lineage,
)
from dpatlas.report.manifest import VERDICTS, require_numbers_as_made
from dpatlas.report.printed_rows import cell, printed_lines
from dpatlas.report.publication import README, SUFFIXES, require_replaceable
from dpatlas.report.state import RERUN, code_state, file_sha256, files_of, require_as_made

# Digits of the digest by which a manifest names a ledger, which many records share.
DIGITS = 16
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
        hours = self.gpu_hours or self.cpu_hours
        device = "a GPU" if self.gpu_hours else "CPU"
        files = f"; files: {', '.join(self.files)}" if self.files else ""
        named = ", ".join(self.conditions[:MOST_NAMED])
        more = len(self.conditions) - MOST_NAMED
        others = f" and {more} more" if more > 0 else ""
        return f"about {duration(3600 * hours)} of {device}{files}; for {named}{others}"


def publish(expected: Expected, results: Path, docs: Path, commit: str | None) -> Path:
    """Copy the run in `results`/<tier> to `docs`/<tier>, whole or not at all; returns that folder.

    commit: of the code, or None. Raises InputError, naming the first thing that is missing, stale
    or edited, for a run that is not complete, and where `docs` has what no publication wrote.
    """
    run, target = results / expected.tier, docs / expected.tier
    check_writable(docs)
    require_replaceable(target)
    products = complete_run(expected, run)
    claims = read_claims(run, "statement")
    partial = expected.waiting is not None
    earlier = earlier_publication(target, expected.blocks, products if partial else None)
    files = {name: (run / name).read_bytes() for name in VERDICTS}
    if earlier:
        files[COMPARISONS] = earlier.into_comparisons(files[COMPARISONS], claims)
        files[CLAIMS] = earlier.into_claims(claims)
        claims = list(csv.DictReader(io.StringIO(files[CLAIMS].decode())))
    for folder, suffixes in SUFFIXES.items():
        for name in getattr(expected, folder):
            for suffix in suffixes:
                path = f"{folder}/{name}.{suffix}"
                files[path] = (run / path).read_bytes()
    if (run / CONFIG).is_file():
        config = read_json(run / CONFIG)
        files[CONFIG] = public_config(earlier.into_config(config) if earlier else config)
    manifest = _manifest(expected.tier, run, products, files, commit)
    if expected.waiting is not None:
        manifest["waiting"] = [asdict(each) for each in expected.waiting]
    if earlier:
        manifest = earlier.into(manifest)
        files.update(earlier.files)
    files[MORE_RUNS] = _more_runs(manifest["records"])
    manifest["files"][MORE_RUNS] = sha256(files[MORE_RUNS])
    files[README] = readme(manifest, files, claims).encode()
    with replacing_folder(target) as fresh:
        for path, content in files.items():
            write_atomic(fresh / path, content)
        write_json(fresh / MANIFEST, manifest)
    return target


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


def complete_run(expected: Expected, run: Path) -> dict[str, dict[str, Any]]:
    """Lineage by product name, once all is as `verify` wants it of what the run is to hold.

    That is every file of a figure or table and every record behind it, as its lineage says, and
    every csv, the verdicts among them, as manifest.txt says. What else lies in the folder, say of
    papers that the config has no more, does not matter.

    Raises InputError, naming the first thing that is missing, stale or edited.
    """
    if not run.is_dir():
        raise InputError(str(run), "no such folder", f"the results of a run at {expected.tier}")
    products = {}
    for folder, suffixes in SUFFIXES.items():
        for name, records in getattr(expected, folder).items():
            path = run / "lineage" / f"{name}.json"
            if not path.is_file():
                raise InputError(str(path), "no such file", RERUN)
            products[name] = lineage = read_lineage(path)
            # A file that the lineage does not name is of unknown origin.
            copied = dict.fromkeys((f"{folder}/{name}.{suffix}" for suffix in suffixes), "")
            require_as_made(run, copied | files_of(lineage), path.name)
            _check_records(lineage, set(records), path)
    numbers = [
        *VERDICTS,
        *(f"figures/{name}.csv" for name in expected.figures),
        *(f"tables/{name}.csv" for name in expected.tables),
    ]
    require_numbers_as_made(run, numbers)
    return products


def _check_records(lineage: Mapping[str, Any], asked: set[str], path: Path) -> None:
    drawn = set(lineage["records"])
    for ids, what in ((asked - drawn, "nothing of"), (drawn - asked, "more than the config asks:")):
        if ids:
            raise InputError(str(path), f"{what} {min(ids)}", RERUN)


def public_config(config: dict[str, Any]) -> bytes:
    """The config without the places of local data: they say something about one machine only."""
    sources = config.get("data", {})
    data = {**sources, "root": None}
    if "own" in sources:
        data["own"] = {name: {**mine, "path": name} for name, mine in sources["own"].items()}
    return (json.dumps({**config, "data": data}, indent=1, sort_keys=True) + "\n").encode()


def _more_runs(records: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Runs by condition, of records by id: where `decide` added any, the config alone has fewer."""
    runs: dict[str, int] = {}
    for name, spec in ((name, record["spec"]) for name, record in records.items()):
        if FIRST_RUN in spec:
            condition = condition_id(name.rpartition("-")[0], spec)
            runs[condition] = max(runs.get(condition, 0), spec[FIRST_RUN] + spec[RUNS])
    return (json.dumps(runs, indent=1, sort_keys=True) + "\n").encode()


def _manifest(
    tier: str,
    run: Path,
    products: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, bytes],
    commit: str | None,
) -> dict[str, Any]:
    paths = {
        name: run / entry["path"]
        for lineage in products.values()
        for name, entry in lineage["records"].items()
    }
    records, data, versions, ledgers = {}, {}, {}, {}
    code: dict[str, set[str]] = {}
    costs = []
    for lineage in products.values():
        code.setdefault(lineage["module"], set()).add(lineage["code_digest"])
    for name, path in sorted(paths.items()):
        record = read_record(path)
        if record["data"] is not None:
            data[record["data"]["sha256"]] = record["data"]
        versions[canonical_json(record["versions"])] = record["versions"]
        code.setdefault(job_module(record["key"], record["spec"]["kind"]), set()).add(
            record["code_digest"]
        )
        ledger = sha256(canonical_json(record["ledger"]))[:DIGITS]
        ledgers[ledger] = record["ledger"]
        records[name] = {
            "sha256": file_sha256(path),
            "code_digest": record["code_digest"],
            "device": record["device"],
            "data": record["data"] and record["data"]["sha256"],
            "seeds": record["seeds"],
            "ledger": ledger,
            "spec": record["spec"],
        }
        if cost := cost_beside(path):
            costs.append(cost)
    return {
        "tier": tier,
        "commit": commit,
        "code": {
            module: {"in_run": sorted(digests), "at_publication": code_state(module, None).now}
            for module, digests in code.items()
        },
        "files": {path: sha256(content) for path, content in files.items()},
        "products": dict(products),
        "records": records,
        "data": data,
        "ledgers": ledgers,
        "versions": list(versions.values()),
        "cost": {
            "jobs": len(records),
            "cpu_hours": sum(cost["cpu_s"] for cost in costs) / 3600,
            "wall_hours": sum(cost["wall_s"] for cost in costs) / 3600,
            "first_finished": min((cost["finished"] for cost in costs), default=None),
            "last_finished": max((cost["finished"] for cost in costs), default=None),
        },
    }


def _printed(
    manifest: Mapping[str, Any], files: Mapping[str, bytes], claims: Sequence[Mapping[str, str]]
) -> list[str]:
    """What README.md has of the printed numbers, at tiers of the papers' own sizes."""
    if manifest["tier"] not in AS_PRINTED:
        return []
    pairs = [
        pair
        for name in _named(manifest, "table")
        for pair in printed_comparisons(
            all_blocks()[block_key(manifest["products"][name]["module"])],
            name,
            list(csv.DictReader(io.StringIO(files[f"tables/{name}.csv"].decode()))),
        )
    ]
    compared = list(csv.DictReader(io.StringIO(files[COMPARISONS].decode())))
    return printed_lines(pairs, claims, compared)


def _named(manifest: Mapping[str, Any], kind: str) -> list[str]:
    """Names of the figures or tables of a publication, in the order of the papers."""
    names = [name for name, each in manifest["products"].items() if each["kind"] == kind]
    order = [*all_products()]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def readme(
    manifest: Mapping[str, Any], files: Mapping[str, bytes], claims: Sequence[Mapping[str, str]]
) -> str:
    """README.md of a publication; files: by path, with all csv; claims: rows of claims.csv."""
    cost, tier = manifest["cost"], manifest["tier"]
    data = {each["name"]: each["what"] for each in manifest["data"].values() if "what" in each}
    data = dict(sorted(data.items()))
    whole = "a part of a run, so far" if "waiting" in manifest else "a complete run"
    lines = [
        f"# Results of tier {tier}",
        "",
        f"Copied by `python -m dpatlas publish --tier {tier}` from {whole} "
        f"of {cost['jobs']} jobs ({duration(3600 * cost['cpu_hours'])} of CPU, finished "
        f"{_days(cost)}). [manifest.json](manifest.json) has checksums, specs, code digests, data "
        "sources and versions; `python -m dpatlas explain` traces each file here to them. "
        f"A run of the same config that finds [{MORE_RUNS}]({MORE_RUNS}) in its folder makes as "
        "many runs.",
        "",
        *(f"- {name}: {what}" for name, what in data.items()),
        "",
        *_kept_lines(manifest),
        *_read_again_lines(manifest),
        *_stale_code(manifest["code"]),
        *_waiting_lines(manifest),
        *_printed(manifest, files, claims),
        "## Claims",
        "",
        f"Of the papers' claims: {counted(claims)}. Claims of our own stand apart: "
        f"{counted(claims, OURS)}. Parts are not counted. All columns: [claims.csv](claims.csv)"
        + "; what was compared: [comparisons.csv](comparisons.csv)" * (COMPARISONS in files)
        + ".",
        "",
        "| claim | whose question | verdict | statement |",
        "|---|---|---|---|",
        *(
            f"| {cell(row['claim'])} | {row.get('origin', '')} | {cell(_verdict(row))} | "
            f"{cell(_statement(row))} |"
            for row in claims
        ),
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


def _verdict(row: Mapping[str, str]) -> str:
    """The verdict with its failure and the reason."""
    failure = f" ({row['failure']})" if row.get("failure") else ""
    return ": ".join(filter(None, (row["verdict"] + failure, row.get("because"))))


def _statement(row: Mapping[str, str]) -> str:
    restated = f" (Restated, {row['restated']}.)" if row.get("restated") else ""
    return row["statement"] + restated


def _read_again_lines(manifest: Mapping[str, Any]) -> list[str]:
    if "read_again" not in manifest:
        return []
    reading = manifest["read_again"]
    done = {
        "Judged again by the published runs": reading["judged"],
        "Withdrawn, as another test asks now": reading["withdrawn"],
    }
    said = [f"{what}: {', '.join(names)}." for what, names in done.items() if names]
    first = (
        f"The verdicts were read again by the claims.yaml files of commit {reading['commit']}, "
        "from comparisons.csv, without the records."
    )
    return [" ".join([first, *said]), ""]


def _kept_lines(manifest: Mapping[str, Any]) -> list[str]:
    if "kept" not in manifest:
        return []
    names = ", ".join(manifest["kept"])
    return [f"Kept from earlier publications, as that run has not made them: {names}.", ""]


def _stale_code(code: Mapping[str, Mapping[str, Any]]) -> list[str]:
    stale = [name for name, each in code.items() if each["in_run"] != [each["at_publication"]]]
    if not stale:
        return []
    return [
        "Code that these modules are or import changed between the run and this publication "
        f"(`explain` has both digests): {', '.join(stale)}.",
        "",
    ]


def _waiting_lines(manifest: Mapping[str, Any]) -> list[str]:
    if "waiting" not in manifest:
        return []
    waiting = [Waiting(**each) for each in manifest["waiting"]]
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
            f"| {each.name} | {cell(each.place)} | {each.there} of {each.runs} | "
            f"{cell(each.words)} |"
            for each in waiting
        ),
        "",
    ]


def _days(cost: Mapping[str, Any]) -> str:
    days = (cost[name] for name in ("first_finished", "last_finished"))
    first, last = ("on an unknown day" if day is None else day[:10] for day in days)
    return first if first == last else f"{first} to {last}"
