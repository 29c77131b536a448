"""Races: one worker process per candidate, which take turns.

All candidates of a case run once in every round, and every ratio is between two repetitions of the
same round, so that a slower machine slows both. Times are CPU times, not wall times, but for cases
on a GPU, where a candidate that lacks memory or a package is left out.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from dpatlas.base.progress import Progress, say
from dpatlas.bench.kernels import Candidate
from dpatlas.errors import RunError, one_line

REFERENCE = "plain"


class Worker:
    """A candidate's process."""

    def __init__(self, module: str, candidate: Candidate, case: dict[str, Any]):
        self.candidate = candidate
        self.seconds: list[float] = []
        self.memory_bytes = 0
        # Not a pipe: a library that prints much would fill it and block for ever.
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        command = [sys.executable, "-m", "dpatlas.bench.worker", module, candidate.name]
        self.process = subprocess.Popen(
            [*command, json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def answer(self) -> dict[str, Any]:
        """The next line that the process prints; RunError if it has died."""
        line = self.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        reason = lines[-1] if lines else f"exit code {self.process.returncode}"
        raise RunError(f"bench: candidate {self.candidate.name} failed: {one_line(reason)}")

    def run_once(self) -> None:
        """One repetition; its CPU seconds are added to `seconds`."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write("go\n")
            self.stdin.flush()
        self.seconds.append(self.answer()["seconds"])

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self.errors):
            with contextlib.suppress(OSError):
                stream.close()


def race(
    module: str,
    name: str,
    case: dict[str, Any],
    candidates: Sequence[Candidate],
    repeats: int,
) -> list[dict[str, Any]]:
    """Run `repeats` rounds of one case; one row per candidate, in the order given.

    A row has `case`, `candidate`, `time_ratio` (median, min and max over rounds) and
    `memory_ratio` to the candidate `plain`, `time_ratio_same_products` to the plain step with the
    same matrix products, and the absolute `cpu_s` (median), `memory_mb` and `rounds`.
    `memory_ratio` is None where `plain` used nothing measurable. On a GPU `gpu_s` stands in the
    place of `cpu_s`, and a candidate but `plain` that fails to set up has the row
    {"case", "candidate", "left_out"}, which says why.
    """
    on_gpu = case.get("device", "cpu") != "cpu"
    running: list[Worker] = []
    left_out: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        say(f"{name}: {len(candidates)} candidates set up and warm up")
        # On a GPU one after another, since they share its memory.
        for together in [[one] for one in candidates] if on_gpu else [candidates]:
            started = [Worker(module, candidate, case) for candidate in together]
            for worker in started:
                stack.callback(worker.close)
            for worker in started:
                try:
                    # After set-up and warm-up.
                    worker.memory_bytes = worker.answer()["memory_bytes"]
                except RunError as error:
                    if not on_gpu or worker.candidate.name == REFERENCE:
                        raise
                    left_out[worker.candidate.name] = str(error)
                    say(str(error))
                else:
                    running.append(worker)
        limits = [min(repeats, worker.candidate.rounds or repeats) for worker in running]
        with Progress(sum(limits), name) as progress:
            for number in range(repeats):
                for worker, limit in zip(running, limits, strict=True):
                    if number < limit:
                        worker.run_once()
                        progress.advance(worker.candidate.name)
    by_name = {worker.candidate.name: worker for worker in running}
    return [
        {"case": name, "candidate": candidate.name, "left_out": left_out[candidate.name]}
        if candidate.name in left_out
        else _row(name, by_name[candidate.name], by_name, "gpu_s" if on_gpu else "cpu_s")
        for candidate in candidates
    ]


def _row(case: str, worker: Worker, by_name: dict[str, Worker], clock: str) -> dict[str, Any]:
    # The plain step with the same products may have been left out.
    plain = by_name[REFERENCE]
    baseline = by_name.get(worker.candidate.baseline, plain)
    measurable = plain.memory_bytes > 0
    return {
        "case": case,
        "candidate": worker.candidate.name,
        "time_ratio": _ratios(worker.seconds, plain.seconds),
        "memory_ratio": worker.memory_bytes / plain.memory_bytes if measurable else None,
        "time_ratio_same_products": _ratios(worker.seconds, baseline.seconds),
        clock: statistics.median(worker.seconds),
        "memory_mb": worker.memory_bytes / 2**20,
        "rounds": len(worker.seconds),
    }


def _ratios(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Median, min and max over rounds; a candidate with fewer rounds ran in the first of them."""
    ratios = [time / baseline for time, baseline in zip(ours, theirs, strict=False)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
