"""A module that runs as a fork of a server: its exit code, its end, and a run without one."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dpatlas.base.fork import KILLED, SERVER, start_server

JOB = """
import os, sys, time
print("json" in sys.modules, *sys.argv[1:], os.environ["MARK"], flush=True)
if sys.argv[1:] == ["wait"]:
    time.sleep(60)
sys.exit(int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else None)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are of Linux alone")


@pytest.fixture(scope="module")
def server():
    return start_server(("json", "no_such_library"))


@pytest.fixture
def start(tmp_path):
    (tmp_path / "job.py").write_text(JOB)

    def started(environment, *words):
        return subprocess.Popen(
            [sys.executable, "-m", "dpatlas.base.fork", "job", *words],
            cwd=tmp_path,
            env={**os.environ, SERVER: "", "MARK": "here", **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    return started


@pytest.mark.parametrize(
    ("where", "code"),
    [("fork", 0), ("fork", 3), ("nothing", 3), ("another python", 3), ("an ended server", 3)],
)
def test_the_module_runs_with_its_words_and_exit_code(server, start, tmp_path, where, code):
    path, _, interpreter = server[SERVER].rpartition(os.pathsep)
    given = {
        "fork": server,
        "nothing": {},
        "another python": {SERVER: os.pathsep.join([path, "/another/python"])},
        "an ended server": {SERVER: os.pathsep.join([str(tmp_path / "socket"), interpreter])},
    }
    process = start(given[where], str(code))
    output, _ = process.communicate(timeout=60)
    assert output.split() == ["True", str(code), "here"] and process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_that_is_ended_is_told_by_its_process(server, start, number):
    process = start(server, "wait")
    assert process.stdout.readline().split() == ["True", "wait", "here"]
    (fork,) = forks_of(server)
    os.kill(fork, number)
    assert process.wait(timeout=60) == KILLED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_ends_with_the_process_that_asked_for_it(server, start, number):
    process = start(server, "wait")
    process.stdout.readline()
    (fork,) = forks_of(server)
    process.send_signal(number)
    process.wait(timeout=60)
    deadline = time.monotonic() + 60
    while fork in forks_of(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def forks_of(server):
    """Numbers of the processes that the server forked and that still run."""
    import psutil

    path = server[SERVER].rpartition(os.pathsep)[0]
    return [
        child.pid
        for process in psutil.process_iter()
        if path in cmdline(process) and "--serve" in cmdline(process)
        for child in process.children()
    ]


def cmdline(process):
    try:
        return process.cmdline()
    except Exception:
        return []
