"""Records of kind `selection`: the released one of several trainings of a classifier.

settings, score, accuracy, loss: of the released trial, None if none was drawn. score: share of
right answers on validation records, with noise of standard deviation score_deviation unless that is
None; accuracy, loss: on test records; the loss is None if it is not finite. n_train, n_validation,
n_test: numbers of records. noise_multiplier, expected_batch: of every trial. expected_trials: their
mean number.
"""

from typing import Annotated, Any

from pydantic import Field, model_validator

from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.core.guard import real
from dpatlas.core.records import RecordShape
from dpatlas.errors import InputError

# Settings that a trial may draw: the guarantee of a training does not depend on them.
SELECTABLE = ("lr", "max_grad_norm")


class SelectionSpec(Classifier):
    """A random number of trials, each with settings drawn from `ranges`.

    law, expected_trials: distribution of the number of trials, and its mean. score_noise: standard
    deviation of the noise on a trial's count of right answers; None where validation records are
    public.
    """

    noise_multiplier: Annotated[float, Field(gt=0)] | None
    law: str
    expected_trials: float
    ranges: dict[str, list[float]]
    score_noise: float | None

    # Runs before validation of the fields, since a setting that a range replaces is absent.
    @model_validator(mode="before")
    @classmethod
    def _check_ranges(cls, fields: dict[str, Any]) -> dict[str, Any]:
        ranges = fields["ranges"]
        if not ranges or set(ranges) - set(SELECTABLE):
            found, allowed = ", ".join(ranges) or "none", f"any of {', '.join(SELECTABLE)}"
            raise InputError("ranges", found, allowed)
        for name, ends in ranges.items():
            if len(ends) != 2:
                allowed = "LOW,HIGH: each trial draws a value between them, never a list or grid"
                raise InputError(f"range of {name}", f"{len(ends)} values", allowed)
            real(gt=0).check(f"low end of the range of {name}", ends[0])
            real(gt=ends[0]).check(f"high end of the range of {name}", ends[1])
        return fields


RECORD = RecordShape(
    SelectionSpec,
    version=2,
    facts="settings score accuracy loss score_deviation n_train n_validation n_test "
    "noise_multiplier expected_batch expected_trials",
    tables={},
)
