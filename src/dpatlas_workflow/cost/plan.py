"""The estimated cost of a run: jobs, CPU and GPU hours, memory, disk, wall time."""

import functools
import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.facts import DataFields
from dpatlas.base.progress import duration
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.sizes import array_mb
from dpatlas_workflow.cost.estimate import (
    Job,
    PastRun,
    actual_over_estimate,
    factor_of,
    job_of,
    seconds_of,
)

# Interpreter and numpy, beside the images themselves.
READING_MB = 200

# By name of a figure or table: its place in the paper, and all runs that have to be there for it.
Targets = Mapping[str, tuple[str, Sequence[Job]]]


def jobs_of(atlas: Atlas) -> list[Job]:
    """Every job of the run: data sets, features, runs, figures and tables, claims and page."""
    jobs = [job_of(atlas, name) for name in atlas.specs]
    for name, product in atlas.products.items():
        file = f"{product.folder}/{name}.{'pdf' if product.kind == 'figure' else 'csv'}"
        done = (atlas.folder / file).is_file()
        jobs.append(Job(atlas.block_of_product[name].key, product.folder, done))
    for name, options in atlas.data_sets.items():
        done = (atlas.folder / "data" / name / "manifest.json").is_file()
        size_mb = array_mb(DataFields.model_validate_json(options))
        memory_mb = READING_MB + 3 * size_mb
        jobs.append(Job("shared", "data", done, memory_mb=memory_mb, disk_mb=size_mb))
    # Without those of a tuning whose outcome is known.
    taken = {Path(path).parent.name for name in atlas.specs for path in atlas.job(name).features}
    jobs += [job_of(atlas, name) for name in atlas.frozen_features if name in taken]
    for path in ("claims.csv", "report/index.html", "manifest.txt"):
        jobs.append(Job("shared", "claims, page, manifest", (atlas.folder / path).is_file()))
    return jobs


def targets_of(atlas: Atlas) -> Targets:
    """Every figure and table with the runs that it needs."""
    return {
        name: (product.place, [job_of(atlas, spec) for spec in atlas.needed_for(name)])
        for name, product in atlas.products.items()
    }


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

    device: cpu, cuda or auto as in the config. past: runs by which the estimates are scaled.
    targets: may share runs.
    """
    factor = functools.cache(functools.partial(factor_of, past))

    def seconds(job: Job, gpu: bool) -> float:
        kind = job.paper, job.kind
        return factor(kind, gpu) * seconds_of(kind, job.units, gpu)

    def costs(jobs: Sequence[Job], **names: str) -> dict[str, Any]:
        waiting = [job for job in jobs if not job.done]
        return {
            **names,
            "jobs": len(jobs),
            "done": len(jobs) - len(waiting),
            # A job on a GPU keeps one core busy as well.
            "cpu_hours": sum(seconds(job, job.gpu) for job in waiting) / 3600,
            "gpu_hours": sum(seconds(job, True) for job in waiting if job.gpu) / 3600,
            "memory_mb": max((job.memory_mb for job in waiting), default=0),
            "disk_mb": sum(job.disk_mb for job in waiting),
        }

    by_kind: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        by_kind[job.paper, job.kind].append(job)
        by_kind[job.paper, ""].append(job)
    rows = [costs(of, paper=paper, kind=kind) for (paper, kind), of in by_kind.items()]
    waiting = [job for job in jobs if not job.done]
    on_gpu, on_cores = (
        [seconds(job, gpu) for job in waiting if job.gpu == gpu] for gpu in (True, False)
    )
    timed = {(*run.kind, run.gpu) for run in past}
    rough = {
        f"{job.paper} {job.kind}"
        for job in waiting
        if job.units and (job.paper, job.kind, job.gpu) not in timed
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
        "gpus": 0 if device == "cpu" else gpus,
        "rows": [row for row in rows if row["kind"]],
        "papers": [row for row in rows if not row["kind"]],
        "targets": [
            costs(runs, target=name, place=place) for name, (place, runs) in (targets or {}).items()
        ],
        "total": {
            **costs(jobs, paper="total", kind=""),
            "cpu_hours_without_gpu": sum(seconds(job, False) for job in waiting) / 3600,
            "longest_job_hours": max([*on_gpu, *on_cores], default=0.0) / 3600,
            # GPUs work through their jobs while the cores work through the others.
            "wall_hours": max(makespan(on_gpu, gpus), makespan(on_cores, cores)) / 3600,
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
    tiers = {}
    for tier in dict.fromkeys(run.tier for run in runs):
        of = [run for run in runs if run.tier == tier]
        ratios = [run.actual_s / run.estimated_s for run in of]
        low, median, high = np.percentile(ratios, [10, 50, 90]).tolist()
        tiers[tier] = {"runs": len(of), "of_sum": actual_over_estimate(of)}
        tiers[tier] |= {"low": low, "median": median, "high": high}
    return tiers


def describe_plan(plan: Mapping[str, Any]) -> str:
    """The plan as text for a reader."""
    total, cores = plan["total"], _count(plan["cores"], "core")
    if plan["gpus"]:
        cores += f", {_count(plan['gpus'], 'GPU')}"
    lines = [f"plan for tier {plan['tier']}, device {plan['device']}, {cores}", ""]
    lines += _table(("paper", "kind", "jobs"), "job", plan["rows"], plan["papers"], [total])
    if plan["targets"]:
        lines += _table(("figure or table", "in the paper", "runs"), "run", plan["targets"])[:-1]
        lines += ["  each with its tunings and backbones; a run that several need counts for each"]
        lines += [""]
    wall, longest = (_time(total[name]) for name in ("wall_hours", "longest_job_hours"))
    lines.append(f"  wall time with {cores}: about {wall}; longest job {longest}")
    devices = ["cpu"]
    if plan["device"] != "cpu":
        devices.append("cuda")
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
            name, kind, jobs, done, *_ = row.values()
            gpu = _time(row["gpu_hours"]) if row["gpu_hours"] else "-"
            sizes = (f"{row['memory_mb']:.0f} MB", f"{row['disk_mb']:.1f} MB")
            cells.append((name, kind, f"{jobs}", f"{done}", _time(row["cpu_hours"]), gpu, *sizes))
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
