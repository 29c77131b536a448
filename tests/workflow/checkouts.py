"""Copies of the project in which the workflow runs as its users run it."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dpatlas.base.fork import LIBRARIES, start_server

PROJECT = Path(__file__).resolve().parents[2]
PARTS = (
    "Snakefile",
    "config.yaml",
    "environment.yml",
    "workflow",
    "profiles",
    "src",
    "pyproject.toml",
)
SMOKE = "workflow/tiers/smoke.yaml"
FORKS = PROJECT / "tests/forks"
OF_SNAKEMAKE = (
    *("snakemake.cli", "snakemake.report", "snakemake_executor_plugin_slurm", "pulp"),
    *("docutils.parsers.rst", "yaml"),
)


class Checkout:
    """A copy of the project in a folder of its own, run as a user would."""

    def __init__(self, folder: Path, offline: bool = False):
        self.folder = folder
        # What every command starts with: a network namespace in which there is nothing.
        self.prefix = without_network() if offline else ()
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "src"),
            "XDG_CACHE_HOME": str(folder / ".cache"),
        }

    def run(self, *command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*self.prefix, *command],
            cwd=self.folder,
            env=self.environment | forked(self.environment["PYTHONPATH"], self.prefix),
            capture_output=True,
            text=True,
            timeout=1800,
        )

    @property
    def offline(self) -> bool:
        return bool(self.prefix)

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.python("-m", "snakemake", "--cores", "2", *arguments)

    def python(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.run(sys.executable, *arguments)

    def refusal(self, *arguments: str) -> str:
        """The one line in which the workflow refuses its input, with exit code 2."""
        result = self.snakemake(*arguments)
        assert result.returncode == 2 and "Traceback" not in result.stderr
        (line,) = [each for each in result.stderr.splitlines() if each.startswith("dpatlas:")]
        return line

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs per rule that a dry run would do, as in `planned_in`."""
        return planned_in(self.snakemake("-n", *arguments))

    def edit(self, path: str, old: str, new: str):
        """Context manager: replace `old` by `new` in a file and put it back afterwards."""
        return Edit(self.folder / path, old, new)


def planned_in(result: subprocess.CompletedProcess) -> dict[str, int]:
    """Jobs per rule that a dry run announces; `all` does no work and is left out."""
    assert result.returncode == 0, result.stdout + result.stderr
    table = re.search(r"^job +count\n[- ]+\n(.*?)\ntotal", result.stdout, re.S | re.M)
    if table is None:
        assert "Nothing to be done" in result.stdout + result.stderr
        return {}
    rows = [line.split() for line in table[1].splitlines()]
    return {name: int(count) for name, count in rows if name != "all"}


def forked(python_path: str, prefix: tuple[str, ...] = ()) -> dict[str, str]:
    """Environment variables that make dry runs and jobs forks of one server.

    python_path: PYTHONPATH of the commands, extended here. prefix: command that the server is
    started with, such as one that takes the network away.
    """
    path = os.pathsep.join([str(FORKS.resolve(strict=True)), python_path])
    return {"PYTHONPATH": path, **server(prefix)}


@functools.cache
def server(prefix: tuple[str, ...]) -> dict[str, str]:
    """Start a server that has Snakemake loaded as well."""
    return start_server([*LIBRARIES, *OF_SNAKEMAKE], prefix)


class Edit:
    def __init__(self, path: Path, old: str, new: str):
        self.path, self.old, self.new = path, old, new

    def __enter__(self):
        self.before, self.times = self.path.read_text(), self.path.stat()
        assert self.old in self.before, f"{self.path} has no {self.old!r}"
        self.path.write_text(self.before.replace(self.old, self.new, 1))

    def __exit__(self, *failure):
        self.path.write_text(self.before)
        os.utime(self.path, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))


def without_network() -> tuple[str, ...]:
    """Command that runs another one without a network; empty where none can be made."""
    for flags in ("-n", "-rn"):
        command = ("unshare", flags)
        if (
            shutil.which("unshare")
            and not subprocess.run([*command, "true"], capture_output=True, check=False).returncode
        ):
            return command
    return ()


def copy_project(folder: Path, offline: bool = False) -> Checkout:
    """A copy in `folder` in which nothing has run yet; with `offline`, it knows no network."""
    for part in PARTS:
        source = PROJECT / part
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, folder / part, ignore=ignore)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / part)
    return Checkout(folder, offline)
