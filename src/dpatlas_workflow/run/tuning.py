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
from typing import Any, Generic

import numpy as np

from dpatlas.accounting.guarantees import default_relation
from dpatlas.accounting.ledger import Ran, holds_for, ledger
from dpatlas.base.facts import MAX_RUNS_PER_SETTING
from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job, Outcome
from dpatlas.jobs.resume import Stages
from dpatlas_workflow.run.arms import A, Arms, Chosen, D, OneRun
from dpatlas_workflow.run.deals import Deals

SETTINGS = integer(ge=1, lt=MAX_RUNS_PER_SETTING)
COST = (
    "no finite epsilon for the records of the fixed part: a trial scores some of them without "
    "noise; the trials' epsilon is of all trainings together, for a record that all train on and "
    "none scores; the records of the reported runs are other people's"
)


class Tuning(Generic[A, D]):
    """The rows of a tuning, one per arm in their order, and a ledger for each.

    The job's fields must have tuning_runs, noise_source, delta and accountant.

    grid_of: settings that an arm tries, given those that were chosen for earlier arms by name.
    after: names of the earlier arms whose trials chose a part of an arm's grid.
    """

    def __init__(
        self,
        job: Job,
        arms: Arms[A, D],
        grid_of: Callable[[A, Mapping[str, Chosen]], Sequence[Chosen]],
        after: Callable[[A], Sequence[str]] = lambda arm: (),
    ):
        self.job, self.arms, self.grid_of, self.after = job, arms, grid_of, after
        self.deals = Deals(job)
        self.noise = Noise(job.spec.digest, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.chosen: dict[str, Chosen] = {}
        self.ledgers: list[dict[str, Any]] = []
        # For each arm the facts of its trials (`Ran.facts`).
        self.trials: dict[str, list[dict[str, Any]]] = {}
        self._records = functools.cache(lambda run: arms.records_of(self.deals.trial(run)))

    def run(self) -> list[Row]:
        """The rows of all arms; also sets `chosen`, `ledgers` and `trials`."""
        rows = []
        with Progress(len(self.arms.all), self.job.spec.id) as progress:
            for number, arm in enumerate(self.arms.all):
                stage = self.stages.result(
                    f"arm-{number}", partial(self._arm, number, arm, progress)
                )
                row, name = stage["row"], stage["row"]["arm"]
                rows.append(row)
                self.chosen[name], self.trials[name] = row["chosen"], stage["trials"]
                self.ledgers.append(stage["ledger"])
                progress.advance(name)
        return rows

    def outcome(self, mechanism: str, clip: str) -> Outcome:
        """What `run` gave, as `core.facts.tuning_record` has it, and the ledger of that."""
        rows = self.run()
        n_fixed = len(self.job.prepared.y_validation)
        return Outcome({"n_fixed": n_fixed, "rows": rows}, self.ledger(mechanism, clip))

    def _arm(self, number: int, arm: A, progress: Progress) -> dict[str, Any]:
        """Row, ledger and trials of an arm as JSON values."""
        fields, name = self.job.fields, self.arms.named(arm)
        grid = list(self.grid_of(arm, self.chosen))
        SETTINGS.check("settings of an arm", len(grid))
        settings = [self.arms.setting_of(arm, choice) for choice in grid]

        def trial(setting: int, run: int) -> dict[str, Any]:
            repetition = (number * MAX_RUNS_PER_SETTING + setting) * MAX_RUNS_PER_SETTING + run

            def train() -> dict[str, Any]:
                one = OneRun(self.job, self.stages, self.noise, self._records(run), run, repetition)
                measured, ran = settings[setting].train(one)
                return {"score": measured["accuracy"], "ran": ran.facts()}

            result = self.stages.result(f"trial-{repetition}", train)
            done = setting * fields.tuning_runs + run + 1
            progress.advance(f"{name}: {done} of {len(grid) * fields.tuning_runs} trials", units=0)
            return result

        trials = [
            [trial(setting, run) for run in range(fields.tuning_runs)]
            for setting in range(len(grid))
        ]
        scores = [[each["score"] for each in of_setting] for of_setting in trials]
        best = int(np.argmax([np.mean(each) for each in scores]))
        facts = [each["ran"] for of_setting in trials for each in of_setting]
        tried = [
            *(facts for before in dict.fromkeys(self.after(arm)) for facts in self.trials[before]),
            *facts,
        ]
        statement = self._ledger(name, [Ran.of(each) for each in tried], settings[best].stated())
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
        return {"row": row, "ledger": statement, "trials": facts}

    def _ledger(
        self, name: str, trials: Sequence[Ran], stated: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Of everything that was trained to choose an arm's settings."""
        fields = self.job.fields
        what = f"settings of this arm, by the scores of {len(trials)} trials"
        statement = ledger(
            trials,
            delta=fields.delta,
            relation=stated["relation"] or default_relation(trials[0].phases),
            accountant=fields.accountant,
            constants=self.arms.constants,
            chosen_on_private_data=[{"what": what, "cost": COST}],
            released="the settings and the scores",
        )
        return {"arm": name, **statement}

    def ledger(self, mechanism: str, clip: str) -> dict[str, Any]:
        """The job's ledger; each arm's own stands under `arms`."""
        count = sum(map(len, self.trials.values()))
        return {
            "mechanism": mechanism,
            "neighbour_relation": "as each arm says",
            "sampler": sorted({phase["sampler"] for facts in self._facts() for phase in facts}),
            "accountant": "as each arm says",
            "epsilon": None,
            "delta": self.job.fields.delta,
            "guaranteed": COST,
            "claimed": None,
            "clip": clip,
            "noise_multiplier": None,
            "chosen_on_private_data": f"the settings of all arms, by {count} trials",
            "holds_for": holds_for(self.noise.source, "the settings and the scores of one arm"),
            "arms": self.ledgers,
        }

    def _facts(self) -> list[list[dict[str, Any]]]:
        return [facts["phases"] for trials in self.trials.values() for facts in trials]
