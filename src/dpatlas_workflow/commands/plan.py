"""`python -m dpatlas plan`: count jobs and estimate their cost before anything runs."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.folders import RESULTS
from dpatlas.base.guard import integer
from dpatlas.data.registry import DATA_SETS, reader
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.commands.data import places
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, load_tier
from dpatlas_workflow.cost.estimate import past_runs
from dpatlas_workflow.cost.plan import describe_plan, jobs_of, make_plan, targets_of

# Of cores, or of GPUs: the schedule has an entry for each.
MOST_CORES = 10_000


def main(arguments: Sequence[str]) -> int:
    """Print the plan of a tier, or of config files as Snakemake's --configfile takes them."""
    parser = ArgumentParser(prog="dpatlas plan", description=__doc__, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    which.add_argument("--config", nargs="+", type=Path, metavar="FILE", help="config files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of past runs")
    parser.add_argument("--cores", type=int, help="cores for the wall time (default: all)")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs for the wall time (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    cores: int = (os.cpu_count() or 1) if options.cores is None else options.cores
    integer(ge=1, le=MOST_CORES).check("--cores", cores)
    integer(ge=1, le=MOST_CORES).check("--gpus", options.gpus)
    if options.results.exists() and not options.results.is_dir():
        raise InputError("--results", f"{options.results}, a file", "a folder of past runs")
    config = load_config(options.config) if options.config else load_tier(options.tier)
    atlas = Atlas(config, options.results)
    past, targets = past_runs(options.results, platform.machine()), targets_of(atlas)
    plan = make_plan(jobs_of(atlas), config.device, past, cores, atlas.tier, options.gpus, targets)
    plan["download_mb"] = download_mb(atlas)
    print(json.dumps(plan, indent=1) if options.json else describe_plan(plan))
    return 0


def download_mb(atlas: Atlas) -> float:
    """Of official files of data sets that are neither under data.root nor in the cache."""
    if not atlas.config.data.download:
        return 0.0
    names = {json.loads(options)["name"] for options in atlas.data_sets.values()}
    sets = [DATA_SETS[name] for name in names & set(DATA_SETS) if DATA_SETS[name].files]
    absent = [each for each in sets if reader(each.name).locate(each, places(atlas)) is None]
    return sum({file.name: file.size for each in absent for file in each.files}.values()) / 2**20
