"""One candidate in a process of its own: set up, warm up, then one repetition per request.

    python -m dpatlas.bench.worker MODULE CANDIDATE CASE_AS_JSON

Every answer is one line of JSON on stdout: first, after the warm-up, the memory that one repetition
takes; then, for each line read from stdin, the seconds of one repetition. On a CPU those are CPU
seconds and resident memory; with `device` cuda in the case, seconds between two waits for the GPU,
and the peak of torch's allocations.
"""

import dpatlas.base.single_thread  # noqa: F401, I001  numpy and torch read it when imported

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

STATUS = Path("/proc/self/status")
# Writing 5 to it resets the kernel's record of the peak to the present size.
CLEAR = Path("/proc/self/clear_refs")
_libc = ctypes.CDLL(None)
_is_glibc = hasattr(_libc, "mallopt") and hasattr(_libc, "malloc_trim")
# Names in glibc's malloc.h. Its thresholds begin at 128 KiB and adapt themselves up to 32 MiB.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
SMALL_BLOCK, LARGE_BLOCK = 128 * 2**10, 32 * 2**20


def main(arguments: list[str]) -> int:
    """Serve repetitions until stdin ends."""
    module, candidate, case = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # Output that libraries print must not end up in the protocol.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    sizes = json.loads(case)
    processor: Cpu | Gpu = Gpu() if sizes.get("device", "cpu") == "cuda" else Cpu()
    step, scale = importlib.import_module(module).prepare(candidate, sizes)
    _say(answers, {"memory_bytes": processor.memory_bytes(step)})
    for _ in sys.stdin:
        _say(answers, {"seconds": scale * processor.seconds(step)})
    return 0


class Cpu:
    """CPU time and resident memory."""

    def __init__(self) -> None:
        # Before set-up: the step would otherwise reuse large blocks that set-up frees.
        give_freed_memory_back()

    def memory_bytes(self, step: Callable[[], Any]) -> int:
        """Bytes by which the resident size rose in the first repetition."""
        give_freed_memory_back()
        with contextlib.suppress(OSError):
            CLEAR.write_text("5")
        before = resident_bytes("VmRSS")
        step()
        rise = resident_bytes("VmHWM") - before
        keep_freed_memory()
        return rise

    def seconds(self, step: Callable[[], Any]) -> float:
        """CPU seconds."""
        start = time.process_time()
        step()
        return time.process_time() - start


class Gpu:
    """Time between two waits for the GPU and torch's allocations, in a job's float32."""

    def __init__(self) -> None:
        import torch

        from dpatlas.models.precision import set_precision

        set_precision("float32")
        self.cuda = torch.cuda

    def memory_bytes(self, step: Callable[[], Any]) -> int:
        """Bytes by which torch's allocations rose in the first repetition."""
        self.cuda.synchronize()
        before = self.cuda.memory_allocated()
        self.cuda.reset_peak_memory_stats()
        step()
        self.cuda.synchronize()
        rise = self.cuda.max_memory_allocated() - before
        self.cuda.empty_cache()
        return rise

    def seconds(self, step: Callable[[], Any]) -> float:
        """Wall seconds of the second of two repetitions.

        The first asks the device for memory, which goes back at the end: candidates take turns.
        """
        step()
        self.cuda.synchronize()
        start = time.perf_counter()
        step()
        self.cuda.synchronize()
        elapsed = time.perf_counter() - start
        self.cuda.empty_cache()
        return elapsed


def resident_bytes(field: str) -> int:
    """Resident size now (`VmRSS`) or at its highest (`VmHWM`).

    On a system without /proc both are the highest so far.
    """
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def give_freed_memory_back() -> None:
    """Have the allocator return every large block as soon as it is freed (glibc only).

    Otherwise the peak of the same step differs between processes by half, depending on which free
    blocks the heap retains.
    """
    if _is_glibc:
        gc.collect()
        _libc.malloc_trim(0)
        _libc.mallopt(M_MMAP_THRESHOLD, SMALL_BLOCK)


def keep_freed_memory() -> None:
    """Have the allocator retain freed blocks, as it would by default after a few steps."""
    if _is_glibc:
        _libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        _libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BLOCK)


def _say(stream: TextIO, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
