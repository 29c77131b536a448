"""Config, paths and what every rule shares."""

import functools
import inspect
import os
import re
import sys
from itertools import chain
from pathlib import Path

from snakemake.logging import logger

from dpatlas_workflow.config.load import load_config
from dpatlas.base.digest import check_code_of, code_digest, remember_code
from dpatlas.base.environment import keep_caches_in, put_own_python_first
from dpatlas.base.files import check_writable, write_json
from dpatlas.base.fork import SERVER, start_server
from dpatlas.errors import EXIT_BAD_INPUT, InputError
from dpatlas_workflow.cost.estimate import job_seconds, minutes, seconds_per_run
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.cost.standing import Standing, planned
from dpatlas_workflow.registry import all_papers

# Only sys.exit gives the exit code; an exception in a Snakefile would end in 1.
try:
    # Snakemake runs no `onstart` of a module, and its rules would take the names of others.
    if not workflow.modifier.is_main_snakefile():
        allowed = "run in a checkout of its own, with a config file"
        raise InputError("module", "dp-atlas as a part of another workflow", allowed)
    if not Path.cwd().samefile(workflow.basedir):
        allowed = f"{workflow.basedir}: change to it, and leave out --directory"
        raise InputError("working folder", Path.cwd(), allowed)
    check_code_of(Path(workflow.basedir))
    ATLAS = Atlas(
        load_config(
            workflow.config_settings.configfiles, workflow.config_settings.config
        )
    )
    ATLAS.check_data_root()
    if ATLAS.config.data.offline:
        from dpatlas_workflow.commands.data import missing

        if absent := missing(ATLAS):
            print(*absent, sep="\n", file=sys.stderr)
            found = f"true, with {len(absent)} missing"
            raise InputError("data.offline", found, "all of the above in their place")
    ATLAS.check_own_paths()
except InputError as error:
    print(f"dpatlas: {error}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)

# Rules run with the interpreter that runs Snakemake, whether or not its environment is activated;
# under --sdm conda the rule's own environment comes before it.
put_own_python_first()
keep_caches_in(Path(".snakemake/caches"))

# Snakemake asks for every job that waits whenever another one ends.
job_seconds = functools.cache(job_seconds)

CHECKPOINTS = f"{ATLAS.folder}/checkpoints"
FIGURES = f"{ATLAS.folder}/figures"
TABLES = f"{ATLAS.folder}/tables"
LINEAGE = f"{ATLAS.folder}/lineage"
LOGS = f"{ATLAS.folder}/logs"
STYLE = "src/dpatlas_workflow/show/dpatlas.mplstyle"
FIGURE_FILES = [".pdf", ".svg", ".csv", ".json"]
TABLE_FILES = [".md", ".tex"]


LISTS = f"{ATLAS.folder}/lists"


# What `snakemake --report` begins with.
report: "../report/workflow.rst"


def of_job(name):
    """Input function: this attribute of the job whose id is the wildcard."""

    def attribute(wildcards):
        return getattr(ATLAS.job(wildcards.id), name)

    # Snakemake reads the signature at every call, a seventh of a dry run where Python works it out.
    attribute.__signature__ = inspect.signature(attribute)
    return attribute


def seconds_of(ids):
    """Estimated seconds of all these runs."""
    return sum(job_seconds(ATLAS, name) for name in ids)


def minutes_of(wildcards, attempt):
    """Time to ask a scheduler for, for the job of the wildcard `id`."""
    return minutes(job_seconds(ATLAS, wildcards.id), attempt)


def refuse(error, wildcards):
    """Input function of a target that the config leaves out: one line and exit code 2."""
    print(f"dpatlas: {error}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


# Snakemake searches a pattern through for every job: of so many ids, it may not list them all.
MANY_IDS = 1000


def any_of(ids, others=()):
    """The pattern that matches these ids alone; without any it matches nothing.

    Of many ids, the pattern that matches ids that differ from them in numbers and digests alone,
    unless it matches one of the others.
    """
    if len(ids) > MANY_IDS:
        shapes = {re.sub(r"[0-9]+", "0", name[:-8]) for name in ids}
        alike = "|".join(
            re.escape(shape).replace("0", "[0-9]+") + "[0-9a-f]{8}"
            for shape in sorted(shapes)
        )
        if not any(re.fullmatch(alike, name) for name in others):
            return alike
    return "|".join(map(re.escape, ids)) or "(?!)"


def cluster_group(name):
    """The group of a rule's jobs on a cluster; on this machine none.

    For a group Snakemake counts all inputs of its jobs again whenever one is made: three quarters
    of the time of a dry run of 10,000 jobs.
    """
    return lambda wildcards: None if workflow.local_exec else name


# On a cluster the figures and tables of one paper are one job, not many of a few seconds each: one
# core makes them one after the other, once that paper's runs are all there.
workflow.group_settings.group_components = {
    **dict.fromkeys(ATLAS.blocks, len(ATLAS.products)),
    **workflow.group_settings.group_components,
}


wildcard_constraints:
    id="[a-z0-9_.-]+",


# Set by make, which shows where a run stands in place of five lines for every job.
STANDING = None
if os.environ.get("DPATLAS_STANDING") and workflow.is_main_process:
    STANDING = Standing()
    STANDING.take_over(logger)

# Of two jobs that could start, the one with the higher priority does: what is shown comes before
# further runs, and kinds of runs that take seconds before others, so that the first figures are there
# in a minute or two.
SHOWN, SHORT = 2, 1
SHORT_SECONDS = 60


# The server loads more libraries than any one job, which few jobs do not pay for. A GPU's driver that
# was initialised cannot be used in a fork, and a library may do that when it is loaded: with a GPU,
# jobs are processes.
FORKS_PAY = 4


onstart:
    # Here, so that a dry run and a list need no folder that can be written.
    try:
        check_writable(ATLAS.folder)
        ATLAS.write_lists()
    except InputError as error:
        print(f"dpatlas: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    write_json(ATLAS.folder / "config.json", ATLAS.config.plain())
    write_json(Path(LISTS, "costs.json"), seconds_per_run(ATLAS))
    # Its limit of 100 starts a second wakes Snakemake's scheduler once a second for every job that
    # has ended, and each time it looks at all that wait. Where cores are the limit, it is not needed.
    if workflow.local_exec and hasattr(workflow.scheduler, "job_rate_limiter"):
        workflow.scheduler.job_rate_limiter = None
    waiting = list(workflow.dag.needrun_jobs())
    if (
        workflow.local_exec
        and ATLAS.config.device == "cpu"
        and len(waiting) >= FORKS_PAY
        and SERVER not in os.environ
    ):
        os.environ.update(start_server())
    if STANDING:
        jobs = {
            job.jobid: planned(
                ATLAS, job.rule.name, dict(job.wildcards).get("id", ""), job.output
            )
            for job in waiting
        }
        STANDING.begin(jobs, workflow.resource_settings.cores)


onsuccess:
    if STANDING:
        STANDING.end()
