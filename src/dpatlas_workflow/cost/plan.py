"""The estimated cost of a run: jobs, CPU and GPU hours, memory, disk, wall time."""

import heapq
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

    def seconds(job: Job, gpu: bool = with_gpu) -> float:
        return estimates.seconds((job.paper, job.kind), job.units, gpu and job.gpu)

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

    rows: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        rows.setdefault((job.paper, job.kind), []).append(job)
        rows.setdefault((job.paper, ""), []).append(job)
    parts = [{"paper": paper, "kind": kind, **costs(each)} for (paper, kind), each in rows.items()]
    waiting = [job for job in jobs if not job.done]
    gpu_s = [seconds(job) for job in waiting if with_gpu and job.gpu]
    cpu_s = [seconds(job) for job in waiting if not (with_gpu and job.gpu)]
    timed = {(run.kind, run.gpu) for run in past}
    rough = {
        f"{job.paper} {job.kind}"
        for job in waiting
        if job.units and ((job.paper, job.kind), with_gpu and job.gpu) not in timed
    }
    assumptions = ["cores that are free; one thread per job"]
    if gpu_s:
        assumptions.append(
            f"{_count(gpus, 'GPU')}, each with one job at a time, that sustains 10 TFLOP/s in "
            "float32; small steps, which wait for Python, are slower (docs/gpu.md)"
        )
    return {
        "tier": tier,
        "device": device,
        "cores": cores,
        "gpus": gpus if with_gpu else 0,
        "rows": [row for row in parts if row["kind"]],
        "papers": [row for row in parts if not row["kind"]],
        "targets": [
            {"target": each.name, "place": each.place, **costs(each.runs)} for each in targets
        ],
        "total": {
            "paper": "total",
            "kind": "",
            **costs(jobs),
            "cpu_hours_without_gpu": sum(seconds(job, False) for job in waiting) / 3600,
            "longest_job_hours": max([*gpu_s, *cpu_s], default=0.0) / 3600,
            # GPUs work through their jobs while the cores work through the others.
            "wall_hours": max(makespan(gpu_s, gpus), makespan(cpu_s, cores)) / 3600,
        },
        "past": {
            name: _off([run for run in past if run.gpu == (name == "cuda")])
            for name in ("cpu", "cuda")
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


def _off(runs: Sequence[PastRun]) -> dict[str, dict[str, float]]:
    """By tier, actual over estimated seconds (by `seconds.csv`) of all its runs, and of each."""
    found = {}
    for tier in dict.fromkeys(run.tier for run in runs):
        of_tier = [run for run in runs if run.tier == tier]
        ratios = [run.actual_s / run.estimated_s for run in of_tier]
        low, median, high = map(float, np.percentile(ratios, PERCENTILES))
        together = actual_over_estimate(of_tier)
        counts = {"runs": len(of_tier), "of_sum": together}
        found[tier] = {**counts, "low": low, "median": median, "high": high}
    return found


def describe_plan(plan: Mapping[str, Any]) -> str:
    """The plan as text for a reader."""
    total = plan["total"]
    cores = _count(plan["cores"], "core")
    if plan["gpus"]:
        cores += f", {_count(plan['gpus'], 'GPU')}"
    header = ("paper", "kind", "jobs", "done", "CPU", "GPU", "memory/job", "disk")
    blocks = [plan["rows"], plan["papers"], [total]]
    lines = [f"plan for tier {plan['tier']}, device {plan['device']}, {cores}", ""]
    lines += _table(header, blocks)
    if plan["targets"]:
        header = ("figure or table", "in the paper", "runs", *header[3:6], "memory/run", "disk")
        named = [{**row, "paper": row["target"], "kind": row["place"]} for row in plan["targets"]]
        note = "  each with its tunings and backbones; a run that several need counts for each"
        lines += [*_table(header, [named])[:-1], note, ""]
    lines.append(
        f"  wall time with {cores}: about {_time(total['wall_hours'])}; longest job "
        f"{_time(total['longest_job_hours'])}"
    )
    if plan["device"] != "cpu":
        lines.append(f"  without a GPU: {_time(total['cpu_hours_without_gpu'])} of CPU")
    if plan.get("download_mb"):
        lines.append(f"  to download: {plan['download_mb']:.0f} MB of data sets")
    for name in ["cpu"] if plan["device"] == "cpu" else ["cpu", "cuda"]:
        lines += [f"  {line}" for line in _past_lines(name, plan["past"][name])]
    if plan["rough"] and any(plan["past"].values()):
        lines.append(f"  rough, since none was timed here: {', '.join(plan['rough'])}")
    lines += [f"  assumed: {assumption}" for assumption in plan["assumptions"]]
    return "\n".join(lines)


def _past_lines(device: str, tiers: Mapping[str, Any]) -> list[str]:
    if not tiers:
        return [f"no past runs on {device}: rough, by seconds measured on other machines"]
    return [
        f"past runs on {device}, tier {tier}, {off['runs']} jobs: actual / estimate before it "
        f"{off['of_sum']:.2f} in all, {off['median']:.2f} of a job (10-90 %: {off['low']:.2f}-"
        f"{off['high']:.2f})"
        for tier, off in tiers.items()
    ]


def _table(header: Sequence[str], blocks: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Lines of a table, with an empty one behind each block of rows."""
    cells = [[_cells(row) for row in rows] for rows in blocks]
    columns = zip(header, *(row for rows in cells for row in rows), strict=True)
    widths = [max(map(len, column)) for column in columns]

    def line(row: Sequence[str]) -> str:
        words = [
            f"{text:<{width}}" if place < 2 else f"{text:>{width}}"
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  " + "  ".join(words)

    return [line(header), *(text for rows in cells for text in [*map(line, rows), ""])]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["paper"],
        row["kind"],
        str(row["jobs"]),
        str(row["done"]),
        _time(row["cpu_hours"]),
        _time(row["gpu_hours"]) if row["gpu_hours"] else "-",
        f"{row['memory_mb']:.0f} MB",
        f"{row['disk_mb']:.1f} MB",
    )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _time(hours: float) -> str:
    return duration(3600 * hours)
