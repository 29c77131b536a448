import pytest

from dpatlas.cost.counting import Work
from dpatlas.cost.plan import (
    DRAWING_S,
    ORCHESTRATION_PER_JOB_S,
    ORCHESTRATION_S,
    STARTING_S,
    Job,
    describe_plan,
    make_plan,
)
from dpatlas.cost.rates import DEFAULTS

UNIT = DEFAULTS["cpu"]


def plan_of(jobs, tmp_path):
    return make_plan(jobs, "cpu", tmp_path, 2, "embedded")


def test_what_no_paper_asks_for_is_counted_by_hand(tmp_path):
    training = Work({"starts": 3, "steps": 1000}, 0)
    jobs = [Job("lp_fft", "strategies", False, training), Job("lp_fft", "figures", False)]
    jobs.append(Job("lp_fft", "strategies", True, training))
    overhead = plan_of(jobs, tmp_path)["overhead"]
    starts = 3 * UNIT["starts"] + STARTING_S
    snakemake = ORCHESTRATION_S + 2 * ORCHESTRATION_PER_JOB_S
    assert overhead["start_hours"] == pytest.approx(starts / 3600)
    assert overhead["orchestration_hours"] == pytest.approx(snakemake / 3600)
    drawing = DRAWING_S["figures"] - STARTING_S
    whole = starts + snakemake + 1000 * UNIT["steps"] + drawing
    assert overhead["share"] == pytest.approx((starts + snakemake) / whole)


def test_a_long_job_makes_the_share_small_and_the_plan_says_it(tmp_path):
    def share(steps):
        work = Work({"starts": 1, "steps": steps}, 0)
        return plan_of([Job("lp_fft", "strategies", False, work)], tmp_path)

    assert share(1e9)["overhead"]["share"] < 0.01 < 0.9 < share(1)["overhead"]["share"]
    assert "of Snakemake: 0% together" in describe_plan(share(1e9))
