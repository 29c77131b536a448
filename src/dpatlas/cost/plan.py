"""The estimated cost of a run: jobs, CPU and GPU hours, memory, disk, wall time."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.core.progress import duration
from dpatlas.cost.counting import Work
from dpatlas.cost.rates import Rates, fit, past_runs

# Ratio of wall to CPU time above which the plan says that past runs shared their cores.
SLOWED = 1.2
# CPU seconds of Snakemake's own process, at its start and per job; measured, see docs/scale.md.
ORCHESTRATION_S, ORCHESTRATION_PER_JOB_S = 2.5, 0.03
# Jobs that train nothing, measured: CPU seconds by kind; of these, the seconds to start and import;
# memory in MB; bytes of output.
DRAWING_S = {"figures": 4.5, "tables": 1.5, "data": 4.0, "claims, page, manifest": 1.5}
STARTING_S, DRAWING_MB, DRAWING_BYTES = 1.2, 200, 400_000


@dataclass(frozen=True)
class Job:
    """One job of the run. `work` is None for jobs whose time is a constant of their kind.

    gpu: whether the work runs on a GPU if there is one. disk_bytes: size of the output where `work`
    is None.
    """

    paper: str
    kind: str
    done: bool
    work: Work | None = None
    gpu: bool = False
    memory_mb: float = DRAWING_MB
    disk_bytes: float = DRAWING_BYTES

    @property
    def written_mb(self) -> float:
        """Size of the output in MB."""
        return (self.work.record_bytes if self.work else self.disk_bytes) / 2**20


@dataclass(frozen=True)
class Target:
    """A figure or table, its place in the paper, and all runs that have to be there for it."""

    name: str
    place: str
    runs: Sequence[Job]


def make_plan(
    jobs: Sequence[Job],
    device: str,
    results: Path | None,
    cores: int,
    tier: str,
    gpus: int = 1,
    targets: Sequence[Target] = (),
) -> dict[str, Any]:
    """The plan as `plan --json` prints it; hours cover the jobs that are not done yet.

    device: cpu, cuda or auto as in the config; `auto` counts as a GPU. results: of past runs, to
    which the rates are fitted; None for the default rates. targets: may share runs.
    """
    past = {name: past_runs(results, name) if results else [] for name in ("cpu", "cuda")}
    rates = {name: fit(runs, name) for name, runs in past.items()}
    gpu = device != "cpu"
    rows: dict[tuple[str, str], list[Job]] = {}
    papers: dict[str, list[Job]] = {}
    for job in jobs:
        rows.setdefault((job.paper, job.kind), []).append(job)
        papers.setdefault(job.paper, []).append(job)
    waiting = [job for job in jobs if not job.done]
    on_gpu = [job for job in waiting if _on_gpu(job, gpu)]
    gpu_s = [_seconds(job, rates, gpu) for job in on_gpu]
    cpu_s = [_seconds(job, rates, gpu) for job in waiting if not _on_gpu(job, gpu)]
    return {
        "tier": tier,
        "device": device,
        "cores": cores,
        "gpus": gpus if gpu else 0,
        "rows": [_row(*key, members, rates, gpu) for key, members in rows.items()],
        "papers": [_row(paper, "", members, rates, gpu) for paper, members in papers.items()],
        "targets": [
            {"target": each.name, "place": each.place, **_costs(each.runs, rates, gpu)}
            for each in targets
        ],
        "total": {
            **_row("total", "", jobs, rates, gpu),
            "cpu_hours_without_gpu": _hours(_seconds(job, rates, False) for job in waiting),
            "longest_job_hours": max([*gpu_s, *cpu_s], default=0.0) / 3600,
            # GPUs work through their jobs while the cores work through the others.
            "wall_hours": max(makespan(gpu_s, gpus), makespan(cpu_s, cores)) / 3600,
        },
        "overhead": _overhead(waiting, rates, gpu),
        "past": {name: _past(rates[name], past[name]) for name in past},
        "assumptions": _assumptions(device, rates, jobs, gpus),
    }


def makespan(seconds: Iterable[float], cores: int) -> float:
    """Seconds until all jobs are done if each free core takes the longest job that is left."""
    busy = [0.0] * cores
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + length)
    return max(busy)


def describe_plan(plan: Mapping[str, Any]) -> str:
    """The plan as text for a reader."""
    total = plan["total"]
    cores = _count(plan["cores"], "core")
    if plan["gpus"]:
        cores += f", {_count(plan['gpus'], 'GPU')}"
    header = ("paper", "kind", "jobs", "done", "CPU", "GPU", "memory/job", "disk")
    blocks = [plan["rows"], plan["papers"], [total]]
    cells = [header, *(_cells(row) for rows in blocks for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"plan for tier {plan['tier']}, device {plan['device']}, {cores}", ""]
    lines.append(_line(header, widths))
    for rows in blocks:
        lines += [*(_line(_cells(row), widths) for row in rows), ""]
    if plan["targets"]:
        lines += _target_lines(plan["targets"])
    lines += [f"  wall time with {cores}: about {_time(total['wall_hours'])}"]
    lines[-1] += f"; longest job {_time(total['longest_job_hours'])}"
    if plan["device"] != "cpu":
        lines.append(f"  without a GPU: {_time(total['cpu_hours_without_gpu'])} of CPU")
    if plan.get("download_mb"):
        lines.append(f"  to download: {plan['download_mb']:.0f} MB of data sets")
    overhead = plan["overhead"]
    lines.append(
        f"  of the CPU time about {_time(overhead['start_hours'])} to start jobs and import, "
        f"{_time(overhead['orchestration_hours'])} of Snakemake: {overhead['share']:.0%} together"
    )
    devices = ["cpu"] if plan["device"] == "cpu" else ["cpu", "cuda"]
    for name in devices:
        lines += [f"  {line}" for line in _past_lines(name, plan["past"][name])]
    lines += [f"  assumed: {assumption}" for assumption in plan["assumptions"]]
    return "\n".join(lines)


def _on_gpu(job: Job, gpu: bool) -> bool:
    return gpu and job.gpu


def _seconds(job: Job, rates: Mapping[str, Rates], gpu: bool) -> float:
    if job.work is None:
        return DRAWING_S[job.kind]
    device = "cuda" if _on_gpu(job, gpu) else "cpu"
    return rates[device].estimate(job.work.counts, (job.paper, job.kind))


def _overhead(waiting: Sequence[Job], rates: Mapping[str, Rates], gpu: bool) -> dict[str, float]:
    """Hours to start jobs and to run Snakemake, and their share of all CPU time."""
    starts = sum(_start_seconds(job, rates, gpu) for job in waiting)
    orchestration = ORCHESTRATION_S + ORCHESTRATION_PER_JOB_S * len(waiting)
    total = sum(_seconds(job, rates, gpu) for job in waiting) + orchestration
    return {
        "start_hours": starts / 3600,
        "orchestration_hours": orchestration / 3600,
        "share": (starts + orchestration) / total,
    }


def _start_seconds(job: Job, rates: Mapping[str, Rates], gpu: bool) -> float:
    """The part of `_seconds` in which interpreters start and import."""
    if job.work is None:
        return STARTING_S
    device = "cuda" if _on_gpu(job, gpu) else "cpu"
    # Without the factor of the kind: imports take the same time in all kinds.
    starting = rates[device].seconds["starts"] * job.work.counts.get("starts", 0.0)
    return min(starting, _seconds(job, rates, gpu))


def _row(
    paper: str, kind: str, jobs: Sequence[Job], rates: Mapping[str, Rates], gpu: bool
) -> dict[str, Any]:
    return {"paper": paper, "kind": kind, **_costs(jobs, rates, gpu)}


def _costs(jobs: Sequence[Job], rates: Mapping[str, Rates], gpu: bool) -> dict[str, Any]:
    waiting = [job for job in jobs if not job.done]
    return {
        "jobs": len(jobs),
        "done": len(jobs) - len(waiting),
        # A job on a GPU keeps one core busy as well.
        "cpu_hours": _hours(_seconds(job, rates, gpu) for job in waiting),
        "gpu_hours": _hours(_seconds(job, rates, gpu) for job in waiting if _on_gpu(job, gpu)),
        "memory_mb": max((job.memory_mb for job in waiting), default=0),
        "disk_mb": sum(job.written_mb for job in waiting),
        "checkpoint_mb": max((job.work.checkpoint_bytes for job in waiting if job.work), default=0)
        / 2**20,
    }


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _hours(seconds: Iterable[float]) -> float:
    return sum(seconds) / 3600


def _past(rates: Rates, runs: Sequence[Any]) -> dict[str, Any]:
    tiers = dict.fromkeys(run.tier for run in rates.validated)
    return {
        "runs": rates.runs,
        "actual_over_estimate": rates.spread(),
        "by_tier": {tier: rates.spread(tier) for tier in tiers},
        "wall_over_cpu": rates.waiting,
        "peak_memory_mb": max((run.memory_mb for run in runs), default=None),
        "seconds_per_unit": dict(rates.seconds),
    }


def _past_lines(device: str, past: Mapping[str, Any]) -> list[str]:
    if not past["runs"]:
        return [f"no past runs on {device}: default rates"]
    memory = f"largest memory {past['peak_memory_mb']:.0f} MB"
    lines = [f"past runs on {device}: {past['runs']}; {memory}"]
    for tier, spread in past["by_tier"].items():
        lines.append(
            f"  tier {tier}, {spread['runs']} of over a second, each estimated from others: actual "
            f"/ estimate {spread['median']:.2f} (10-90 %: {spread['low']:.2f}-{spread['high']:.2f})"
            f", {spread['of_sum']:.2f} in all"
        )
    if past["wall_over_cpu"] > SLOWED:
        lines.append(
            f"past runs on {device} took {past['wall_over_cpu']:.1f} times their CPU time: "
            "their cores were shared"
        )
    return lines


def _assumptions(
    device: str, rates: Mapping[str, Rates], jobs: Sequence[Job], gpus: int
) -> list[str]:
    assumptions = ["cores that are free; one thread per job"]
    if device != "cpu" and any(_on_gpu(job, True) for job in jobs):
        assumptions.append(f"{_count(gpus, 'GPU')}, each with one job at a time")
        if not rates["cuda"].runs:
            speed = 1e-12 / rates["cuda"].seconds["products"]
            assumptions.append(
                f"{speed:g} TFLOP/s sustained in float32, whatever the GPU; small steps, which "
                "wait for Python, are slower (docs/gpu.md)"
            )
    return assumptions


def _target_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    header = ("figure or table", "in the paper", "runs", "done", "CPU", "GPU", "memory/run", "disk")
    rows = [_cells({**row, "paper": row["target"], "kind": row["place"]}) for row in targets]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    note = "  each with its tunings and backbones; a run that several need counts for each"
    return [_line(header, widths), *(_line(row, widths) for row in rows), note, ""]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [f"{text:<{width}}" for text, width in zip(cells[:2], widths[:2], strict=True)]
    numbers = [f"{text:>{width}}" for text, width in zip(cells[2:], widths[2:], strict=True)]
    return "  " + "  ".join([*texts, *numbers])


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


def _time(hours: float) -> str:
    return duration(3600 * hours)
