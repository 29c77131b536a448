"""Early ends of a job: an optional time limit, and a lack of memory.

In both cases one line says what to do, and a re-run continues from the checkpoint.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpatlas.base.guard import number_in, real
from dpatlas.base.progress import say
from dpatlas.base.specs import Spec
from dpatlas.errors import EXIT_FAILED_RUN, RunError
from dpatlas_workflow.registry import block_of

TIME_LIMIT = "DPATLAS_JOB_TIMEOUT"
MINUTES = real(gt=0)
RESUMES = "a re-run goes on from the last checkpoint"


@contextmanager
def limited(spec: Spec, checkpoints: Path) -> Iterator[None]:
    """End the process after the minutes in the environment variable `TIME_LIMIT`, if it is set.

    checkpoints: the job's folder; if it exists, a line says that an earlier attempt was ended.
    Where memory runs out, raises RunError that names the keys to lower; InputError for a limit that
    is not a positive number.
    """
    minutes = time_limit()
    if checkpoints.is_dir():
        say(
            f"{spec.id}: an earlier attempt ended before its time and left a checkpoint; if it was "
            f"killed for want of memory, run fewer jobs at once or lower {memory_keys(spec)}"
        )
    watchdog = None
    if minutes is not None:
        watchdog = threading.Timer(60 * minutes, _stop, (spec, minutes))
        watchdog.daemon = True
        watchdog.start()
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"{spec.id}: out of memory; lower {memory_keys(spec)}; {RESUMES}") from None
    finally:
        if watchdog is not None:
            watchdog.cancel()


def time_limit() -> float | None:
    """Minutes that a job may take, or None; InputError for anything but a positive number."""
    text = os.environ.get(TIME_LIMIT, "")
    if not text:
        return None
    minutes = number_in(text)
    MINUTES.check(f"minutes in {TIME_LIMIT}", minutes)
    return float(minutes)


def memory_keys(spec: Spec) -> str:
    """The keys of the config that lower the memory of a job of this spec."""
    cost = block_of(spec.key).cost(spec.fields["kind"])
    names = " or ".join(cost.lower if cost else ()) or "the sizes"
    return f"{names} in the config's block {spec.key}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether numpy, Python or torch, on any device, could not allocate."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    # torch's CPU allocator has no exception type of its own.
    return "alloc" in text.lower() and "memory" in text


def _stop(spec: Spec, minutes: float) -> None:
    """End the process at once, with a line that says where it was."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    where = f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else ""
    say(
        f"dpatlas: {spec.id}: stopped{where} after {minutes:g} minutes, the limit in {TIME_LIMIT}; "
        f"{RESUMES}"
    )
    os._exit(EXIT_FAILED_RUN)
