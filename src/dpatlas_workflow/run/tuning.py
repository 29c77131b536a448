"""Tuning: every arm tries its grid on the fixed part of the records, which no reported run deals.

Each trial deals the fixed part anew: it trains on five sixths, and is scored on the rest. Number of
steps, size of batches and noise on a mean gradient are those of the reported run; where a batch is
larger than all records of a trial, it takes them all. Trials have noise of their own, so that their
costs compose; their scores carry none, so that nothing finite holds for the people of the fixed
part. A killed job continues inside the trial that was interrupted.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpatlas.accounting.guarantees import default_relation
from dpatlas.accounting.ledger import PUBLIC, Ran, holds_for, ledger
from dpatlas.base.facts import MAX_RUNS_PER_SETTING
from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job, Outcome
from dpatlas.jobs.resume import Stages
from dpatlas_workflow.run.arms import Arms, Chosen, OneRun
from dpatlas_workflow.run.deals import FIXED, Deals

SETTINGS = integer(ge=1, lt=MAX_RUNS_PER_SETTING)
RELEASED = "the settings and the scores"
COST = (
    "no finite epsilon for the records of the fixed part: a trial scores some of them without "
    "noise; the trials' epsilon is of all trainings together, for a record that all train on and "
    "none scores; the records of the reported runs are other people's"
)


def tune(
    job: Job,
    arms: Arms,
    grid_of: Callable[[str, Mapping[str, Chosen]], Sequence[Chosen]],
    after: Callable[[str], Sequence[str]] = lambda name: (),
) -> Outcome:
    """What every arm tried and chose (`dpatlas.base.facts.tuning_record`), and a ledger for each.

    The job's fields must have tuning_runs, noise_source, delta and accountant.

    grid_of: settings that an arm tries, given those that were chosen for earlier arms by name.
    after: names of the earlier arms whose trials chose a part of an arm's grid.
    """
    fields, deals = job.fields, Deals(job)
    noise = Noise(job.spec.digest, fields.noise_source)
    stages = Stages(job, noise)
    records = functools.cache(lambda run: arms.records_of(deals.trial(run)))
    tuned: dict[str, dict[str, Any]] = {}

    def tune_arm(number: int, name: str, progress: Progress) -> dict[str, Any]:
        """Row, ledger and trials of an arm as JSON values."""
        grid = list(grid_of(name, {arm: each["row"]["chosen"] for arm, each in tuned.items()}))
        SETTINGS.check("settings of an arm", len(grid))
        settings = [arms.by_name[name](choice) for choice in grid]

        def trial(setting: int, run: int) -> dict[str, Any]:
            repetition = (number * MAX_RUNS_PER_SETTING + setting) * MAX_RUNS_PER_SETTING + run

            def train() -> dict[str, Any]:
                one = OneRun(job, stages, noise, records(run), run, repetition)
                measured, ran = settings[setting].train(one)
                return {"score": measured["accuracy"], "ran": ran.facts()}

            result = stages.result(f"trial-{repetition}", train)
            done = setting * fields.tuning_runs + run + 1
            progress.advance(f"{name}: {done} of {len(grid) * fields.tuning_runs} trials", units=0)
            return result

        runs = range(fields.tuning_runs)
        trials = [[trial(setting, run) for run in runs] for setting in range(len(grid))]
        scores = [[each["score"] for each in of_setting] for of_setting in trials]
        best = int(np.argmax([np.mean(each) for each in scores]))
        own = [each["ran"] for of_setting in trials for each in of_setting]
        earlier = [ran for before in dict.fromkeys(after(name)) for ran in tuned[before]["trials"]]
        tried = [Ran.of(ran) for ran in [*earlier, *own]]
        what = f"settings of this arm, by the scores of {len(tried)} trials"
        statement = ledger(
            tried,
            delta=fields.delta,
            relation=settings[best].row()["relation"] or default_relation(tried[0].phases),
            accountant=fields.accountant,
            constants=dict.fromkeys(arms.constants, PUBLIC),
            chosen_on_private_data=[{"what": what, "cost": COST}],
            released=RELEASED,
        )
        row = {
            "arm": name,
            "tried": [
                {"settings": choice, "scores": each}
                for choice, each in zip(grid, scores, strict=True)
            ],
            "chosen": grid[best],
            "trials": len(tried),
            "trials_epsilon": statement["epsilon"],
        }
        return {"row": row, "ledger": {"arm": name, **statement}, "trials": own}

    with Progress(len(arms.by_name), job.spec.id) as progress:
        for number, name in enumerate(arms.by_name):
            of_arm = partial(tune_arm, number, name, progress)
            tuned[name] = stages.result(f"arm-{number}", of_arm)
            progress.advance(name)
    trials = [ran for arm in tuned.values() for ran in arm["trials"]]
    all_arms = {
        "mechanism": arms.mechanism,
        "neighbour_relation": "as each arm says",
        "sampler": sorted({phase["sampler"] for ran in trials for phase in ran["phases"]}),
        "accountant": "as each arm says",
        "epsilon": None,
        "delta": fields.delta,
        "guaranteed": COST,
        "claimed": None,
        "clip": arms.clip,
        "noise_multiplier": None,
        "chosen_on_private_data": f"the settings of all arms, by {len(trials)} trials",
        "holds_for": holds_for(noise.source, f"{RELEASED} of one arm"),
        "arms": [arm["ledger"] for arm in tuned.values()],
    }
    n_fixed = len(getattr(job.prepared, f"y_{FIXED}"))
    return Outcome({"n_fixed": n_fixed, "rows": [arm["row"] for arm in tuned.values()]}, all_arms)
