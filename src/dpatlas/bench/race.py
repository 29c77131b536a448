"""Races: one worker process per candidate, which take turns.

All candidates of a case run once in every round, and every ratio is between two repetitions of the
same round, so that a slower machine slows both. Times are CPU times, not wall times.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from dpatlas.bench.kernels import Candidate
from dpatlas.core.progress import Progress, say
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

    def wait_until_ready(self) -> None:
        """Wait for the end of set-up and warm-up."""
        self.memory_bytes = self.answer()["memory_bytes"]

    def run_once(self) -> None:
        """One repetition; its CPU seconds are added to `seconds`."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write("go\n")
            self.stdin.flush()
        self.seconds.append(self.answer()["cpu_s"])

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
    `memory_ratio` is None where `plain` used nothing measurable.
    """
    limits = [min(repeats, candidate.rounds or repeats) for candidate in candidates]
    with _workers(module, candidates, case) as workers:
        say(f"{name}: {len(workers)} candidates set up and warm up")
        for worker in workers:
            worker.wait_until_ready()
        with Progress(sum(limits), name) as progress:
            for number in range(repeats):
                for worker, limit in zip(workers, limits, strict=True):
                    if number < limit:
                        worker.run_once()
                        progress.advance(worker.candidate.name)
    by_name = {worker.candidate.name: worker for worker in workers}
    return [_row(name, worker, by_name) for worker in workers]


def _row(case: str, worker: Worker, by_name: dict[str, Worker]) -> dict[str, Any]:
    plain, baseline = by_name[REFERENCE], by_name[worker.candidate.baseline]
    measurable = plain.memory_bytes > 0
    return {
        "case": case,
        "candidate": worker.candidate.name,
        "time_ratio": _ratios(worker.seconds, plain.seconds),
        "memory_ratio": worker.memory_bytes / plain.memory_bytes if measurable else None,
        "time_ratio_same_products": _ratios(worker.seconds, baseline.seconds),
        "cpu_s": statistics.median(worker.seconds),
        "memory_mb": worker.memory_bytes / 2**20,
        "rounds": len(worker.seconds),
    }


@contextlib.contextmanager
def _workers(
    module: str, candidates: Sequence[Candidate], case: dict[str, Any]
) -> Iterator[list[Worker]]:
    with contextlib.ExitStack() as stack:
        workers = []
        for candidate in candidates:
            worker = Worker(module, candidate, case)
            stack.callback(worker.close)
            workers.append(worker)
        yield workers


def _ratios(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Median, min and max over rounds; a candidate with fewer rounds ran in the first of them."""
    ratios = [time / baseline for time, baseline in zip(ours, theirs, strict=False)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
