"""Where a run of the workflow stands, while it runs: what was made, what is being made, time left.

Snakemake's own log has five lines and more for every job, which hide this from whoever waits.
`make` shows these lines in its place: one for every figure, table and page, and between them the
state, which is written over itself on a terminal and repeated every half minute elsewhere. Errors,
with the log of the failed job, stay Snakemake's; its full log is under `.snakemake/log`.
"""

import logging
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dpatlas.base.progress import duration
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.cost.estimate import job_seconds, seconds_of

SECONDS_BETWEEN_LINES = 30.0
# Share of the work after which the speed so far, and not that of a typical machine, tells the rest.
TELLING = 0.02
# Snakemake's rules for what is neither a run, a figure nor a table, as `plan` counts them.
OTHERS = {"data_set": "data", "weights_file": "data"}


class Planned(NamedTuple):
    """A job of the run: what it is called, its CPU seconds by estimate, and what it shows."""

    name: str
    seconds: float
    shown: str = ""


def planned(atlas: Atlas, rule: str, name: str, outputs: Iterable[str]) -> Planned:
    """A job of Snakemake's by its rule; name: its wildcard `id`, empty if it has none."""
    if name in atlas.specs or name in atlas.frozen_features:
        return Planned(f"{rule} {name}", job_seconds(atlas, name))
    title, kind = f"{rule} {name}".strip(), OTHERS.get(rule, "claims, page, manifest")
    suffix = "index.html"
    if product := atlas.products.get(rule):
        title, kind = f"{product.kind} {rule}", f"{product.kind}s"
        suffix = ".pdf" if product.kind == "figure" else ".md"
    shown = next((path for path in map(str, outputs) if path.endswith(suffix)), "")
    return Planned(title, seconds_of(("", kind)), shown)


class Standing(logging.Handler):
    """Follows Snakemake's log records, of which its other handlers show warnings and errors alone.

    jobs: what is to be done, by Snakemake's number of a job; none until `begin`.
    """

    def __init__(self, stream: Any = None):
        super().__init__()
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.jobs: Mapping[int, Planned] = {}
        self.running: dict[int, float] = {}
        self.done: set[int] = set()
        self.cores = 1

    def take_over(self, logger: logging.Logger) -> None:
        """Follow this logger, and silence what its handlers write to a terminal."""
        for handler in logger.handlers:
            if type(handler).__name__ == "ColorizingTextHandler":
                handler.addFilter(lambda record: record.levelno >= logging.WARNING)
        # Before the others, so that the line of the state is gone when they write.
        logger.handlers.insert(0, self)

    def begin(self, jobs: Mapping[int, Planned], cores: int) -> None:
        """Say what is to be done."""
        self.jobs, self.cores = dict(jobs), cores
        self.began = self.last = time.monotonic()
        words = f"{len(self.jobs)} jobs, about {duration(self.left())} on {cores} cores"
        self._say(words if cores > 1 else words.removesuffix("s"))

    def end(self) -> None:
        """Say what was done."""
        self._say(f"{len(self.done)} jobs done in {duration(time.monotonic() - self.began)}")

    def emit(self, record: logging.LogRecord) -> None:
        """Follow a record of Snakemake's."""
        kind = getattr(getattr(record, "event", None), "name", "")
        now = time.monotonic()
        if kind == "JOB_STARTED":
            self.running |= dict.fromkeys(getattr(record, "jobs", ()), now)
        elif kind == "JOB_FINISHED":
            self._finished(getattr(record, "job_id", -1))
        elif kind == "JOB_ERROR":
            self.running.pop(getattr(record, "jobid", -1), None)
        if record.levelno >= logging.WARNING and self.terminal:
            self._write("\r\x1b[K")
        if not kind.startswith("JOB_") or kind == "JOB_ERROR":
            return
        names = ", ".join(self.jobs[n].name for n in self.running if n in self.jobs)
        if names and (self.terminal or now - self.last >= SECONDS_BETWEEN_LINES):
            self.last, left = now, duration(self.left())
            text = f"{len(self.done)} of {len(self.jobs)} jobs, {left} left: {names}"
            if self.terminal:
                self._write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            else:
                self._say(text)

    def left(self) -> float:
        """Seconds left, by the estimates, and by how they did so far."""
        now, seconds = time.monotonic(), {n: job.seconds for n, job in self.jobs.items()}
        total, finished = sum(seconds.values()), sum(seconds[number] for number in self.done)
        begun = sum(min(seconds[number], now - since) for number, since in self.running.items())
        if finished < TELLING * total:
            return (total - finished - begun) / self.cores
        return (total - finished - begun) * (now - self.began) / (finished + begun)

    def _finished(self, number: int) -> None:
        self.running.pop(number, None)
        if number in self.jobs and number not in self.done:
            self.done.add(number)
            if self.jobs[number].shown:
                self._say(self.jobs[number].shown)

    def _say(self, text: str) -> None:
        self._write(f"\r{text}\x1b[K\n" if self.terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
