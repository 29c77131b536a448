"""What `make` shows of a run: what was made, and how many jobs and minutes are left."""

import io
import logging
from types import SimpleNamespace

import pytest

from dpatlas_workflow.cost import standing
from dpatlas_workflow.cost.standing import Planned, Standing

JOBS = {
    1: Planned("simulation a", 60.0),
    2: Planned("simulation b", 30.0),
    3: Planned("figure c", 10.0, "results/t/figures/c.pdf"),
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    time = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(standing.time, "monotonic", lambda: time.now)
    return time


@pytest.fixture
def following(clock):
    """A function that follows the jobs on a stream; it returns a function of Snakemake's events."""

    def begin(stream):
        standing = Standing(stream)
        standing.begin(JOBS, cores=2)

        def told(name, level=logging.INFO, **facts):
            record = logging.makeLogRecord({"levelno": level, "msg": "told by Snakemake", **facts})
            record.event = SimpleNamespace(name=name)
            standing.handle(record)

        return standing, told

    return begin


def test_what_is_made_is_said_at_once_and_the_state_now_and_then(clock, following):
    stream = io.StringIO()
    standing, told = following(stream)
    told("JOB_STARTED", jobs=[1, 3])
    told("JOB_FINISHED", job_id=3)
    shown = ["3 jobs, about 50 s on 2 cores", "results/t/figures/c.pdf"]
    assert stream.getvalue().splitlines() == shown
    clock.now += 40
    told("JOB_STARTED", jobs=[2])
    # 50 of 100 seconds of work took 40 seconds.
    shown.append("1 of 3 jobs, 40 s left: simulation a, simulation b")
    assert stream.getvalue().splitlines() == shown
    for job in (1, 2):
        told("JOB_FINISHED", job_id=job)
    standing.end()
    assert stream.getvalue().splitlines() == [*shown, "3 jobs done in 40 s"]


def test_on_a_terminal_the_state_is_one_line_that_is_gone_before_an_error(
    clock, following, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    _, told = following(stream)
    told("JOB_STARTED", jobs=[1, 2])
    clock.now += 10
    told("JOB_FINISHED", job_id=2)
    # 10 seconds for 30 of job 2 and 10 of job 1.
    whole = "1 of 3 jobs, 15 s left: simulation a"
    assert stream.getvalue().rpartition("\r")[2] == f"{whole[:29]}\x1b[K"
    assert stream.getvalue().count("\n") == 1
    told("JOB_ERROR", logging.ERROR, jobid=1)
    assert stream.getvalue().endswith("\r\x1b[K")
    # The job is not named again.
    monkeypatch.setenv("COLUMNS", "80")
    told("JOB_STARTED", jobs=[3])
    assert "simulation a" not in stream.getvalue().rpartition("\r")[2]


def test_what_snakemake_says_of_each_job_is_silenced_and_its_errors_are_not(clock):
    class ColorizingTextHandler(logging.StreamHandler):
        """As Snakemake calls what writes to a terminal."""

    log, shown = logging.Logger("snakemake"), io.StringIO()
    log.addHandler(ColorizingTextHandler(shown))
    Standing(io.StringIO()).take_over(log)
    log.info("rule kl_vs_depth:")
    log.error("Error in rule kl_vs_depth")
    assert shown.getvalue() == "Error in rule kl_vs_depth\n"
    # The name stands for the class of today's Snakemake.
    from snakemake.logging import ColorizingTextHandler as Real

    assert Real.__name__ == ColorizingTextHandler.__name__
