"""Attack on a finished model: can it be told which records it was trained on?

Reference models, trained as the model was but on other draws of the same candidates, say how a
record scores where it was in and where it was out. Two attacks read the model's scores by them:

    lira   the log-likelihood ratio of two normal laws of the log odds, of references with the
           record and without (Carlini et al. 2022). One variance for all records, for few
           references; the law of "out" alone where references had no candidate (offline).
    rmia   the model's probability of the right class over the references' mean of it, as a rank
           among all candidates (Zarifzadeh, Liu, Shokri 2024, with gamma = 1).

A threshold is fixed before the model's members are looked at: each reference is attacked by the
others, and the threshold is the quantile of the scores of its records that were out. Then the
rates of the model are binomial, and their intervals exact, where each record is in or out by a coin
of its own and the model leaks nothing; what dependence a leak causes, they do not cover.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dpatlas.accounting.audit_statistics import LEVEL, LowerBound, one_run_lower_bound
from dpatlas.accounting.error_rates import SCORE
from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.base.arrays import read_arrays
from dpatlas.base.guard import checked, one_of, real
from dpatlas.errors import InputError

# False positive rates that thresholds are fixed for, ascending.
FPRS = (0.001, 0.01, 0.1)
# References beside the model: two laws of one record need two of each kind, on average.
LEAST_REFERENCES = 4
ATTACKS = ("lira", "rmia")
SMALLEST_DEVIATION = 1e-6
TINY = 1e-300


@dataclass(frozen=True)
class Rate:
    """A share of records above a threshold, with its exact (Clopper-Pearson) interval."""

    count: int
    records: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share itself."""
        return self.count / self.records

    def __str__(self) -> str:
        return f"{self.share:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Point:
    """The attack at one threshold, fixed on references for a false positive rate of `aimed`.

    allowed: the largest true positive rate that the claimed (epsilon, delta) allows at the upper
    end of the false positive rate; None without a claim. contradicts: whether the whole interval
    of the true positive rate lies above it, by intervals among which all points share the error.
    """

    aimed: float
    fpr: Rate
    tpr: Rate
    allowed: float | None
    contradicts: bool


@dataclass(frozen=True)
class MembershipReport:
    """What an attack on a finished model found; `str` gives it in words.

    auc: chance that a member scores above a record that is none. epsilon_one_run: a lower bound
    without assumptions on the mechanism, from half of the records guessed, where members were drawn
    by fair coins. epsilon_if_gaussian: a lower bound if the training's trade-off is that of a
    Gaussian mechanism, at the last of the points, fixed beforehand. Both hold at `delta` with
    confidence `level`.
    """

    attack: str
    references: int
    points: tuple[Point, ...]
    auc: float
    epsilon_one_run: LowerBound
    epsilon_if_gaussian: float
    delta: float
    level: float

    @property
    def contradicted(self) -> bool:
        """Whether some point contradicts the claim."""
        return any(point.contradicts for point in self.points)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "contradicted": self.contradicted}

    def __str__(self) -> str:
        lines = [
            f"{self.attack}, {self.references} reference models, AUC {self.auc:.4f}",
            "",
            "aimed FPR  FPR of the model           TPR of the model           TPR allowed, at most",
        ]
        for point in self.points:
            allowed = "no claim" if point.allowed is None else f"{point.allowed:.4f}"
            found = f"{point.aimed:<10g} {point.fpr!s:26} {point.tpr!s:26} {allowed}"
            lines.append(f"{found}{'  CONTRADICTED' if point.contradicts else ''}")
        lines += [
            "",
            f"epsilon is at least, at delta {self.delta:g} and confidence {self.level:g}:",
            f"  {self.epsilon_one_run.epsilon:<8.4g} whatever the mechanism, if members were drawn "
            "by fair coins",
            f"  {self.epsilon_if_gaussian:<8.4g} if the training is Gaussian DP, which nobody "
            "tested here",
        ]
        return "\n".join(lines)


