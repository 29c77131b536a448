"""The kind of processor, on which the last bits of a sum may depend."""

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# Vector instructions by which numerical libraries choose their kernels, the widest first.
VECTORS = ("amx_tile", "avx512_bf16", "avx512f", "avx2", "avx", "sve2", "sve", "asimd")


def processor(cpuinfo: Path = CPUINFO) -> str:
    """Name and widest vector instructions as Linux lists them; elsewhere the platform's name."""
    name = platform.processor() or platform.machine()
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return name
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    known = set((facts.get("flags") or facts.get("Features") or "").split())
    widest = next((vectors for vectors in VECTORS if vectors in known), None)
    name = facts.get("model name") or name
    return f"{name}, {widest}" if widest else name
