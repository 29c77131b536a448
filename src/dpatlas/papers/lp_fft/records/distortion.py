"""lp_fft: specs and records of kind `distortion`."""

from typing import ClassVar

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed
from dpatlas.papers.lp_fft.records.theory import Angle, Count, Positive, Several


class Clusters(Typed):
    """Random records and features within `angle` degrees of an axis; hs: numbers of features."""

    records: Several
    inputs: Several
    angle: Angle
    hs: list[Count]
    head_variances: list[Positive]
    trials: Count


class TwoRecords(Typed):
    """One feature and a class of two records whose activations differ by `spread`.

    ratio: distance of the second record from the feature's axis over that of the first.
    """

    spread: float
    ratio: float
    head_variances: list[Positive]
    trials: Count


class AfterProbing(Typed):
    """LP until s = lp_span, then FFT until s = each of fft_spans; s is the integral of the loss.

    angles, feature_angle: largest angles of records and of features to the axis, in degrees.
    runs: number of networks drawn.
    """

    records: Several
    inputs: Several
    hidden: Count
    head_variance: Positive
    feature_angle: Angle
    angles: list[Angle]
    runs: Count
    lp_span: Positive
    lp_step: Positive
    fft_spans: list[Positive]
    step: Positive


class Counterexample(Typed):
    """LP until s = each of lp_spans, then FFT until s = span."""

    lp_spans: list[Positive]
    span: Positive
    step: Positive


class Spec(SpecFields):
    """Thm 3.3 on clusters and on two records; Thm 3.4 on clusters and on a counter-example."""

    clusters: Clusters
    two_records: TwoRecords
    after_probing: AfterProbing
    counterexample: Counterexample


class Share(Typed):
    """`count` out of `trials`, with the ends of the Clopper-Pearson interval of the share."""

    trials: int
    count: int
    share: float
    low: float
    high: float


class ClusterRow(Share):
    """Share of networks of h features that distort at the start; claimed: 1 - 2^-h."""

    h: int
    head_variance: float
    claimed: float


class TwoRecordRow(Share):
    """Share of heads that distort one feature; claimed: by Thm 3.3; exact: the probability."""

    head_variance: float
    claimed: float
    exact: float


class AfterProbingRow(Share):
    """Share of networks aligned by LP in which no cosine falls until s = fft_span of FFT.

    networks: number drawn. aligned: number whose heads have the signs of their classes after LP.
    distorted_at_once: number of networks in which some cosine would fall without LP, at once.
    """

    angle: float
    fft_span: float
    networks: int
    aligned: int
    distorted_at_once: int


class Curve(Typed):
    """Cosine of the counter-example's feature against s of FFT, (points,).

    aligned: whether LP has aligned the head. fall: largest cosine less the last.
    """

    lp_span: float
    aligned: bool
    s: list[float]
    cosine: list[float]
    fall: float


class Metrics(records.Metrics):
    """Rows by h and head variance; head variance; angle and span of FFT; span of LP."""

    VERSION: ClassVar[int] = 2

    clusters: list[ClusterRow]
    two_records: list[TwoRecordRow]
    after_probing: list[AfterProbingRow]
    counterexample: list[Curve]
