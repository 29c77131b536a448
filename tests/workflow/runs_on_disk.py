"""What a run left on disk, and the processes that make it."""

import hashlib
import subprocess
import sys

import numpy as np
import psutil
from PIL import Image

SMOKE = "workflow/tiers/smoke.yaml"
# Pages show days and times, as cost.json and benchmarks do; logs show progress.
OF_THE_RUN = ("cost.json",)
FOLDERS_OF_THE_RUN = ("logs/", "benchmarks/", "report/")


def start(checkout, cores, *arguments, environment=None):
    """Snakemake in a session of its own, with more `environment`; what it says goes to run.log.

    Its jobs are processes of their own, unless `environment` lets it start a server of forks.
    """
    environment = {"DPATLAS_FORKS": ""} | (environment or {})
    environment = {name: value for name, value in environment.items() if value is not None}
    with (checkout.folder / "run.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments],
            cwd=checkout.folder,
            env={**checkout.environment, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def said(checkout):
    return (checkout.folder / "run.log").read_text(errors="replace")


def files_of(checkout, tier):
    """sha256 by path of every file of the tier that does not tell when or how fast it was made."""
    folder = checkout.folder / "results" / tier
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        of_the_run = path.name in OF_THE_RUN or name.startswith(FOLDERS_OF_THE_RUN)
        if path.is_file() and not of_the_run:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def pixels_of(checkout, tier):
    """Decoded pixels (height, width, channels) by name of every figure."""
    folder = checkout.folder / "results" / tier / "figures"
    return {path.name: np.asarray(Image.open(path)) for path in sorted(folder.glob("*.png"))}


def jobs_in(checkout):
    """Processes that run a job in this copy, also those that lost their Snakemake."""
    return [each for each in psutil.process_iter() if _runs(each, checkout)]


def jobs_of(process, checkout):
    """Those of them that this Snakemake has started."""
    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [each for each in started if _runs(each, checkout)]


def forks_of(process):
    """Processes that a server of this Snakemake forked."""
    try:
        started = psutil.Process(process.pid).children(recursive=True)
        return [each for each in started if "--serve" in each.parent().cmdline()]
    except psutil.Error:
        return []


def _runs(process, checkout):
    """Whether it is a job's interpreter, not the shell around it."""
    try:
        words, folder = process.cmdline(), process.cwd()
    except psutil.Error:
        return False
    return folder == str(checkout.folder) and words[3:4] == ["dpatlas_workflow.run"]


def end(process):
    """SIGKILL, whether or not it is still there."""
    try:
        process.kill()
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    return True
