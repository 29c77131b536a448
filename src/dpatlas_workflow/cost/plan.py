"""The estimated cost of a run: jobs, CPU and GPU hours, memory, disk, wall time."""

import functools
import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.base.progress import duration
from dpatlas_workflow.cost.estimate import PastRun, actual_over_estimate, factor_of, seconds_of

PERCENTILES = {"low": 10, "median": 50, "high": 90}


@dataclass(frozen=True)
class Job:
    """One job of the run; by default one that draws a figure, and takes the time of its kind.

    units: of work, as `counting` has them. gpu: whether it runs on a GPU if there is one.
    """

    paper: str
    kind: str
    done: bool
    units: float = 0.0
    gpu: bool = False
    memory_mb: float = 200
    disk_mb: float = 0.4


# By name of a figure or table: its place in the paper, and all runs that have to be there for it.
Targets = Mapping[str, tuple[str, Sequence[Job]]]


def make_plan(
    jobs: Sequence[Job],
    device: str,
    past: Sequence[PastRun],
    cores: int,
    tier: str,
    gpus: int = 1,
    targets: Targets | None = None,
) -> dict[str, Any]:
    """The plan as `plan --json` prints it; hours cover the jobs that are not done yet.

    device: cpu, cuda or auto as in the config; `auto` counts as a GPU. past: runs by which the
    estimates are scaled. targets: may share runs.
    """
    with_gpu = device != "cpu"
    factor = functools.cache(functools.partial(factor_of, past))

    def seconds(job: Job, with_gpu: bool = with_gpu) -> float:
        kind, gpu = (job.paper, job.kind), with_gpu and job.gpu
        return factor(kind, gpu) * seconds_of(kind, job.units, gpu)

    def costs(jobs: Sequence[Job]) -> dict[str, Any]:
        waiting = [job for job in jobs if not job.done]
        return {
            "jobs": len(jobs),
            "done": len(jobs) - len(waiting),
            # A job on a GPU keeps one core busy as well.
            "cpu_hours": sum(map(seconds, waiting)) / 3600,
            "gpu_hours": sum(seconds(job) for job in waiting if with_gpu and job.gpu) / 3600,
            "memory_mb": max((job.memory_mb for job in waiting), default=0),
            "disk_mb": sum(job.disk_mb for job in waiting),
        }

    by_kind: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        by_kind[job.paper, job.kind].append(job)
        by_kind[job.paper, ""].append(job)
    rows = [{"paper": paper, "kind": kind, **costs(of)} for (paper, kind), of in by_kind.items()]
    waiting = [job for job in jobs if not job.done]
    on_gpu, on_cores = (
        [seconds(job) for job in waiting if (with_gpu and job.gpu) == gpu] for gpu in (True, False)
    )
    timed = {(run.kind, run.gpu) for run in past}
    rough = {
        f"{job.paper} {job.kind}"
        for job in waiting
        if job.units and ((job.paper, job.kind), with_gpu and job.gpu) not in timed
    }
    assumptions = ["cores that are free; one thread per job"]
    if on_gpu:
        assumptions.append(
            f"{_count(gpus, 'GPU')}, each with one job at a time, that sustains 10 TFLOP/s in "
            "float32; small steps, which wait for Python, are slower (docs/gpu.md)"
        )
    return {
        "tier": tier,
        "device": device,
        "cores": cores,
        "gpus": gpus if with_gpu else 0,
        "rows": [row for row in rows if row["kind"]],
        "papers": [row for row in rows if not row["kind"]],
        "targets": [
            {"target": name, "place": place, **costs(runs)}
            for name, (place, runs) in (targets or {}).items()
        ],
        "total": {
            "paper": "total",
            "kind": "",
            **costs(jobs),
            "cpu_hours_without_gpu": sum(seconds(job, False) for job in waiting) / 3600,
            "longest_job_hours": max([*on_gpu, *on_cores], default=0.0) / 3600,
            # GPUs work through their jobs while the cores work through the others.
            "wall_hours": max(makespan(on_gpu, gpus), makespan(on_cores, cores)) / 3600,
        },
        "past": {
            "cpu": _past([run for run in past if not run.gpu]),
            "cuda": _past([run for run in past if run.gpu]),
        },
        "rough": sorted(rough),
        "assumptions": assumptions,
    }