def read_scores(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The arrays `log_odds` and `members` of an npz file; InputError for another file."""
    try:
        arrays = read_arrays(path)
        return arrays["log_odds"], arrays["members"]
    except (OSError, KeyError, ValueError) as error:
        found = f"no {error.args[0]}" if isinstance(error, KeyError) else "a damaged file"
        found = getattr(error, "strerror", None) or found
        raise InputError(str(path), found, "an npz file with log_odds and members") from None


@checked(attack=one_of(*ATTACKS), delta=real(gt=0, lt=1), level=LEVEL)
def attack_model(
    log_odds: ArrayLike,
    members: ArrayLike,
    *,
    delta: float,
    epsilon: float | None = None,
    attack: str = "lira",
    level: float = 0.95,
) -> MembershipReport:
    """Attack a finished model by the scores of its candidates under it and under references.

    log_odds (1 + references, candidates): log(p / (1 - p)) of the right class; the model under
    attack in row 0. members (1 + references, candidates) bool: which candidates each was trained
    on. epsilon: claimed at `delta`, between data sets that differ in one record. level: of each
    interval and bound, and of the contradictions of all points together.

    Raises InputError for arrays of other shapes, for fewer than four references, for references
    that had every candidate, for a model of which all or no candidates are members, and for delta
    above 1 / (2 candidates), as `one_run_lower_bound`.
    """
    scores, bits = _table(log_odds), np.asarray(members)
    if bits.shape != scores.shape or bits.dtype != bool:
        found = f"{bits.dtype} of shape {bits.shape}"
        raise InputError("members", found, f"bool of shape {scores.shape}, as log_odds")
    if epsilon is not None:
        real(ge=0).check("epsilon", epsilon)
    if bits[0].all() or not bits[0].any():
        found = f"{int(bits[0].sum())} of {bits.shape[1]} candidates in the model"
        raise InputError("members", found, "some in and some out")
    score = dict(zip(ATTACKS, (_lira, _rmia), strict=True))[attack]
    if bits[1:].all():
        raise InputError("members", "every candidate in every reference", "some out of some")
    rows = np.arange(len(scores))
    # Of each model, the one under attack first, by the references other than itself.
    scored = [
        score(scores[row], *(table[(rows > 0) & (rows != row)] for table in (scores, bits)))
        for row in rows
    ]
    targeted = scored[0]
    outside = np.concatenate([of[~bits[row]] for row, of in enumerate(scored) if row])
    points = [_point(targeted, bits[0], outside, fpr, epsilon, delta, level) for fpr in FPRS]
    inside, apart = targeted[bits[0]], targeted[~bits[0]]
    pairs_won = stats.mannwhitneyu(inside, apart, method="asymptotic").statistic
    # Both rates at once, each with half of the error.
    last = _point(targeted, bits[0], outside, FPRS[-1], None, delta, (1 + level) / 2)
    mu = max(0.0, float(stats.norm.ppf(last.tpr.low) - stats.norm.ppf(last.fpr.high)))
    return MembershipReport(
        attack=attack,
        references=len(scores) - 1,
        points=tuple(points),
        auc=float(pairs_won / (len(inside) * len(apart))),
        epsilon_one_run=one_run_lower_bound(targeted, bits[0], delta, level),
        epsilon_if_gaussian=gaussian_epsilon(mu, delta) if mu else 0.0,
        delta=delta,
        level=level,
    )


def _table(log_odds: ArrayLike) -> np.ndarray:
    scores = np.asarray(log_odds, dtype=float)
    if scores.ndim != 2 or len(scores) <= LEAST_REFERENCES or scores.shape[1] < 2:
        allowed = f"(1 + references, candidates), {LEAST_REFERENCES} references or more"
        raise InputError("log_odds", f"an array of shape {scores.shape}", allowed)
    SCORE.check("log_odds", scores)
    # A probability of 1 in float32 has infinite odds.
    return scores.clip(-100, 100)


def _means(values: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means by candidate over references with it and without; the mean gap fills what is missing.

    The first is NaN throughout where no reference had any candidate.
    """
    with np.errstate(invalid="ignore"):
        means = [(values * bits).sum(0) / bits.sum(0) for bits in (inside, ~inside)]
    gaps = means[0] - means[1]
    gap = np.mean(gaps[~np.isnan(gaps)]) if (~np.isnan(gaps)).any() else np.nan
    with_, without = (np.isnan(mean) for mean in means)
    return np.where(with_, means[1] + gap, means[0]), np.where(without, means[0] - gap, means[1])


def _lira(scores: np.ndarray, references: np.ndarray, inside: np.ndarray) -> np.ndarray:
    means = _means(references, inside)
    laws = []
    for mean, bits in zip(means, (inside, ~inside), strict=True):
        squares = np.where(bits, (references - mean) ** 2, 0).sum()
        free = np.maximum(bits.sum(0) - 1, 0).sum()
        laws.append(stats.norm(mean, max(np.sqrt(squares / max(free, 1)), SMALLEST_DEVIATION)))
    if np.isnan(means[0]).all():
        return np.asarray(laws[1].logcdf(scores))
    return np.asarray(laws[0].logpdf(scores) - laws[1].logpdf(scores))


def _rmia(scores: np.ndarray, references: np.ndarray, inside: np.ndarray) -> np.ndarray:
    with_, without = _means(_probability(references), inside)
    mean = without if np.isnan(with_).all() else (with_ + without) / 2
    return np.asarray(stats.rankdata(_probability(scores) / np.maximum(mean, TINY)) / len(scores))


def _probability(log_odds: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -log_odds))


def _point(
    found: np.ndarray,
    members: np.ndarray,
    outside: np.ndarray,
    fpr: float,
    epsilon: float | None,
    delta: float,
    level: float,
) -> Point:
    threshold = np.quantile(outside, 1 - fpr, method="higher")

    def rates(level: float) -> tuple[Rate, Rate]:
        return _rate(found[~members] > threshold, level), _rate(found[members] > threshold, level)

    false, true = rates(level)
    if epsilon is None:
        return Point(fpr, false, true, None, contradicts=False)
    wider_false, wider_true = rates(1 - (1 - level) / len(FPRS))
    contradicts = wider_true.low > _allowed(wider_false.high, epsilon, delta)
    return Point(fpr, false, true, _allowed(false.high, epsilon, delta), contradicts)


def _allowed(fpr: float, epsilon: float, delta: float) -> float:
    """The largest true positive rate of (epsilon, delta)-DP at a false positive rate."""
    by_few = np.exp(epsilon) * fpr + delta
    by_many = 1 - np.exp(-epsilon) * (1 - delta - fpr)
    return float(min(by_few, by_many, 1.0))


def _rate(above: np.ndarray, level: float) -> Rate:
    count, records = int(above.sum()), len(above)
    interval = stats.binomtest(count, records).proportion_ci(level, method="exact")
    return Rate(count, records, float(interval.low), float(interval.high))
