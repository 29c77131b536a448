"""lp_fft: the tables that claims.yaml reads beside those of the paper's records.

Accuracies are shares of the test records. Intervals are over runs, each with its own deal of the
records, random head, batches and noise; the backbone and the learning rates are those of the
record. Run i has one deal and one head for all strategies, so differences are taken run by run.
Of theory, the standard error of a simulated mean counts as known, and an exact value as one run.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.formulas.lp_fft.alignment import lp_alignment_time
from dpatlas.formulas.lp_fft.linear import lp_head_norm, lp_time_threshold
from dpatlas.formulas.lp_fft.privacy import langevin_epsilon
from dpatlas.formulas.lp_fft.relu import lp_relu_coefficients
from dpatlas_workflow.evidence.comparisons import NotRun
from dpatlas_workflow.papers.lp_fft.quality import early_losses
from dpatlas_workflow.papers.lp_fft.strategies import STRATEGIES
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

Records = Sequence[Record[Any]]
# Strategies of a curve over the share of LP.
OVER_SHARE = ("fft", "lp-fft", "lp")
# Prop. E.10: the head's sensitivity over the features' goes as d to this power.
EXPONENT = 0.5
# For both sides of a bracket the sign of an excess over the bound.
SIDES = {"lower": -1, "upper": 1}
# Thm 5.1 at one example: records by neurons of the features of a class, its loss at the start, the
# variance of the head, and delta.
FEATURES, LOSS, HEAD_VARIANCE, DELTA = [[1.0, 0.6], [0.8, 0.9]], 2.0, 1.0, 0.1
SIGMAS = (0.3, 1.0, 5.0, 20.0)
# Prop. 5.2 at one example.
WORLD = {"h": 3, "head_var": 0.4, "b_norm2": 0.19}
SIGMA2S = (0.3, 0.35)
# Cor. 5.3 there: the time of both phases, for which its interval holds these sigma^2.
TOTAL_TIME = 1.5
# Thm 4.1 at the paper's clip bounds .1 and 1, for a record that is added, and one that is replaced.
GRADIENT_DIFFERENCES = (0.1, 0.2, 1.0, 2.0)


def accuracies(records: Records) -> pd.DataFrame:
    """`runs` with each `arm` in words, its `name` for labels, and the `lp_share` of a curve.

    lp_share: of the steps, where FFT, LP-FFT and LP are one curve; missing of other strategies.
    """
    rows = columns(records, "runs")
    arms = list(zip(rows.strategy, rows.share, strict=True))
    two = [len(STRATEGIES[strategy]) == 2 for strategy, _ in arms]
    return rows.assign(
        arm=[f"{strategy} at share {share:g}" for strategy, share in arms],
        name=[f"{s} (share {x:g})" if both else s for (s, x), both in zip(arms, two, strict=True)],
        lp_share=rows.share.where(rows.strategy.isin(OVER_SHARE)),
    )


def lost_early(records: Records) -> pd.DataFrame:
    """`early_losses` of all records."""
    found = pd.concat(map(early_losses, records))
    if found.empty:
        raise NotRun(f"{records[0].id} has no early steps after which both are evaluated")
    return found


def zeroth_order(records: Records) -> pd.DataFrame:
    """`relu` with the largest relative `excess` of the zeroth-order loss over a bound, its `side`.

    At any time, relative to the loss.
    """
    rows = columns(records, "relu")
    worst = [
        max(
            (sign * (loss - bound) / loss, side)
            for side, sign in SIDES.items()
            for loss, bound in zip(row["zeroth"], row[side], strict=True)
        )
        for row in rows.to_dict("records")
    ]
    return rows.assign(excess=[value for value, _ in worst], side=[side for _, side in worst])


def diffusion(records: Records) -> pd.DataFrame:
    """The relative `excess` of the diffusion's mean loss over each bound, at every time."""
    rows = []
    for record in records:
        for row in columns([record], "relu").to_dict("records"):
            paths = getattr(record.spec.relu.phases, row["phase"]).paths
            for (k, time), side in itertools.product(enumerate(record.facts["times"]), SIDES):
                bound = row[side][k]
                found = {"time": time, "side": side, "draws": paths}
                found["excess"] = SIDES[side] * (row["diffusion"][k] / bound - 1)
                rows.append({**row, **found, "error": row["standard_error"][k] / bound})
    return pd.DataFrame(rows)


