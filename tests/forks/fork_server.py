"""Forks of a process in which libraries are loaded, for commands that load longer than they work.

Started as a script with the path of a socket; ends when its standard input does. `start` makes
`python -m MODULE` ask it for a fork, where the project's own modules are loaded from PYTHONPATH:
no fork knows more of them than a fresh process would.
"""

import importlib
import importlib.util
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path

# What commands of a package import, but for the project's own modules.
LIBRARIES = {
    "snakemake": (
        *("snakemake.cli", "snakemake.report", "snakemake_executor_plugin_slurm", "pulp"),
        *("numpy", "scipy.special", "scipy.stats", "pydantic", "docutils.parsers.rst", "yaml"),
    ),
    "dpatlas": (
        *("torch", "torch.func", "torch.utils._pytree", "numpy", "pydantic", "yaml", "jinja2"),
        *("scipy.special", "scipy.optimize", "scipy.stats", "dp_accounting.pld", "pandas"),
        *("dp_accounting.rdp", "matplotlib.backends.backend_agg", "matplotlib.style", "PIL.Image"),
        *("matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg"),
        *("sklearn.datasets", "sklearn.neighbors", "sklearn.metrics", "sklearn.linear_model"),
    ),
}
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
START = Path(__file__).parent / "start/sitecustomize.py"


def serve(path: str) -> None:
    """Answer one connection after the other, each in a fork of its own."""
    os.environ.update(THREADS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    print("listening", flush=True)
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    while all(key.fileobj is listening for key, _ in waiting.select()):
        connection, _ = listening.accept()
        request, descriptors = received(connection)
        for name in LIBRARIES[request["module"].partition(".")[0].partition("_")[0]]:
            importlib.import_module(name)
        if os.fork() == 0:
            listening.close()
            code = become(descriptors, **request)
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(str(code).encode())
            os._exit(0)
        for each in (*descriptors, connection.detach()):
            os.close(each)


def received(connection: socket.socket) -> tuple[dict, list[int]]:
    """A line of JSON, and the standard streams that came with its first byte."""
    content, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as rest:
        return json.loads(content + rest.readline()), descriptors


def become(
    descriptors: list[int], module: str, words: list[str], folder: str, environment: dict[str, str]
) -> int:
    """Do what `python -m module` would do; returns its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    places = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:1] = [folder, *places]
    sys.argv[1:] = words
    try:
        runpy.run_path(str(START))
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
