"""Forks of a process in which Snakemake is loaded, which takes a dry run longer than its work.

Started as a script. Reads one request per line, JSON of folder, environment, arguments and the two
files to write to; runs `python -m snakemake` on it in a fork, which loads the project's own modules
from that folder; and answers with a line, the exit code.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence

# What Snakemake and the Snakefile import, but for the project's own modules.
LIBRARIES = (
    *("snakemake.cli", "snakemake.report", "snakemake_executor_plugin_slurm", "pulp"),
    *("numpy", "scipy.special", "scipy.stats", "pydantic", "docutils.parsers.rst", "yaml"),
)


def run(folder: str, environment: dict[str, str], arguments: Sequence[str], files: Sequence[str]):
    """Become `python -m snakemake`; returns its exit code."""
    for target, file in enumerate(files, start=1):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = folder
    sys.path[1:1] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv[1:] = arguments
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def serve() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = run(**json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