def probing(records: Records) -> pd.DataFrame:
    """Linear probing at every time: E ||v_t||^2 and E L, over what is computed, less 1.

    norm_paper: Eq. 161 as printed, norm_exact: with the sign corrected; both with errors.
    loss_paper: the exact loss over Thm 4.4, loss_exact: with half of the least loss of Eq. 24.
    """
    parts = []
    for record in records:
        found = pd.DataFrame(record.facts["probing"])
        ends = {"record": record.id, "draws": record.spec.probing.paths, "times": found.times}
        for convention in ("paper", "exact"):
            computed = found[f"norm_{convention}"]
            ends[f"norm_{convention}"] = found.norm / computed - 1
            ends[f"error_{convention}"] = found.norm_standard_error / computed
            bound = found[f"loss_bound_{convention}"]
            ends[f"loss_{convention}"] = found.loss_exact / bound - 1
        parts.append(pd.DataFrame(ends))
    return pd.concat(parts)


def tuned(records: Records) -> pd.DataFrame:
    """The mean loss of linear FFT `over` the bound of Thm 4.5, less 1, at every time."""
    lists = ["times", "loss", "standard_error", "bound"]
    rows = columns(records, "fine_tuning").explode(lists)
    paths = {record.id: record.spec.fine_tuning.paths for record in records}
    over, error = rows.loss / rows.bound - 1, rows.standard_error / rows.bound
    return rows.assign(over=over, error=error, draws=rows.record.map(paths))


def clusters(records: Records) -> pd.DataFrame:
    """`clusters` with what the share of distorted networks is `off` 1 - 2^-h."""
    return _off_claimed(columns(records, "clusters"))


def two_records(records: Records) -> pd.DataFrame:
    """`two_records` with what the share of distorting heads is `off` 1 - 2^-h."""
    return _off_claimed(columns(records, "two_records"))


def after_probing(records: Records) -> pd.DataFrame:
    """`after_probing` with the share of networks in which some cosine `falls` during FFT after LP.

    Among networks whose heads LP has aligned.
    """
    rows = columns(records, "after_probing")
    return rows.assign(falls=1 - rows.share)


def protection(records: Records) -> pd.DataFrame:
    """By how much LP lowers the share of networks with a falling cosine, with its `error`.

    `gain` is the share at the beginning of FFT without LP, less that within the shortest span of
    FFT after it.
    """
    rows = after_probing(records)
    rows = rows[rows.fft_span == rows.groupby("record").fft_span.transform("min")]
    without = rows.distorted_at_once / rows.networks
    errors = [
        math.hypot(_share_error(first, networks), _share_error(second, trials))
        for first, second, networks, trials in zip(
            without, rows.falls, rows.networks, rows.trials, strict=True
        )
    ]
    return rows.assign(gain=without - rows.falls, error=errors)


def exponents(records: Records) -> pd.DataFrame:
    """The exponent of d in the ratio of sensitivities less `EXPONENT`, by reading, as `off`.

    Over all records of norm and label at most one, between the least and the largest d.
    """
    rows = []
    for (record, reading), starts in columns(records, "start").groupby(
        ["record", "reading"], sort=False
    ):
        ends = starts.sort_values("d").to_dict("records")
        low, high = ends[0], ends[-1]
        if low["d"] == high["d"]:
            raise NotRun(f"{record} has one number of inputs, {low['d']}")
        span = math.log(high["d"] / low["d"])
        slope = math.log(high["ball_ratio"] / low["ball_ratio"]) / span
        errors = (row["ball_ratio_error"] / row["ball_ratio"] for row in (low, high))
        found = {"record": record, "reading": reading, "low": low["d"], "high": high["d"]}
        error = math.hypot(*errors) / span
        rows.append({**found, "off": slope - EXPONENT, "error": error, "draws": low["seeds"]})
    return pd.DataFrame(rows)


def ratios(records: Records) -> pd.DataFrame:
    """`start` with the head's sensitivity `over` the features', less 1."""
    rows = columns(records, "start")
    return rows.assign(over=rows.ball_ratio - 1)


def gaps(records: Records) -> pd.DataFrame:
    """The Jensen gap of the least eigenvalue at every step of training."""
    rows = columns(records, "gap").explode(["steps", "gap", "error", "eigenvalue"])
    if not (rows.groupby(["record", "sigma"]).steps.max() > 0).all():
        raise NotRun("some record measures the gap at no step of training")
    return rows[rows.steps > 0]


