"""Progress of long work: a bar on a terminal, a line every few seconds in a log."""

import sys
import time
from collections.abc import Callable
from typing import Self

from dpatlas.base.rounding import rounded_up

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_BARS = 0.1
# A note that took some time is made again after so many times as long, at the earliest.
NOTE_SHARE = 50
Note = str | Callable[[], str]
BAR_WIDTH = 30


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Counts units of work and reports them on stderr; use as a context manager."""

    def __init__(self, total: int, label: str):
        self.total, self.label, self.done = total, label, 0
        self.stream = sys.stderr
        self.terminal = self.stream.isatty()
        self.start = time.monotonic()
        self.last = 0.0 if self.terminal else self.start

    def __enter__(self) -> Self:
        """Start counting."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Report the final count, also after an error, unless nothing was done before it."""
        if error is None or self.done:
            self._show(last=True)

    def advance(self, note: Note = "", units: int = 1) -> None:
        """Count `units` more; `note`, or what it returns when it is shown, stands beside them."""
        self.done += units
        now = time.monotonic()
        pause = SECONDS_BETWEEN_BARS if self.terminal else SECONDS_BETWEEN_LINES
        if now - self.last >= pause:
            self.last = now
            self._show(note if isinstance(note, str) else note())

    def reach(self, done: int, note: Note = "") -> None:
        """Count up to `done` units, of which some may come from a checkpoint."""
        self.advance(note, units=done - self.done)

    def _show(self, note: str = "", last: bool = False) -> None:
        elapsed = time.monotonic() - self.start
        share = self.done / self.total if self.total else 1.0
        left = f", {elapsed / share - elapsed:.0f} s left" if 0 < share < 1 else ""
        counts = f"{self.label}: {self.done}/{self.total} ({share:.0%}, {elapsed:.0f} s{left})"
        text = f"{counts} {note}".rstrip()
        if self.terminal:
            bar = "#" * round(share * BAR_WIDTH)
            end = "\n" if last else ""
            print(f"\r[{bar:<{BAR_WIDTH}}] {text}\x1b[K", end=end, file=self.stream, flush=True)
        else:
            print(text, file=self.stream, flush=True)


class EpsilonSoFar:
    """A note with the epsilon of the steps so far, which takes an accountant some time.

    `epsilon` is asked at most every `SECONDS_BETWEEN_LINES`, and for at most 1 / NOTE_SHARE of the
    time. Until it is asked again the note names the step that it was asked at: `steps` counts them.
    """

    def __init__(self, epsilon: Callable[[], float], steps: Callable[[], int]):
        self.epsilon, self.steps = epsilon, steps
        self._text, self._step, self._due = "", 0, 0.0

    def __call__(self) -> str:
        """The note."""
        start, step = time.monotonic(), self.steps()
        if start >= self._due:
            self._text, self._step = f"epsilon {rounded_up(self.epsilon(), 3)}", step
            end = time.monotonic()
            self._due = end + max(SECONDS_BETWEEN_LINES, NOTE_SHARE * (end - start))
        return f"{self._text} {'so far' if self._step == step else f'at step {self._step}'}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best: `8.1 s`, `12 min`, `3.4 h`, `1,200 h`."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 100 else f"{float(f'{hours:.2g}'):,.0f} h"
