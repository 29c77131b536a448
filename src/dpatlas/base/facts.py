"""Parts that records of several blocks share."""

from typing import Annotated

from pydantic import Field

from dpatlas.base.fields import Model
from dpatlas.base.records import Number, RecordShape, RunsFields, SpecFields

# Bounds the repetition numbers of a search, of which every run has its own.
MAX_RUNS_PER_SETTING = 10_000
Runs = Annotated[int, Field(ge=1, lt=MAX_RUNS_PER_SETTING)]


class OwnSet(Model):
    """Definition of a user's own data set: classes by name, (channels, height, width), scaling."""

    classes: list[str]
    image_shape: list[int]
    scaling: str
    resize: bool = False


class DataFields(Model):
    """A data set as a spec names it: its name, classes, and numbers of records of each part.

    redeal: whether every run is dealt its records anew, or draws its own of a generated set.
    """

    name: str
    classes: list[int | str] | None = None
    n_train: int | None = None
    n_add: int | None = None
    n_test: int | None = None
    n_validation: int | None = None
    norm: Number | None = None
    selection: int | None = None
    own: OwnSet | None = None
    redeal: bool = False


# Settings of an arm, as its grid has them: {"lr": 0.3}, {"lambda": 0.01, "epochs": 10}.
Choice = dict[str, Number | list[Number]]


class ReportedFields(RunsFields):
    """Fields of a spec of runs whose settings a tuning chose.

    tuning: id of the tuning's spec. chosen: settings by the name of the arm, as shipped with the
    project; None where that tuning runs first.
    """

    tuning: str
    chosen: dict[str, Choice] | None


class TuningFields(SpecFields):
    """Fields of a spec of a tuning. tuning_runs: number of trials of every setting."""

    tuning_runs: Runs


def tuning_record(spec: type[TuningFields]) -> RecordShape:
    """What records of a tuning hold.

    n_fixed: number of records that it dealt to its trials. By arm, tried: a list of points of its
    grid, each its `settings` and the share of right answers of each trial, `scores`; chosen: the
    settings with the best mean score, of equal ones the first; trials: number of trainings behind
    the choice; trials_epsilon: of all of them, by composition, None where nothing is guaranteed.
    """
    rows = "arm tried chosen trials trials_epsilon"
    return RecordShape(spec, version=1, facts="n_fixed", tables={"rows": rows})


def network_record(spec: type[SpecFields]) -> RecordShape:
    """The record of networks that `dpatlas.train` trains.

    n: records, or persons, that batches are drawn from, canaries counted; n_test: test records.
    relation: of the guarantee. noise_multiplier, expected_batch: of every step. accuracy, loss: of
    runs and their means, on test records; None where there are none or they have no classes.
    skipped_records: gradients that were not finite, a private count. selected, score: of the
    released trial of a selection, else None. audit: what canaries show, None without any. lower:
    bound on epsilon at the spec's delta (`accounting.audit_statistics.LowerBound`); profile_test:
    of the guaranteed privacy profile as a whole (`accounting.one_run.OneRunTest`); contradicted:
    whether it is rejected.
    """
    return RecordShape(
        spec,
        version=1,
        facts="n n_test relation noise_multiplier expected_batch steps accuracy loss "
        "skipped_records audit selected score",
        tables={"runs": "run accuracy loss skipped_records"},
    )
