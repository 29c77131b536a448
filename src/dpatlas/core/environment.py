"""The environment that jobs inherit."""

import os
import sys
from pathlib import Path

CACHES = {"MPLCONFIGDIR": "matplotlib", "NUMBA_CACHE_DIR": "numba"}


def put_own_python_first() -> None:
    """Let `python` mean the interpreter that runs now, in this process and those it starts."""
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    if path.split(os.pathsep)[0] != own:
        os.environ["PATH"] = os.pathsep.join([own, path]) if path else own


def keep_caches_in(folder: Path) -> None:
    """Let what jobs cache (matplotlib's fonts, numba's machine code) lie in `folder`, absolute.

    The user's home stays as it was, and his own matplotlibrc changes no figure. What the user has
    set stays.
    """
    for name, part in CACHES.items():
        os.environ.setdefault(name, str(folder.absolute() / part))
