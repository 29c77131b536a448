"""Environment variables that jobs inherit."""

import os
import sys
from pathlib import Path

from dpatlas.base.digest import CACHE

CACHES = {"MPLCONFIGDIR": "matplotlib", "NUMBA_CACHE_DIR": "numba", CACHE: "code"}


def put_own_python_first() -> None:
    """Put the folder of this interpreter first on PATH, so that `python` means this one."""
    folder = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    if path.split(os.pathsep)[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, path]) if path else folder


def keep_caches_in(folder: Path) -> None:
    """Keep what jobs cache (fonts of matplotlib, machine code of numba, digests) in `folder`.

    So nothing is written to the user's home, and a matplotlibrc there changes no figure. Variables
    that the user has set are left alone.
    """
    for name, part in CACHES.items():
        os.environ.setdefault(name, str(folder.absolute() / part))
