"""`python -m dpatlas.base.fork MODULE ...`: `python -m MODULE ...`, as a fork where that can be.

Loading torch, scipy and matplotlib takes 2 to 3 s of CPU, longer than many jobs of a laptop run. A
server, started by `start_server`, has loaded them once; where the environment variable `SERVER`
names one, a job is a fork of it. The server loads other people's libraries alone: a fork reads the
project's modules from disk, so that an edit counts as it does in a process of its own.

This process waits for its fork and ends with its exit code. SIGTERM is handed on; a fork whose
process here is gone ends by SIGTERM. Without a server, one of another interpreter, or one that has
ended, the module runs here.
"""

import contextlib
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dpatlas.base.single_thread  # noqa: F401

SERVER = "DPATLAS_FORKS"
# What jobs, figures and pages import of others' modules.
LIBRARIES = (
    *("numpy", "torch", "torch.func", "torch.utils._pytree", "pydantic", "ruamel.yaml", "jinja2"),
    # What torch loads when a network is traced for the first time.
    "torch._dynamo",
    *("scipy.special", "scipy.optimize", "scipy.stats", "dp_accounting.pld", "dp_accounting.rdp"),
    *("pandas", "matplotlib.backends.backend_agg", "matplotlib.style", "PIL.Image"),
    *("matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg", "sklearn.datasets"),
    *("sklearn.neighbors", "sklearn.metrics", "sklearn.linear_model"),
)
# The exit code where a fork was killed: a shell's for SIGKILL.
KILLED = 137
_servers: list[subprocess.Popen[bytes]] = []


def start_server(
    libraries: Sequence[str] = LIBRARIES, command: Sequence[str] = ()
) -> dict[str, str]:
    """Start a server that ends with this process; the environment variable by which it is found.

    It answers from the start, and loads `libraries` before its first fork. command: what starts
    it, such as a command that takes the network away. Empty on systems other than Linux, where a
    process that has loaded such libraries cannot safely fork.
    """
    if sys.platform != "linux":
        return {}
    path = str(Path(tempfile.mkdtemp(prefix="dpatlas-"), "socket"))
    words = [*command, sys.executable, "-m", __spec__.name, "--serve", path, *libraries]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()
    # Its standard input ends with this process.
    _servers.append(server)
    return {SERVER: os.pathsep.join([path, sys.executable])}


def main(module: str, words: Sequence[str]) -> int:
    """Run the module, in a fork or here."""
    connection = _server()
    code = None if connection is None else _in_fork(connection, module, words)
    if code is None:
        sys.argv[1:] = words
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    return code


def _in_fork(connection: socket.socket, module: str, words: Sequence[str]) -> int | None:
    """The exit code of a fork that runs the module; None where the server ended before."""
    request = {
        "module": module,
        "words": list(words),
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
    }
    content = json.dumps(request).encode() + b"\n"
    try:
        socket.send_fds(connection, [content[:1]], [0, 1, 2])
        connection.sendall(content[1:])
        answers = connection.makefile()
        fork = answers.readline()
    except OSError:
        return None
    if not fork:
        return None
    # A terminal's Ctrl-C reaches the fork as it reaches this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(int(fork), number))
    return int(answers.readline() or KILLED)


def _server() -> socket.socket | None:
    """A connection to the server; None where there is none, or it has another interpreter."""
    path, _, interpreter = os.environ.get(SERVER, "").rpartition(os.pathsep)
    if not path or interpreter != sys.executable:
        return None
    connection = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        connection.connect(path)
        return connection
    return None


def serve(path: str, libraries: Sequence[str]) -> None:
    """Answer each connection by a fork, until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(1024)
    os.write(sys.stdout.fileno(), b"listening\n")
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    while all(key.fileobj is listening for key, _ in waiting.select()):
        connection, _ = listening.accept()
        # Whoever has gone meanwhile asked for nothing.
        with contextlib.suppress(OSError, ValueError):
            request, streams = _received(connection)
            for name in libraries:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            if os.fork() == 0:
                # Whatever happens in a fork, it is no second server.
                try:
                    listening.close()
                    _answer(connection, streams, request)
                finally:
                    os._exit(1)
            for stream in streams:
                os.close(stream)
        connection.close()
    shutil.rmtree(Path(path).parent, ignore_errors=True)
    # Taking so many modules apart costs a second.
    os._exit(0)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A line of JSON, and the standard streams that came with its first byte."""
    content, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as rest:
        return json.loads(content + rest.readline()), streams


def _answer(connection: socket.socket, streams: Sequence[int], request: dict[str, Any]) -> None:
    """In a fork: say its number, do what is asked, say the exit code and end."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection.sendall(f"{os.getpid()}\n".encode())
    threading.Thread(target=_end_with, args=[connection], daemon=True).start()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    code = _become(**request)
    for written in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            written.flush()
    # Whoever has read the exit code is gone.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        connection.sendall(f"{code}\n".encode())
    os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """SIGTERM for this process once the one that asked for it has ended."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _become(module: str, words: list[str], folder: str, environment: dict[str, str]) -> int:
    """Do what `python -m module` would do; returns its exit code."""
    from dpatlas.base.digest import ROOTS

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    places = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:1] = [folder, *places]
    sys.argv[1:] = words
    for name in list(sys.modules):
        if name.partition(".")[0] in (*ROOTS, "sitecustomize"):
            del sys.modules[name]
    try:
        site.execsitecustomize()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
