"""Hands `python -m MODULE` over to the fork server whose socket DPATLAS_TEST_FORKS names.

Python imports this module at its start where PYTHONPATH has this folder. What may be interrupted,
a run of Snakemake and the commands of `python -m dpatlas`, stays a process of its own.
"""

import os
import runpy
import sys
from pathlib import Path


def handed_over() -> None:
    """Wait for the fork and end with its exit code; 1 if it ended without one."""
    import json
    import socket

    _, _, module, *words = sys.orig_argv
    request = {
        "module": module,
        "words": words,
        "folder": str(Path.cwd()),
        "environment": {**os.environ},
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["DPATLAS_TEST_FORKS"])
    content = json.dumps(request).encode() + b"\n"
    socket.send_fds(connection, [content[:1]], [0, 1, 2])
    connection.sendall(content[1:])
    os._exit(int(connection.recv(16) or 1))


if "DPATLAS_TEST_FORKS" in os.environ and sys.orig_argv[1:2] == ["-m"]:
    if sys.orig_argv[2] == "snakemake":
        if {"-n", "--lint"} & {*sys.orig_argv}:
            handed_over()
    elif sys.orig_argv[2].startswith(("dpatlas.", "dpatlas_workflow.")):
        handed_over()

# Python itself imports the first module of this name alone.
for place in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    other = Path(place, "sitecustomize.py").absolute()
    if place and other != Path(__file__) and other.is_file():
        runpy.run_path(str(other))
