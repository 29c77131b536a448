"""One candidate in a process of its own: set up, warm up, then one repetition per request.

    python -m dpatlas.bench.worker MODULE CANDIDATE CASE_AS_JSON

Every answer is one line of JSON on stdout: first, after the warm-up, the memory that one repetition
takes; then, for each line read from stdin, the CPU and wall seconds of one repetition.
"""

import dpatlas.core.single_thread  # noqa: F401, I001  numpy and torch read it when imported

import ctypes
import gc
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, TextIO

STATUS = Path("/proc/self/status")
# Writing 5 there sets the kernel's record of the peak back to the present size.
CLEAR = Path("/proc/self/clear_refs")
# Names in glibc's malloc.h. Its thresholds begin at 128 KiB and adapt themselves up to 32 MiB.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
SMALL_BLOCK, LARGE_BLOCK = 128 * 2**10, 32 * 2**20


def main(arguments: list[str]) -> int:
    """Serve repetitions until stdin ends."""
    module, candidate, case = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # Libraries that print must not speak into the protocol.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    # Now already: large blocks that set-up frees would otherwise be left for the step to use.
    give_freed_memory_back()
    step, scale = importlib.import_module(module).prepare(candidate, json.loads(case))
    give_freed_memory_back()
    forget_peak()
    before = resident_bytes("VmRSS")
    step()
    _say(answers, {"memory_bytes": resident_bytes("VmHWM") - before})
    keep_freed_memory()
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        _say(answers, {"cpu_s": scale * cpu, "wall_s": scale * wall})
    return 0


def resident_bytes(field: str) -> int:
    """Resident size now (`VmRSS`) or at its highest (`VmHWM`).

    Where the system has no /proc, both are the highest so far.
    """
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> None:
    """Let the peak start from the present size, where the system allows it."""
    if CLEAR.exists():
        try:
            CLEAR.write_text("5")
        except OSError:
            return


def give_freed_memory_back() -> None:
    """Have the allocator return every large block as soon as it is freed (glibc only).

    Otherwise the peak of one and the same step differs by half between two processes, with what
    the heap happens to hold on to.
    """
    if _libc is not None:
        gc.collect()
        _libc.malloc_trim(0)
        _libc.mallopt(M_MMAP_THRESHOLD, SMALL_BLOCK)


def keep_freed_memory() -> None:
    """Have the allocator keep blocks for reuse, as it would by itself after a few steps."""
    if _libc is not None:
        _libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        _libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BLOCK)


def _find_libc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    known = hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim")
    return libc if known else None


_libc = _find_libc()


def _say(stream: TextIO, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
