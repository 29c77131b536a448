"""Reports: the runs of every arm at settings that were chosen before, on other records.

All arms of a run share its deal, its initial weights and, where their samplers agree, batches and
noise, so that they differ by little else than the method. Each guarantee is therefore for one arm
that is released alone. A killed job continues inside the training that was interrupted.
"""

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic

from dpatlas.accounting.guarantees import default_relation
from dpatlas.accounting.ledger import Ran, holds_for, ledger
from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.progress import Progress
from dpatlas.base.records import RecordShape, Row
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages
from dpatlas_workflow.run.arms import A, Arms, ArmSetting, D, OneRun
from dpatlas_workflow.run.deals import FIXED, Deals, is_generated

SHARED = "the arms of one run"
RELEASED = "the last iterate of one run of one arm"


class Reports(Generic[A, D]):
    """The tables `arms` and `runs` of reported runs, and a ledger for each arm.

    The job's fields must have run_numbers, tuning, noise_source, delta and accountant.

    record: of the job's kind. facts_of: an arm's entries of its row. in_ledger: further arguments
    of a row's `ledger`.

    Raises InputError for an arm without settings.
    """

    def __init__(
        self,
        job: Job,
        arms: Arms[A, D],
        record: RecordShape,
        facts_of: Callable[[A], Mapping[str, Any]],
        in_ledger: Callable[[Row], Mapping[str, Any]] = lambda row: {},
    ):
        self.job, self.arms = job, arms
        self.record, self.facts_of, self.in_ledger = record, facts_of, in_ledger
        self.deals = Deals(job)
        self.noise = Noise(self._root, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.ledgers: list[dict[str, Any]] = []
        self.rows: list[Row] = []
        self.seen: list[Row] = []

    @property
    def _root(self) -> str:
        """What keys the noise: the spec and the settings, whether or not the spec has them.

        Another outcome of the tuning that a spec waits for is another training of the same arm:
        with equal noise, only one of the two could be released.
        """
        digest = self.job.spec.digest
        return digest if self.job.tuning is None else f"{digest}/{self._settings}"

    @property
    def _settings(self) -> str:
        """Digest of the settings of all arms."""
        return sha256(canonical_json(self.job.chosen))[:16]

    def run(self) -> dict[str, list[Row]]:
        """Both tables; also sets `rows`, those of arms, `ledgers`, and `seen`: `Arms.seen` by run.

        What an arm does not have is None. What trainings measure has the columns of `runs`.
        """
        settings = [self._setting(arm) for arm in self.arms.all]
        numbers = self.job.fields.run_numbers
        with Progress(len(numbers), self.job.spec.id) as progress:
            runs = []
            for number in numbers:
                of_run = partial(self._run, number, settings)
                runs.append(self.stages.result(f"run-{number}", of_run))
                progress.advance(f"run {number}")
        self.seen = [{"run": n, **run["seen"]} for n, run in zip(numbers, runs, strict=True)]
        measured: list[Row] = []
        for i, arm in enumerate(self.arms.all):
            of_arm = {**self.facts_of(arm), **settings[i].facts, **settings[i].stated()}
            names = self.record.columns("arms")
            self.rows.append({**dict.fromkeys(names), "arm": i, **of_arm})
            measured += [
                {"run": n, "arm": i, **run["arms"][i]["measured"]}
                for n, run in zip(numbers, runs, strict=True)
            ]
            ran = Ran.of(runs[0]["arms"][i]["ran"])
            self.ledgers.append(self._ledger(arm, self.rows[-1], ran))
        return {"arms": self.rows, "runs": measured}

    def _setting(self, arm: A) -> ArmSetting[D]:
        name = self.arms.named(arm)
        if name not in self.job.chosen:
            found = f"no settings of {name}"
            raise InputError(self.job.fields.tuning, found, "settings of every arm; tune again")
        return self.arms.setting_of(arm, self.job.chosen[name])

    def _run(self, number: int, settings: list[ArmSetting[D]]) -> dict[str, Any]:
        """What every arm measured in a run, and what it did, as JSON values."""
        records = functools.cache(lambda: self.arms.records_of(self.deals.of(number)))

        def train(setting: ArmSetting[D]) -> dict[str, Any]:
            shared = (number, number, SHARED)
            measured, ran = setting.train(
                OneRun(self.job, self.stages, self.noise, records(), *shared)
            )
            return {"measured": measured, "ran": ran.facts()}

        arms = [
            self.stages.result(f"arm-{i}", partial(train, setting))
            for i, setting in enumerate(settings)
        ]
        return {"arms": arms, "seen": self.arms.seen(records())}

    def _ledger(self, arm: A, row: Row, ran: Ran) -> dict[str, Any]:
        fields = self.job.fields
        statement = ledger(
            ran,
            delta=fields.delta,
            relation=row["relation"] or default_relation(ran.phases),
            accountant=fields.accountant,
            chosen_on_private_data=[self.chosen_elsewhere],
            released=RELEASED,
            **{"constants": self.arms.constants, **self.in_ledger(row)},
        )
        return {"arm": self.arms.named(arm), **statement}

    @property
    def chosen_elsewhere(self) -> dict[str, str]:
        """What was chosen on private data, and at whose cost."""
        fixed = len(getattr(self.job.prepared, f"y_{FIXED}"))
        by = self.job.fields.tuning
        if self.job.tuning is not None:
            # The spec does not have them: two records of one spec may differ by nothing else.
            by += f" (settings {self._settings})"
        return {
            "what": f"settings, by {by} on {fixed} records that are in no run",
            "cost": "nothing for the records of a run; no finite epsilon for those it was chosen "
            "on, whose scores carry no noise: the ledger of that tuning counts its trials",
        }

    def ledger(self, mechanism: str, clip: str) -> dict[str, Any]:
        """The job's ledger; each arm's own stands under `arms`."""
        in_arms = "as each arm says"
        return {
            "mechanism": mechanism,
            "neighbour_relation": in_arms,
            "sampler": sorted({row["sampler"] for row in self.rows}),
            "accountant": in_arms,
            "epsilon": None,
            "delta": self.job.fields.delta,
            "guaranteed": f"{in_arms}, for the records that one run trains on and for its last "
            "iterate; all arms together have no guarantee here, as they share noise"
            f"{self._several_runs}",
            "claimed": in_arms,
            "clip": clip,
            "noise_multiplier": None,
            "chosen_on_private_data": [self.chosen_elsewhere],
            "holds_for": holds_for(self.noise.source, RELEASED, SHARED),
            "arms": self.ledgers,
        }

    @property
    def _several_runs(self) -> str:
        """What the guarantee of one run leaves out: the others."""
        if not self.job.fields.data.redeal:
            return "; the runs, which train on the same records, are not composed here"
        if is_generated(self.job.prepared):
            return "; every run draws records of its own"
        return ", nor have all runs: one trains on records that another is scored on"
