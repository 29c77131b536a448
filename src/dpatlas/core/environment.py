"""The environment that jobs inherit."""

import os
import sys
from pathlib import Path


def put_own_python_first() -> None:
    """Let `python` mean the interpreter that runs now, in this process and those it starts."""
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    if path.split(os.pathsep)[0] != own:
        os.environ["PATH"] = os.pathsep.join([own, path]) if path else own