def probing_budgets(records: Records, sigmas: Sequence[float] = SIGMAS) -> pd.DataFrame:
    """The `exponent` of sigma in the budget of LP that aligns every feature, between neighbours.

    By the steps of Thm 5.1's proof: the time of `lp_alignment_time` over sigma^2. No record is
    read.
    """
    least = min(map(min, FEATURES))

    def budget(sigma: float) -> float:
        A1, B1, *_ = lp_relu_coefficients(np.array(FEATURES), sigma)
        time = lp_alignment_time(A1, B1, LOSS, least, HEAD_VARIANCE, DELTA)
        return float(time) / sigma**2

    rows = [
        {
            "low": low,
            "high": high,
            "exponent": math.log(budget(high) / budget(low)) / math.log(high / low),
        }
        for low, high in itertools.pairwise(sigmas)
    ]
    return pd.DataFrame(rows)


def probing_rates(records: Records, sigma2s: Sequence[float] = SIGMA2S) -> pd.DataFrame:
    """The `gain` of the rate of FFT's bound by LP over a tenth of the interval of Prop. 5.2.

    The rate is the expected squared norm of the head up to a constant; `t_lp` is that time of LP.
    At noise sigma^2 at which the printed interval has a length. No record is read.
    """
    rows = []
    for sigma2 in sigma2s:
        world = {**WORLD, "sigma2": sigma2}
        end = float(lp_time_threshold(**world, convention="paper"))
        start, later = lp_head_norm(np.array([0.0, end / 10]), **world)
        rows.append({"sigma2": sigma2, "t_lp": end / 10, "gain": float(later - start)})
    return pd.DataFrame(rows)


def probing_peaks(records: Records, sigma2s: Sequence[float] = SIGMA2S) -> pd.DataFrame:
    """The `gain` of the rate of FFT's bound by LP for the printed time, over no LP and LP alone.

    As `probing_rates`; LP alone is LP for `TOTAL_TIME`. No record is read.
    """
    rows = []
    for sigma2 in sigma2s:
        world = {**WORLD, "sigma2": sigma2}
        t_lp = float(lp_time_threshold(**world, convention="paper"))
        none, some, alone = lp_head_norm(np.array([0.0, t_lp, TOTAL_TIME]), **world)
        rows.append({"sigma2": sigma2, "t_lp": t_lp, "gain": float(some - max(none, alone))})
    return pd.DataFrame(rows)


def trajectory_epsilons(
    records: Records, differences: Sequence[float] = GRADIENT_DIFFERENCES
) -> pd.DataFrame:
    """The `log_ratio` of the exact epsilon of a linear loss's diffusion over that of Eq. 19.

    At T = sigma = 1 and delta = 1e-5. Two such losses whose gradients differ by `difference` have
    trajectories as far apart as two normals with means `difference` sqrt(T / 2) / sigma apart. No
    record is read.
    """
    rows = []
    for difference in differences:
        exact = gaussian_epsilon(difference * math.sqrt(0.5), 1e-5)
        printed = float(langevin_epsilon(difference, 1.0, 1.0, 1e-5, convention="paper"))
        rows.append({"difference": difference, "log_ratio": math.log(exact / printed)})
    return pd.DataFrame(rows)


TABLES: dict[str, Callable[[Records], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        accuracies,
        lost_early,
        zeroth_order,
        diffusion,
        probing,
        tuned,
        clusters,
        two_records,
        after_probing,
        protection,
        exponents,
        ratios,
        gaps,
        probing_budgets,
        probing_rates,
        probing_peaks,
        trajectory_epsilons,
    )
}


def _share_error(share: float, trials: int) -> float:
    """Standard error of an observed share, as if it had a success and a failure more.

    Without them it would be 0 where all trials agree, however few they are.
    """
    share = (share * trials + 1) / (trials + 2)
    return math.sqrt(share * (1 - share) / trials)


def _off_claimed(rows: pd.DataFrame) -> pd.DataFrame:
    """A share less the claimed one, with the standard error of the claimed probability.

    That of the observed share would be 0 where the share is 0 or 1.
    """
    error = np.sqrt(rows.claimed * (1 - rows.claimed) / rows.trials)
    return rows.assign(off=rows.share - rows.claimed, error=error)
