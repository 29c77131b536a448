"""Records of kind `coefficients`, Fig. 1: the coefficients at every alpha and level beta.

*_leading: coefficient of m s^2 / sigma^2; *_root: of sqrt(m) s / sigma. pure_dp_*: of pure privacy
at delta = beta, the same for all alphas.
"""

from typing import Literal

from dpatlas.base.fields import Model, Once, Share, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas_workflow.papers.max_information.records import Numbers


class Coefficients(Model):
    """The two coefficients of Prop. 1."""

    alphas: Numbers
    betas: Once[Share] = setting("Levels of the max-information.", min_length=2)


class CoefficientsSpec(SpecFields, Coefficients):
    """Settings of the job."""

    kind: Literal["coefficients"]


RECORD = RecordShape(
    CoefficientsSpec,
    version=2,
    facts="",
    tables={
        "rows": "alpha beta gaussian_leading gaussian_root pure_dp_leading pure_dp_root",
    },
)
