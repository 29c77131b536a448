"""lp_fft: specs and records of kind `distortion`."""

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed
from dpatlas.papers.lp_fft.records.theory import Angle, Count, Positive, Several


class Clusters(Typed):
    """Fresh records and features within `angle` degrees of an axis, for every number `hs`."""

    records: Several
    inputs: Several
    angle: Angle
    hs: list[Count]
    head_variances: list[Positive]
    trials: Count


class TwoRecords(Typed):
    """One feature and a class of two records, whose lengths differ by `spread`.

    ratio: of the angles, as tangents, of the second record and the first to the feature.
    """

    spread: float
    ratio: float
    head_variances: list[Positive]
    trials: Count


class AfterProbing(Typed):
    """LP until s = lp_span, then FFT until every one of fft_spans, s being the loss's integral.

    angles: of the clusters, in degrees; feature_angle: of the features. runs: networks drawn.
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
    """FFT until s = span after LP until every one of lp_spans."""

    lp_spans: list[Positive]
    span: Positive
    step: Positive


class Spec(SpecFields):
    """Thm 3.3 on clusters and two records, Thm 3.4 on clusters and by an example."""

    clusters: Clusters
    two_records: TwoRecords
    after_probing: AfterProbing
    counterexample: Counterexample


class Share(Typed):
    """`count` of `trials`, and the ends of its Clopper-Pearson interval."""

    trials: int
    count: int
    share: float
    low: float
    high: float


class ClusterRow(Share):
    """Distortion at the start with h features; claimed: 1 - 2^-h."""

    h: int
    head_variance: float
    claimed: float


class TwoRecordRow(Share):
    """Distortion of one feature; claimed: by Thm 3.3; exact: its probability."""

    head_variance: float
    claimed: float
    exact: float


class AfterProbingRow(Share):
    """Networks of which no cosine falls until s = fft_span, of those that LP has aligned.

    networks: all that were drawn.
    """

    angle: float
    fft_span: float
    networks: int
    aligned: int


class Curve(Typed):
    """Cosine of the example's feature at `s` of FFT, (points,).

    aligned: whether LP has aligned the head. fall: largest cosine less the last.
    """

    lp_span: float
    aligned: bool
    s: list[float]
    cosine: list[float]
    fall: float


class Metrics(records.Metrics):
    """Rows by h and variance, by variance, by angle and span of FFT, by span of LP."""

    clusters: list[ClusterRow]
    two_records: list[TwoRecordRow]
    after_probing: list[AfterProbingRow]
    counterexample: list[Curve]
