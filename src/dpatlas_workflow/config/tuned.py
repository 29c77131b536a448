"""Settings that were chosen before the reported runs, and the specs of the tunings that chose them.

A paper's folder may have the outcomes of tunings, `tuned.yaml`, which `python -m dpatlas tune
--write` makes. Specs of reported runs whose tuning is among them carry its choice, and nothing is
tuned; else that tuning runs first.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dpatlas.base.fields import AsWritten, Model, setting
from dpatlas.base.guard import integer
from dpatlas.base.specs import Spec
from dpatlas.base.yaml_files import read_checked
from dpatlas_workflow.config.common import run_blocks
from dpatlas_workflow.config.root import General
from dpatlas_workflow.registry import all_blocks

FILE = "tuned.yaml"
# Of every tuning, whatever the base seed of the runs that take its choice.
SEED = 1

Number = Annotated[int | float, AsWritten]
Choice = dict[str, Number | list[Number]]


class TriedPoint(Model):
    """A point of an arm's grid."""

    settings: Choice = setting("The settings, by name.")
    score: float = setting("Mean share of right answers over its trials.")


class TunedArm(Model):
    """What an arm tried."""

    chosen: Choice = setting("The settings with the best score.")
    epsilon: float | None = setting(
        "Of all trainings behind the choice, by composition, for a record that all of them train "
        "on and none scores; null without noise.",
        default=None,
    )
    tried: list[TriedPoint] = setting("All points of its grid.", min_length=1)


class Outcome(Model):
    """The outcome of one tuning."""

    commit: Annotated[str, Field(pattern="^[0-9a-f]{7,40}$")] = setting("Whose code made it.")
    code: str = setting("Digest of that code.")
    finished: str = setting("When it was made.")
    processor: str = setting("What it was made on.")
    trials: int = setting("Number of trainings behind it.", ge=1)
    arms: dict[str, TunedArm] = setting("What every arm tried, by name.")


class Tuned(Model):
    """A paper's tuned.yaml: outcomes by the id of the tuning."""

    tuned: dict[str, Outcome] = setting("Outcomes by the id of the tuning's spec.")


@functools.cache
def outcomes(path: Path) -> Mapping[str, Outcome]:
    """The outcomes in a file; none without it. InputError for a wrong field."""
    return read_checked(path, Tuned).tuned if path.is_file() else {}


@dataclass(frozen=True)
class TunedRuns:
    """The spec of a tuning, and those of the runs that take its choice."""

    tuning: Spec
    reported: list[Spec]


def tuned_runs(
    config: General,
    key: str,
    kind: str,
    fields: Mapping[str, Any],
    spec: type[Model],
    name: str,
    runs: int,
    runs_per_job: int,
) -> TunedRuns:
    """Specs of `run_blocks` of the block `key`, and of their tuning, of kind `KIND_tuning`.

    fields: of both; the data by `DealtSet.dealt`. spec: class of the runs' specs; fields that it
    lacks, such as tuning_runs, are the tuning's alone. The tuning's seed is that of all tunings.

    Raises InputError for fewer than two records to tune on, and as `run_blocks`.
    """
    integer(ge=2).check(f"{key}: n_validation of {name}", fields["data"]["n_validation"])
    data = {name: value for name, value in fields["data"].items() if name != "redeal"}
    common = {"key": key, "kind": f"{kind}_tuning", "noise_source": config.noise_source}
    tuning = Spec.of({**common, **fields, "data": data, "seed": SEED}, f"{name}-tuning")
    names = {field.alias or name for name, field in spec.model_fields.items()}
    reported = {name: value for name, value in fields.items() if name in names}
    reported |= {"tuning": tuning.id, "chosen": shipped(tuning)}
    blocks = run_blocks(config, key, kind, reported, name, runs, runs_per_job)
    return TunedRuns(tuning, blocks)


def shipped(tuning: Spec) -> dict[str, Any] | None:
    """Settings that a tuning chose, by the name of the arm; None where it has to run first."""
    found = outcomes(all_blocks()[tuning.key].folder / FILE).get(tuning.id)
    return {name: arm.plain()["chosen"] for name, arm in found.arms.items()} if found else None
