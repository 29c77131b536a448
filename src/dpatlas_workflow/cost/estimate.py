"""Seconds of jobs: measured once by kind, and scaled by what past runs of the kind took.

`seconds.csv` has, by kind, the seconds of the smallest job and those per unit of work (`counting`),
on one core and on a GPU; `tools/seconds.py` writes it from finished runs.
"""

import contextlib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpatlas.base.costs import read_cost
from dpatlas.base.files import read_rows
from dpatlas.base.records import RunsFields, read_record
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.sizes import inputs_of, records_of
from dpatlas_workflow.cost.counting import cost_of, pass_work, units
from dpatlas_workflow.records import parse_spec

# Block and kind of a job; block "" for kinds that all blocks have.
Kind = tuple[str, str]
# Of a kind that was not measured.
GUESS = (3.0, 1.0, 1.0)
NEWEST_RUNS = 400
# Of a record's file, by the run where its runs are repeated.
RECORD_MB = 0.02
# Time to ask a scheduler for: `SLACK` times the estimate, within these bounds. A job that is
# stopped after a day goes on from its checkpoint.
SLACK, MIN_MINUTES, MAX_MINUTES = 5, 20, 24 * 60


@dataclass(frozen=True)
class Job:
    """One job of the run; by default one that draws a figure, and takes the time of its kind.

    units: of work, as `counting` has them. gpu: whether a GPU does it (`auto` counts as one).
    """

    paper: str
    kind: str
    done: bool
    units: float = 0.0
    gpu: bool = False
    memory_mb: float = 200
    disk_mb: float = 0.4


@functools.cache
def measured() -> dict[Kind, tuple[float, ...]]:
    """By kind: seconds to start, and per unit of work on one core and on a GPU."""
    rows = read_rows(Path(__file__).with_name("seconds.csv"))
    return {(block, kind): tuple(map(float, of)) for block, kind, *of in map(dict.values, rows)}


def seconds_of(kind: Kind, amount: float = 0, gpu: bool = False) -> float:
    """Seconds of a job with so many units of work: CPU time on a CPU, wall time on a GPU."""
    start, on_core, on_gpu = measured().get(kind) or measured().get(("", kind[1])) or GUESS
    # Finite, as JSON has to be.
    return min(start + amount * (on_gpu if gpu else on_core), 1e12)


def job_of(atlas: Atlas, name: str) -> Job:
    """The job of a spec or of a frozen backbone's features, by id; done if what it writes is there.

    Whether code or data changed since, Snakemake knows.
    """
    if features := atlas.frozen_features.get(name):
        network, data = features.network, features.data
        work = records_of(data) * pass_work(network.model, inputs_of(data), network.options)
        done = Path(atlas.features(name), "manifest.json").is_file()
        sizes = atlas.features_memory_mb(name), features.disk_mb
        return Job("shared", "features", done, work, atlas.features_device() != "cpu", *sizes)
    job = atlas.job(name)
    spec, backbone = job.fields, getattr(job.fields, "backbone", None)
    work = units(spec, backbone and atlas.job(backbone).fields)
    sizes = job.memory_mb, RECORD_MB * (spec.runs if isinstance(spec, RunsFields) else 1)
    return Job(spec.key, spec.kind, Path(job.record).is_file(), work, job.device != "cpu", *sizes)


def job_seconds(atlas: Atlas, name: str) -> float:
    """Estimated seconds of a job, as of `job_of`.

    Without past runs, so that neither requests nor verdicts depend on them.
    """
    job = job_of(atlas, name)
    return seconds_of((job.paper, job.kind), job.units, job.gpu)


def minutes(seconds: float, attempt: int = 1) -> int:
    """Minutes to ask a scheduler for, more at each attempt."""
    return min(attempt * math.ceil(max(MIN_MINUTES, SLACK * seconds / 60)), MAX_MINUTES)


def seconds_per_run(atlas: Atlas) -> dict[str, float]:
    """Estimated seconds of a run, its share of its job, by id of specs whose runs are repeated."""
    runs = {name: getattr(atlas.job(name).fields, "runs", None) for name in atlas.specs}
    return {name: job_seconds(atlas, name) / of for name, of in runs.items() if of}


@dataclass(frozen=True)
class PastRun:
    """A finished run: its units of work, and its seconds, actual and by `seconds.csv`."""

    tier: str
    kind: Kind
    gpu: bool
    units: float
    actual_s: float
    estimated_s: float


def past_runs(results: Path, machine: str) -> list[PastRun]:
    """The newest runs under `results` (every tier) on this kind of machine.

    Skips what cannot be read, and records of unknown kinds or without their backbone's: an estimate
    must not fail for an old file.
    """
    runs = []
    costs = sorted(results.glob("*/runs/*/*/cost.json"), key=lambda path: -path.stat().st_mtime)
    for path in costs[:NEWEST_RUNS]:
        with contextlib.suppress(InputError, KeyError, TypeError, ValueError):
            cost, record = read_cost(path), read_record(path.with_name("record.json"))
            spec, backbone = parse_spec(record["spec"], str(path)), None
            if name := getattr(spec, "backbone", None):
                trained = path.parents[2] / "pretrain" / name / "record.json"
                backbone = parse_spec(read_record(trained)["spec"], str(trained))
            # Work that stays on the CPU says nothing about the host's GPU.
            gpu = cost_of(spec).gpu and cost["device"] == "cuda"
            kind, amount = (spec.key, spec.kind), units(spec, backbone)
            seconds = float(cost["wall_s" if gpu else "cpu_s"]), seconds_of(kind, amount, gpu)
            if cost["machine"] == machine and seconds[0] > 0:
                runs.append(PastRun(path.parents[3].name, kind, gpu, amount, *seconds))
    return runs


def factor_of(past: Sequence[PastRun], kind: Kind, gpu: bool) -> float:
    """Actual over estimated seconds of the past runs of a kind; of all, where none of it ran."""
    on_device = [run for run in past if run.gpu == gpu]
    of_kind = [run for run in on_device if run.kind == kind]
    return actual_over_estimate(of_kind or on_device) if on_device else 1.0


def actual_over_estimate(runs: Sequence[PastRun]) -> float:
    """Of these runs together."""
    return sum(run.actual_s for run in runs) / sum(run.estimated_s for run in runs)
