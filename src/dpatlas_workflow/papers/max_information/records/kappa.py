"""Records of kind `kappa`, Fig. 2: kappa / n by form, nats per record, at every value x of an axis.

A form is None where it is infinite. confidence: log(4 sqrt(n) / delta) / n.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, model_validator

from dpatlas.base.fields import AsWritten, CountList, Model, Once, Share, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas.errors import InputError
from dpatlas_workflow.papers.max_information.records import Numbers

Level = Annotated[Once[Share], setting("Levels.", min_length=1)]


class KappaBase(Model):
    """Setting in which all panels agree; each panel varies one part of it."""

    n: int = setting("Number of records.", ge=1, le=1_000_000_000)
    m: int = setting("Records in a batch.", ge=1, le=1_000_000_000)
    zeta: Annotated[float, AsWritten] = setting("Clip bound.", gt=0)
    sigma: Annotated[float, AsWritten] = setting("Standard deviation of the noise.", gt=0)
    E: int = setting("Number of epochs.", ge=1, le=1000)
    delta: Share


class KappaAxes(Model):
    """Values along each axis; panels are in this order."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    E: CountList = setting("Numbers of epochs.", default=None)
    T: CountList = setting("Steps in an epoch.", default=None)
    delta: Level = setting("Failure probabilities of the bound.", default=None)
    n: CountList = setting("Numbers of records; batches have as many as in the base.", default=None)
    n_at_T: CountList = setting(
        "Numbers of records; an epoch has as many steps as in the base.", default=None
    )
    zeta_over_sigma: Numbers = setting(
        "Ratios of clip bound to standard deviation of the noise.", default=None
    )

    @model_validator(mode="after")
    def _are_not_none(self) -> "KappaAxes":
        if not self.model_fields_set:
            allowed = "one or more of " + ", ".join(type(self).model_fields)
            raise InputError("", "none", allowed)
        return self


class Kappa(Model):
    """Bounds on the max-information of DP-SGD, varying one parameter at a time."""

    base: KappaBase
    axes: KappaAxes

    @model_validator(mode="after")
    def _has_a_batch(self) -> "Kappa":
        n = min([self.base.n, *(self.axes.n or ())])
        if self.base.m > n:
            raise InputError("base.m", self.base.m, f"at most n = {n}, in base or axes")
        return self


class KappaSpec(SpecFields, Kappa):
    """Settings of the job."""

    kind: Literal["kappa"]


RECORD = RecordShape(
    KappaSpec,
    version=2,
    facts="",
    tables={"rows": "axis x optimised explicit tight repaired confidence"},
)
