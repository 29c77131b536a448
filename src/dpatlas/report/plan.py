"""What a run would cost before anything runs: jobs, CPU and GPU hours, memory, disk, wall time."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.report.lineage_text import duration
from dpatlas.report.rates import Rates, fit, past_runs
from dpatlas.report.work import Size, Work, work

# Wall over CPU time from which past runs are said to have shared their cores.
SLOWED = 1.2
# Figures, tables, claims and page: seconds, memory in MB and bytes of what each writes.
DRAWING_S, DRAWING_MB, DRAWING_BYTES = 4.0, 200, 400_000


@dataclass(frozen=True)
class Job:
    """One job of the run. `work` is None for drawing, whose cost is a constant."""

    paper: str
    kind: str
    done: bool
    work: Work | None = None
    memory_mb: float = DRAWING_MB


def run_job(fields: Mapping[str, Any], size: Size, memory_mb: float, done: bool) -> Job:
    """The job of the spec with these fields, with its backbone's in place of the backbone's id."""
    return Job(fields["key"], fields["kind"], done, work(fields, size), memory_mb)


def make_plan(
    jobs: Sequence[Job], device: str, results: Path, cores: int, tier: str
) -> dict[str, Any]:
    """The plan as `plan --json` prints it; hours are of jobs that are not done yet.

    device: cpu, cuda or auto as in the config. `auto` is planned for a GPU.
    """
    past = {name: past_runs(results, name) for name in ("cpu", "cuda")}
    rates = {name: fit(runs, name) for name, runs in past.items()}
    gpu = device != "cpu"
    rows: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        rows.setdefault((job.paper, job.kind), []).append(job)
    waiting = [job for job in jobs if not job.done]
    on_gpu = [job for job in waiting if _on_gpu(job, gpu)]
    gpu_s = [_seconds(job, rates, gpu) for job in on_gpu]
    cpu_s = [_seconds(job, rates, gpu) for job in waiting if not _on_gpu(job, gpu)]
    return {
        "tier": tier,
        "device": device,
        "cores": cores,
        "rows": [_row(*key, members, rates, gpu) for key, members in rows.items()],
        "total": {
            **_row("total", "", jobs, rates, gpu),
            "cpu_hours_without_gpu": _hours(_seconds(job, rates, False) for job in waiting),
            "longest_job_hours": max([*gpu_s, *cpu_s], default=0.0) / 3600,
            # One GPU takes its jobs in turn while the cores do the others.
            "wall_hours": max(sum(gpu_s), makespan(cpu_s, cores)) / 3600,
        },
        "past": {name: _past(rates[name], past[name]) for name in past},
        "assumptions": _assumptions(device, rates, jobs),
    }


def makespan(seconds: Iterable[float], cores: int) -> float:
    """Seconds until all jobs are done when each free core takes the longest that is left."""
    busy = [0.0] * cores
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + length)
    return max(busy)


def describe_plan(plan: Mapping[str, Any]) -> str:
    """The plan for people."""
    total = plan["total"]
    cores = "1 core" if plan["cores"] == 1 else f"{plan['cores']} cores"
    header = ("paper", "kind", "jobs", "done", "CPU", "GPU", "memory/job", "disk")
    cells = [header, *(_cells(row) for row in [*plan["rows"], total])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"plan for tier {plan['tier']}, device {plan['device']}, {cores}", ""]
    for row in cells:
        texts = [f"{text:<{width}}" for text, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [f"{text:>{width}}" for text, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  " + "  ".join([*texts, *numbers]))
    lines += ["", f"  wall time with {cores}: about {_time(total['wall_hours'])}"]
    lines[-1] += f"; longest job {_time(total['longest_job_hours'])}"
    if plan["device"] != "cpu":
        lines.append(f"  without a GPU: {_time(total['cpu_hours_without_gpu'])} of CPU")
    devices = ["cpu"] if plan["device"] == "cpu" else ["cpu", "cuda"]
    for name in devices:
        lines += [f"  {line}" for line in _past_lines(name, plan["past"][name])]
    lines += [f"  assumed: {assumption}" for assumption in plan["assumptions"]]
    return "\n".join(lines)


def _on_gpu(job: Job, gpu: bool) -> bool:
    return gpu and job.work is not None and job.work.on_gpu


def _seconds(job: Job, rates: Mapping[str, Rates], gpu: bool) -> float:
    if job.work is None:
        return DRAWING_S
    return rates["cuda" if _on_gpu(job, gpu) else "cpu"].estimate(job.work.counts)


def _row(
    paper: str, kind: str, jobs: Sequence[Job], rates: Mapping[str, Rates], gpu: bool
) -> dict[str, Any]:
    waiting = [job for job in jobs if not job.done]
    return {
        "paper": paper,
        "kind": kind,
        "jobs": len(jobs),
        "done": len(jobs) - len(waiting),
        # A job on a GPU keeps one core busy as well.
        "cpu_hours": _hours(_seconds(job, rates, gpu) for job in waiting),
        "gpu_hours": _hours(_seconds(job, rates, gpu) for job in waiting if _on_gpu(job, gpu)),
        "memory_mb": max((job.memory_mb for job in waiting), default=0),
        "disk_mb": sum(job.work.record_bytes if job.work else DRAWING_BYTES for job in waiting)
        / 2**20,
        "checkpoint_mb": max((job.work.checkpoint_bytes for job in waiting if job.work), default=0)
        / 2**20,
    }


def _hours(seconds: Iterable[float]) -> float:
    return sum(seconds) / 3600


def _past(rates: Rates, runs: Sequence[Any]) -> dict[str, Any]:
    return {
        "runs": rates.runs,
        "actual_over_estimate": rates.spread(),
        "judged": len(rates.errors),
        "wall_over_cpu": rates.waiting,
        "peak_memory_mb": max((run.memory_mb for run in runs), default=None),
        "seconds_per_unit": dict(rates.seconds),
    }


def _past_lines(device: str, past: Mapping[str, Any]) -> list[str]:
    if not past["runs"]:
        return [f"no past runs on {device}: default rates"]
    lines = [f"past runs on {device}: {past['runs']}"]
    if spread := past["actual_over_estimate"]:
        lines[0] += (
            f"; {past['judged']} of over a second, each estimated from the others: actual / "
            f"estimate {spread['median']:.2f} (10-90 %: {spread['low']:.2f}-{spread['high']:.2f})"
        )
    lines[0] += f"; largest memory {past['peak_memory_mb']:.0f} MB"
    if past["wall_over_cpu"] > SLOWED:
        lines.append(
            f"on {device} they took {past['wall_over_cpu']:.1f} times their CPU time: busy cores"
        )
    return lines


def _assumptions(device: str, rates: Mapping[str, Rates], jobs: Sequence[Job]) -> list[str]:
    found = ["cores that are free; one thread per job"]
    if device != "cpu" and any(_on_gpu(job, True) for job in jobs):
        found.append("one GPU, which takes its jobs in turn")
        if not rates["cuda"].runs:
            speed = 1e-12 / rates["cuda"].seconds["products"]
            found.append(f"never measured on a GPU: {speed:g} TFLOP/s sustained in float32")
    return found


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
