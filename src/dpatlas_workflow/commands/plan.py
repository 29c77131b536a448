"""`python -m dpatlas plan`: count jobs and estimate their cost before anything runs."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.facts import DataFields
from dpatlas.base.folders import RESULTS
from dpatlas.base.guard import integer
from dpatlas.base.records import RunsFields
from dpatlas.data.registry import DATA_SETS, reader
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.commands.data import places
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, load_tier
from dpatlas_workflow.config.sizes import array_mb
from dpatlas_workflow.cost.counting import cost_of
from dpatlas_workflow.cost.estimate import past_runs, work_of
from dpatlas_workflow.cost.plan import Job, Targets, describe_plan, make_plan

# Of cores, or of GPUs: the schedule has an entry for each.
MOST_CORES = 10_000
# Interpreter and numpy, beside the images themselves.
READING_MB = 200
# Of a record's file, by the run where its runs are repeated.
RECORD_MB = 0.02


def main(arguments: Sequence[str]) -> int:
    """Print the plan of a tier, or of config files as Snakemake's --configfile takes them."""
    parser = ArgumentParser(prog="dpatlas plan", description=__doc__, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    which.add_argument("--config", nargs="+", type=Path, metavar="FILE", help="config files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of past runs")
    parser.add_argument("--cores", type=int, help="cores for the wall time (default: all)")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs for it, unless device is cpu")
    parser.add_argument("--json", action="store_true", help="for tools")
    options = parser.parse_args(arguments)
    cores: int = (os.cpu_count() or 1) if options.cores is None else options.cores
    integer(ge=1, le=MOST_CORES).check("--cores", cores)
    integer(ge=1, le=MOST_CORES).check("--gpus", options.gpus)
    if options.results.exists() and not options.results.is_dir():
        raise InputError("--results", f"{options.results}, a file", "a folder of past runs")
    config = load_config(options.config) if options.config else load_tier(options.tier)
    atlas = Atlas(config, options.results)
    past, jobs = past_runs(options.results, platform.machine()), jobs_of(atlas)
    plan = make_plan(jobs, config.device, past, cores, atlas.tier, options.gpus, targets_of(atlas))
    plan["download_mb"] = download_mb(atlas)
    print(json.dumps(plan, indent=1) if options.json else describe_plan(plan))
    return 0


def jobs_of(atlas: Atlas) -> list[Job]:
    """Every job of the run: data sets, features, runs, figures and tables, claims and page.

    A job is done if what it writes is there; whether code or data changed since, Snakemake knows.
    """
    jobs = [job_of(atlas, spec_id) for spec_id in atlas.specs]
    for name, product in atlas.products.items():
        suffix = "pdf" if product.kind == "figure" else "csv"
        done = (atlas.folder / product.folder / f"{name}.{suffix}").is_file()
        jobs.append(Job(atlas.block_of_product[name].key, product.folder, done))
    for name, options in atlas.data_sets.items():
        done = (atlas.folder / "data" / name / "manifest.json").is_file()
        megabytes = array_mb(DataFields.model_validate_json(options))
        memory_mb = READING_MB + 3 * megabytes
        jobs.append(Job("shared", "data", done, 0, False, memory_mb, megabytes))
    taken = {Path(path).parent.name for name in atlas.specs for path in atlas.job(name).features}
    for name, found in atlas.frozen_features.items():
        if name not in taken:  # of a tuning whose outcome is known
            continue
        done = Path(atlas.features(name), "manifest.json").is_file()
        memory_mb, units = atlas.features_memory_mb(name), work_of(atlas, name)[1]
        jobs.append(Job("shared", "features", done, units, True, memory_mb, found.disk_mb))
    last = ("claims.csv", "report/index.html", "manifest.txt")
    kind = "claims, page, manifest"
    jobs += [Job("shared", kind, (atlas.folder / path).is_file()) for path in last]
    return jobs


def job_of(atlas: Atlas, spec_id: str) -> Job:
    """The job of a spec."""
    done = Path(atlas.record(spec_id)).is_file()
    fields, memory_mb = atlas.job(spec_id).fields, atlas.job(spec_id).memory_mb
    disk_mb = RECORD_MB * (fields.runs if isinstance(fields, RunsFields) else 1)
    sizes = work_of(atlas, spec_id)[1], cost_of(fields).gpu, memory_mb, disk_mb
    return Job(fields.key, fields.kind, done, *sizes)


def targets_of(atlas: Atlas) -> Targets:
    """Every figure and table with the runs that it needs."""
    return {
        name: (product.place, [job_of(atlas, each) for each in atlas.needed_for(name)])
        for name, product in atlas.products.items()
    }


def download_mb(atlas: Atlas) -> float:
    """Of official files of data sets that are neither under data.root nor in the cache."""
    if not atlas.config.data.download:
        return 0.0
    names = {json.loads(options)["name"] for options in atlas.data_sets.values()}
    files: dict[str, int] = {}
    for name in names & set(DATA_SETS):
        data_set = DATA_SETS[name]
        if data_set.files and reader(name).locate(data_set, places(atlas)) is None:
            files |= {file.name: file.size for file in data_set.files}
    return sum(files.values()) / 2**20
