"""Reports: the runs of every arm at settings that were chosen before, on other records.

All arms of a run share its deal, its initial weights and, where their samplers agree, batches and
noise, so that they differ by little else than the method. Each guarantee is therefore for one arm
that is released alone. A killed job continues inside the training that was interrupted.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

from dpatlas.accounting.guarantees import default_relation
from dpatlas.accounting.ledger import PUBLIC, Ran, holds_for, ledger
from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.progress import Progress
from dpatlas.base.records import RecordShape, Row
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Outcome
from dpatlas.jobs.resume import Stages
from dpatlas_workflow.run.arms import Arm, Arms, Chosen, OneRun
from dpatlas_workflow.run.deals import FIXED, Deals, is_generated

SHARED = "the arms of one run"
IN_ARMS = "as each arm says"


def report(job: Job, record: RecordShape, arms: Arms) -> Outcome:
    """The tables `arms` and `runs`, `seen` if the record has it, and a ledger for each arm.

    The job's fields must have run_numbers, tuning, noise_source, delta and accountant. What an arm
    does not have is None. What trainings measure has the columns of `runs`.

    Raises InputError for an arm without settings.
    """
    chosen = {name: _at_chosen(job, name, at) for name, at in arms.by_name.items()}
    noise = Noise(_root(job), job.fields.noise_source)
    stages, deals = Stages(job, noise), Deals(job)

    def run(number: int) -> dict[str, Any]:
        """What every arm measured in a run, and what it did, as JSON values."""
        records = functools.cache(lambda: arms.records_of(deals.of(number)))

        def train(arm: Arm) -> dict[str, Any]:
            one = OneRun(job, stages, noise, records(), number, number, SHARED)
            measured, ran = arm.train(one)
            return {"measured": measured, "ran": ran.facts()}

        trained = [
            stages.result(f"arm-{i}", partial(train, arm)) for i, arm in enumerate(chosen.values())
        ]
        return {"arms": trained, "seen": arms.seen(records())}

    runs = {}
    with Progress(len(job.fields.run_numbers), job.spec.id) as progress:
        for number in job.fields.run_numbers:
            runs[number] = stages.result(f"run-{number}", partial(run, number))
            progress.advance(f"run {number}")
    columns = record.columns("arms")
    rows: list[Row] = []
    measured: list[Row] = []
    ledgers: list[dict[str, Any]] = []
    for i, (name, arm) in enumerate(chosen.items()):
        entries = {"arm": i, **arm.row()}
        rows.append({column: entries.get(column) for column in columns})
        trainings = [run["arms"][i] for run in runs.values()]
        measured += [
            {"run": number, "arm": i, **training["measured"]}
            for number, training in zip(runs, trainings, strict=True)
        ]
        statement = _ledger(job, arms, arm, rows[i], Ran.of(trainings[0]["ran"]))
        ledgers.append({"arm": name, **statement})
    seen = [{"run": number, **run["seen"]} for number, run in runs.items()]
    tables = {"arms": rows, "runs": measured}
    if "seen" in record.tables:
        tables["seen"] = seen
    all_arms = {
        "mechanism": arms.mechanism,
        "neighbour_relation": IN_ARMS,
        "sampler": sorted({str(row["sampler"]) for row in rows}),
        "accountant": IN_ARMS,
        "epsilon": None,
        "delta": job.fields.delta,
        "guaranteed": f"{IN_ARMS}, for the records that one run trains on and for its "
        f"{arms.reported_weights}; all arms together have no guarantee here, as they share "
        f"noise{_other_runs(job)}",
        "claimed": IN_ARMS,
        "clip": arms.clip,
        "noise_multiplier": None,
        "chosen_on_private_data": [_chosen_elsewhere(job)],
        "holds_for": holds_for(noise.source, _released(arms), SHARED),
        "arms": ledgers,
    }
    return Outcome(tables, all_arms)


def _at_chosen(job: Job, name: str, at: Callable[[Chosen], Arm]) -> Arm:
    if name not in job.chosen:
        found = f"no settings of {name}"
        raise InputError(job.fields.tuning, found, "settings of every arm; tune again")
    return at(job.chosen[name])


def _root(job: Job) -> str:
    """What keys the noise: the spec and the settings, whether or not the spec has them.

    Another outcome of the tuning that a spec waits for is another training of the same arm: with
    equal noise, only one of the two could be released.
    """
    digest = job.spec.digest
    return digest if job.tuning is None else f"{digest}/{_settings(job)}"


def _settings(job: Job) -> str:
    """Digest of the settings of all arms."""
    return sha256(canonical_json(job.chosen))[:16]


def _ledger(job: Job, arms: Arms, arm: Arm, row: Row, ran: Ran) -> dict[str, Any]:
    fields, claimed = job.fields, None
    if arm.theorem is not None and row["claimed_epsilon"] is not None:
        claimed = {"epsilon": row["claimed_epsilon"], "delta": fields.delta, "by": arm.theorem}
    return ledger(
        ran,
        delta=fields.delta,
        relation=row["relation"] or default_relation(ran.phases),
        accountant=fields.accountant,
        constants=dict.fromkeys(arms.constants, PUBLIC),
        claimed=claimed,
        chosen_on_private_data=[_chosen_elsewhere(job)],
        released=_released(arms),
        require_private=row["relation"] is not None,
    )


def _released(arms: Arms) -> str:
    return f"the {arms.reported_weights} of one run of one arm"


def _chosen_elsewhere(job: Job) -> dict[str, str]:
    """What was chosen on private data, and at whose cost."""
    fixed = len(getattr(job.prepared, f"y_{FIXED}"))
    by = job.fields.tuning
    if job.tuning is not None:
        # The spec does not have them: two records of one spec may differ by nothing else.
        by += f" (settings {_settings(job)})"
    return {
        "what": f"settings, by {by} on {fixed} records that are in no run",
        "cost": "nothing for the records of a run; no finite epsilon for those it was chosen "
        "on, whose scores carry no noise: the ledger of that tuning counts its trials",
    }


def _other_runs(job: Job) -> str:
    """What the guarantee of one run leaves out: the others."""
    if not job.fields.data.redeal:
        return "; the runs, which train on the same records, are not composed here"
    if is_generated(job.prepared):
        return "; every run draws records of its own"
    return ", nor have all runs: one trains on records that another is scored on"
