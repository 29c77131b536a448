"""A private selection among trainings of a classifier: spec and metrics."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.core import records
from dpatlas.core.guard import real
from dpatlas.errors import InputError

# Settings that a trial may draw: the guarantee of a training does not depend on them.
SELECTABLE = ("lr", "max_grad_norm")


class Spec(Classifier):
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


class Metrics(records.Metrics):
    """Results of the released trial; settings, score, accuracy and loss are None if none was drawn.

    score: share of right answers on validation records, with noise of standard deviation
    score_deviation unless that is None. accuracy, loss: on test records.
    """

    settings: dict[str, float] | None
    score: float | None
    accuracy: float | None
    loss: float | None = None
    score_deviation: float | None
    n_train: int
    n_validation: int
    n_test: int
    noise_multiplier: float
    expected_batch: float
    expected_trials: float
