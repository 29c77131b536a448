"""Records of kind `distortion`: Thm 3.3 on clusters and two records; Thm 3.4 on clusters and more.

Shares are `count` out of `trials`, with the ends low and high of the Clopper-Pearson interval.

`clusters`, by h and head variance: the share of networks of h features that distort at the start;
claimed: 1 - 2^-h. `two_records`, by head variance: the share of heads that distort one feature;
claimed: by Thm 3.3; exact: the probability. `after_probing`, by angle and span of FFT: the share of
networks aligned by LP in which no cosine falls until s = fft_span of FFT. networks: number drawn.
aligned: number whose heads have the signs of their classes after LP. distorted_at_once: number of
networks in which some cosine would fall without LP, at once.

`counterexample`, by span of LP: the cosine of the counter-example's feature against s of FFT, as
lists. aligned: whether LP has aligned the head. fall: largest cosine less the last.
"""

from typing import Literal

from dpatlas.base.fields import CountList, Model, PositiveList, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas_workflow.papers.lp_fft.records.theory import (
    Degrees,
    HeadVariance,
    Hidden,
    Inputs,
    Networks,
    Positive,
    Records,
    SolverStep,
)


class Clusters(Model):
    """Two classes of records, clustered around an axis."""

    records: Records
    inputs: Inputs
    angle: Degrees
    hs: CountList
    head_variances: PositiveList
    trials: Networks


class TwoRecords(Model):
    """One class of two records, one hidden neuron."""

    spread: Positive = setting("Difference of their activations.")
    ratio: float = setting("Ratio of their distances from the axis.", gt=1)
    head_variances: PositiveList
    trials: Networks


class AfterProbing(Model):
    """Cosines of features and class means in full fine-tuning after linear probing."""

    records: Records
    inputs: Inputs
    hidden: Hidden
    head_variance: HeadVariance
    feature_angle: Degrees
    angles: list[Degrees] = setting(
        "Largest angles in degrees between a record and the axis of its class.", min_length=1
    )
    runs: Networks
    lp_span: Positive = setting("Length of linear probing, as the integral of the loss over time.")
    lp_step: SolverStep
    fft_spans: list[Positive] = setting(
        "Lengths of full fine-tuning, in the same unit, in increasing order.", min_length=1
    )
    step: SolverStep


class DistortionCounterexample(Model):
    """Records on which a cosine falls after linear probing of any length."""

    lp_spans: PositiveList
    span: Positive = setting("Length of full fine-tuning.")
    step: SolverStep


class Distortion(Model):
    """How often a random head turns a feature away from its class (Thms 3.3 and 3.4)."""

    clusters: Clusters
    two_records: TwoRecords
    after_probing: AfterProbing
    counterexample: DistortionCounterexample


class DistortionSpec(SpecFields, Distortion):
    """The simulations."""

    kind: Literal["distortion"]


SHARE = "trials count share low high"
RECORD = RecordShape(
    DistortionSpec,
    version=2,
    facts="",
    tables={
        "clusters": f"h head_variance claimed {SHARE}",
        "two_records": f"head_variance claimed exact {SHARE}",
        "after_probing": f"angle fft_span networks aligned distorted_at_once {SHARE}",
        "counterexample": "lp_span aligned s cosine fall",
    },
)
