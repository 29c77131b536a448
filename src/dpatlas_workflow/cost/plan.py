"""The estimated cost of a run: jobs, CPU and GPU hours, memory, disk, wall time."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.base.progress import duration
from dpatlas_workflow.cost.estimate import Estimates, PastRun, actual_over_estimate

PERCENTILES = (10, 50, 90)


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


@dataclass(frozen=True)
class Target:
    """A figure or table, its place in the paper, and all runs that have to be there for it."""

    name: str
    place: str
    runs: Sequence[Job]


def make_plan(
    jobs: Sequence[Job],
    device: str,
    past: Sequence[PastRun],
    cores: int,
    tier: str,
    gpus: int = 1,
    targets: Sequence[Target] = (),
) -> dict[str, Any]:
    """The plan as `plan --json` prints it; hours cover the jobs that are not done yet.

    device: cpu, cuda or auto as in the config; `auto` counts as a GPU. past: runs by which the
    estimates are scaled. targets: may share runs.
    """
    estimates, with_gpu = Estimates(past), device != "cpu"

    def seconds(job: Job, with_gpu: bool = with_gpu) -> float:
        return estimates.seconds((job.paper, job.kind), job.units, with_gpu and job.gpu)

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
    lengths: dict[bool, list[float]] = {True: [], False: []}
    for job in waiting:
        lengths[with_gpu and job.gpu].append(seconds(job))
    timed = {(run.kind, run.gpu) for run in past}
    rough = {
        f"{job.paper} {job.kind}"
        for job in waiting
        if job.units and ((job.paper, job.kind), with_gpu and job.gpu) not in timed
    }
    assumptions = ["cores that are free; one thread per job"]
    if lengths[True]:
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
        "targets": [{"target": of.name, "place": of.place, **costs(of.runs)} for of in targets],
        "total": {
            "paper": "total",
            "kind": "",
            **costs(jobs),
            "cpu_hours_without_gpu": sum(seconds(job, False) for job in waiting) / 3600,
            "longest_job_hours": max([*lengths[True], *lengths[False]], default=0.0) / 3600,
            # GPUs work through their jobs while the cores work through the others.
            "wall_hours": max(makespan(lengths[True], gpus), makespan(lengths[False], cores))
            / 3600,
        },
        "past": {
            name: _past([run for run in past if run.gpu == gpu])
            for name, gpu in (("cpu", False), ("cuda", True))
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
    return {
        tier: {"runs": len(of), "of_sum": actual_over_estimate(of)}
        | dict(
            zip(
                ("low", "median", "high"),
                np.percentile([r.actual_s / r.estimated_s for r in of], PERCENTILES).tolist(),
                strict=True,
            )
        )
        for tier, of in tiers.items()
    }


def describe_plan(plan: Mapping[str, Any]) -> str:
    """The plan as text for a reader."""
    total, cores = plan["total"], _count(plan["cores"], "core")
    if plan["gpus"]:
        cores += f", {_count(plan['gpus'], 'GPU')}"
    header = ("paper", "kind", "jobs", "done", "CPU", "GPU", "memory/job", "disk")
    lines = [f"plan for tier {plan['tier']}, device {plan['device']}, {cores}", ""]
    lines += _table(header, [plan["rows"], plan["papers"], [total]])
    if plan["targets"]:
        header = ("figure or table", "in the paper", "runs", *header[3:6], "memory/run", "disk")
        named = [{**row, "paper": row["target"], "kind": row["place"]} for row in plan["targets"]]
        note = "  each with its tunings and backbones; a run that several need counts for each"
        lines += [*_table(header, [named])[:-1], note, ""]
    wall, longest = (_time(total[name]) for name in ("wall_hours", "longest_job_hours"))
    lines.append(f"  wall time with {cores}: about {wall}; longest job {longest}")
    devices = ["cpu"] if plan["device"] == "cpu" else ["cpu", "cuda"]
    if devices[1:]:
        lines.append(f"  without a GPU: {_time(total['cpu_hours_without_gpu'])} of CPU")
    if plan.get("download_mb"):
        lines.append(f"  to download: {plan['download_mb']:.0f} MB of data sets")
    for name in devices:
        if not (tiers := plan["past"][name]):
            known = "rough, by seconds measured on other machines"
            lines.append(f"  no past runs on {name}: {known}")
        lines += [
            f"  past runs on {name}, tier {tier}, {of['runs']} jobs: actual / estimate before it "
            f"{of['of_sum']:.2f} in all, {of['median']:.2f} of a job (10-90 %: {of['low']:.2f}-"
            f"{of['high']:.2f})"
            for tier, of in tiers.items()
        ]
    if plan["rough"] and any(plan["past"].values()):
        lines.append(f"  rough, since none was timed here: {', '.join(plan['rough'])}")
    lines += [f"  assumed: {assumption}" for assumption in plan["assumptions"]]
    return "\n".join(lines)


def _table(header: Sequence[str], blocks: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    cells: list[Sequence[str]] = [header]
    for rows in blocks:
        for row in rows:
            cpu, gpu = _time(row["cpu_hours"]), row["gpu_hours"]
            words = (row["paper"], row["kind"], str(row["jobs"]), str(row["done"]), cpu)
            sizes = (f"{row['memory_mb']:.0f} MB", f"{row['disk_mb']:.1f} MB")
            cells.append((*words, _time(gpu) if gpu else "-", *sizes))
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