def makespan(seconds: Iterable[float], cores: int) -> float:
    """Seconds until all jobs are done if each free core takes the longest job that is left."""
    busy = [0.0] * cores
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + length)
    return max(busy)


def _past(runs: Sequence[PastRun]) -> dict[str, dict[str, float]]:
    """By tier, actual over estimated seconds (by `seconds.csv`) of all its runs, and of each."""
    tiers: dict[str, list[PastRun]] = defaultdict(list)
    for run in runs:
        tiers[run.tier].append(run)
    found = {}
    for tier, of in tiers.items():
        spread = np.percentile([r.actual_s / r.estimated_s for r in of], [*PERCENTILES.values()])
        found[tier] = {"runs": len(of), "of_sum": actual_over_estimate(of)}
        found[tier] |= dict(zip(PERCENTILES, spread.tolist(), strict=True))
    return found


def describe_plan(plan: Mapping[str, Any]) -> str:
    """The plan as text for a reader."""
    total, cores = plan["total"], _count(plan["cores"], "core")
    if plan["gpus"]:
        cores += f", {_count(plan['gpus'], 'GPU')}"
    lines = [f"plan for tier {plan['tier']}, device {plan['device']}, {cores}", ""]
    lines += _table(("paper", "kind", "jobs"), "job", plan["rows"], plan["papers"], [total])
    if plan["targets"]:
        named = [{**row, "paper": row["target"], "kind": row["place"]} for row in plan["targets"]]
        lines += _table(("figure or table", "in the paper", "runs"), "run", named)[:-1]
        lines += ["  each with its tunings and backbones; a run that several need counts for each"]
        lines += [""]
    wall, longest = (_time(total[name]) for name in ("wall_hours", "longest_job_hours"))
    lines.append(f"  wall time with {cores}: about {wall}; longest job {longest}")
    devices = ["cpu"] if plan["device"] == "cpu" else ["cpu", "cuda"]
    if devices[1:]:
        lines.append(f"  without a GPU: {_time(total['cpu_hours_without_gpu'])} of CPU")
    if plan.get("download_mb"):
        lines.append(f"  to download: {plan['download_mb']:.0f} MB of data sets")
    for name in devices:
        if not plan["past"][name]:
            lines.append(f"  no past runs on {name}: rough, by seconds measured on other machines")
        lines += [
            f"  past runs on {name}, tier {tier}, {of['runs']} jobs: actual / estimate before it "
            f"{of['of_sum']:.2f} in all, {of['median']:.2f} of a job (10-90 %: {of['low']:.2f}-"
            f"{of['high']:.2f})"
            for tier, of in plan["past"][name].items()
        ]
    if plan["rough"] and any(plan["past"].values()):
        lines.append(f"  rough, since none was timed here: {', '.join(plan['rough'])}")
    lines += [f"  assumed: {assumption}" for assumption in plan["assumptions"]]
    return "\n".join(lines)


def _table(first: Sequence[str], of: str, *blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    cells: list[Sequence[str]] = [(*first, "done", "CPU", "GPU", f"memory/{of}", "disk")]
    for rows in blocks:
        for row in rows:
            gpu = _time(row["gpu_hours"]) if row["gpu_hours"] else "-"
            words = (row["paper"], row["kind"], str(row["jobs"]), str(row["done"]))
            sizes = (f"{row['memory_mb']:.0f} MB", f"{row['disk_mb']:.1f} MB")
            cells.append((*words, _time(row["cpu_hours"]), gpu, *sizes))
        cells.append(())
    widths = [max(map(len, column)) for column in zip(*filter(None, cells), strict=True)]
    return [
        "".join(
            f"  {text:<{width}}" if column < 2 else f"  {text:>{width}}"
            for column, (text, width) in enumerate(zip(row, widths, strict=False))
        )
        for row in cells
    ]


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _time(hours: float) -> str:
    return duration(3600 * hours)
