"""Stages of a job: each found once, whenever the job is killed, and its parts kept until then."""

import numpy as np
import pytest
from small_jobs import counted, killed_at

from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.records import Stopwatch
from dpatlas.base.seeds import Noise
from dpatlas.base.specs import Spec
from dpatlas.jobs import job as job_module
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, WatchedWork

SPEC = Spec.of({"key": "feature_learning", "kind": "small"}, "small")


class Sum:
    """Adds up the numbers of its steps."""

    def __init__(self, steps):
        self.steps, self.steps_done, self.total = steps, 0, np.zeros(1)

    def step(self):
        self.total = self.total + self.steps_done
        self.steps_done += 1

    def state(self):
        return {"total": self.total}, {"steps_done": self.steps_done}

    def restore(self, arrays, facts):
        self.total, self.steps_done = arrays["total"], facts["steps_done"]


def stages_in(folder, code="of today", noise=None):
    checkpoints = Checkpoints(folder, {"code": code})
    return Stages(Job(SPEC, None, None, "cpu", checkpoints, Stopwatch()), noise)


def rows(stages, groups=2):
    """For each group an array of its own, and then two sums that are kept as facts."""

    def array(number):
        work = Sum(2)
        stages.finish(work)
        return {"start": work.total + number, "steps": work.steps}

    def row(number, start):
        work = Sum(3)
        stages.finish(work)
        return {"sum": float(work.total[0] + start[0]), "number": number}

    def group(number):
        start = stages.result("start", lambda: array(number))
        found = [stages.result(f"row-{k}", lambda k=k: row(k, start["start"])) for k in range(2)]
        return {"rows": found, "steps": start["steps"]}

    return [stages.result(f"group-{k}", lambda k=k: group(k)) for k in range(groups)]


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr("os.fsync", lambda file: None)


def test_files_of_stages_go_once_the_stage_around_them_is_in_a_checkpoint(tmp_path, often):
    stages = stages_in(tmp_path)
    rows(stages)
    assert {path.stem for path in tmp_path.iterdir()} == {"stages", "group-1.start"}
    stages.save()
    assert {path.stem for path in tmp_path.iterdir()} == {"stages"}
    with counted((Sum, "step")) as left:
        rows(stages_in(tmp_path))
    assert not left


@pytest.mark.parametrize("kill_at", range(5))
def test_what_was_seen_is_not_looked_at_again(tmp_path, often, kill_at):
    def watch(looks):
        training = Sum(5)

        def look():
            looks.append(training.steps_done)
            return float(training.total[0])

        watched = WatchedWork(training, look, [0, 2, 2, 5])
        stages_in(tmp_path).finish(watched)
        return watched.seen

    before, after = [], []
    with killed_at(kill_at, (Sum, "step")):
        watch(before)
    assert watch(after) == [0.0, 1.0, 1.0, 10.0]
    # Of the looks after the last checkpoint, which is written after a step.
    saved = [step for step in before if step < kill_at]
    assert saved + after == [0, 2, 2, 5]


@pytest.mark.parametrize("kill_at", range(3))
def test_arrays_that_were_seen_survive_a_kill(tmp_path, often, kill_at):
    def watch():
        training = Sum(3)
        look = lambda: {"done": training.steps_done, "a/b": training.total}  # noqa: E731
        watched = WatchedWork(training, look, [0, 1, 3])
        stages_in(tmp_path).finish(watched)
        return watched.seen

    with killed_at(kill_at, (Sum, "step")):
        watch()
    seen = watch()
    assert [each["done"] for each in seen] == [0, 1, 3]
    assert [each["a/b"].tolist() for each in seen] == [[0.0], [0.0], [3.0]]


# 16 steps and two arrays are saved, these after steps 2 and 10.
STEPS, WRITES = (Sum, "step"), (Checkpoints, "save")
KILLS = [(STEPS, number, 16 - number) for number in range(16)]
KILLS += [(WRITES, number, 16 - number + (number > 2) + (number > 11)) for number in range(18)]


@pytest.mark.parametrize(("calls", "number", "left"), KILLS)
def test_no_step_before_the_last_checkpoint_is_taken_again(tmp_path, often, calls, number, left):
    whole = rows(stages_in(tmp_path / "whole"))
    with killed_at(number, calls):
        rows(stages_in(tmp_path / "killed"))
    with counted(STEPS) as steps:
        assert rows(stages_in(tmp_path / "killed")) == whole
    assert len(steps) == left


def test_a_checkpoint_of_other_code_is_ignored_and_one_before_the_work_goes_on_loses_nothing(
    tmp_path, often
):
    with killed_at(9, (Sum, "step")):
        rows(stages_in(tmp_path))
    stages_in(tmp_path).save()
    for code, left in (("of today", 7), ("of tomorrow", 16)):
        with counted((Sum, "step")) as steps:
            rows(stages_in(tmp_path, code))
        assert len(steps) == left


def test_the_noise_keeps_its_secret(tmp_path):
    first, second = Noise(), Noise()
    stages_in(tmp_path, noise=first).save()
    stages_in(tmp_path, noise=second)
    assert second.secret == first.secret
