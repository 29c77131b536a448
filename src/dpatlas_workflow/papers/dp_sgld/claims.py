"""dp_sgld: the tables that claims.yaml reads beside those of the paper's records.

Accuracies are shares of the test records. Intervals are over runs, each with a deal of the records,
batches and noise of its own; settings were chosen before, on records of no run. All arms of a run
share its deal, so that they are compared in pairs. Curves of epsilon and printed numbers are exact.
What follows from the printed tables by arithmetic needs no record; its entry in claims.yaml names
the group of records behind the table that shows it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpatlas.base.records import Row
from dpatlas.formulas.dp_sgld.published import (
    COUNTS,
    PRINTED_TABLE_4,
    PUBLISHED_RUNS,
    TABLE_4,
    Problem,
)
from dpatlas.formulas.dp_sgld.theorems import (
    claimed_rdp_constant,
    claimed_rdp_lsi,
    sum_of_steps,
    table4_ratio,
)
from dpatlas_workflow.evidence.comparisons import NotRun
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

Records = Sequence[Record[Any]]
# Names of a curve of a `privacy_loss` record, and two of them.
CURVE = ("calibration", "schedule", "curve")
BOUND, QUADRATIC = "full batch, hidden state", "quadratic, fixed start"


def leads(records: Records) -> pd.DataFrame:
    """By run the `gain` in the lead of DP-SGLD over DP-SGD from the smallest set to the largest.

    Of sets of one `name`, with features of one kind. Runs of one number are not independent: they
    draw the same test records, and the larger set contains the smaller one.
    """
    runs, at = columns(records, "runs"), ["reading", "schedule", "run"]
    of_set = ["record", "features", "n_train", *at]
    ours, theirs = (runs[(runs.method == name) & runs.l2] for name in ("dp-sgld", "dp-sgd"))
    both = ours.merge(theirs[[*of_set, "accuracy"]], on=of_set)
    both["lead"] = both.accuracy_x - both.accuracy_y
    parts: list[pd.DataFrame] = []
    for (name, *_), sets in both.groupby(
        ["data.name", "backbone", "features"], sort=False, dropna=False
    ):
        small, large = (sets[sets.n_train == end(sets.n_train)] for end in (min, max))
        if small.n_train.iloc[0] < large.n_train.iloc[0]:
            pairs = large.merge(small[[*at, "n_train", "lead"]], on=at, suffixes=("", "_small"))
            gain = pairs.lead - pairs.lead_small
            parts.append(pairs.assign(name=name, family=len(parts), gain=gain))
    if not parts:
        raise NotRun("group protocol has no set of two sizes")
    return pd.concat(parts)


def layers(records: Records) -> pd.DataFrame:
    """By arm and run the `gain` of training the most parameters over training the fewest."""
    runs, at = columns(records, "runs"), ["record", "method", "epsilon", "run"]
    sizes = runs.groupby("record", sort=False).trained_parameters
    for record, different in sizes.nunique().items():
        if different < 2:
            raise NotRun(f"{record} trains one choice of layers; the claim needs two")
    most, fewest = (runs[runs.trained_parameters == sizes.transform(end)] for end in ("max", "min"))
    pairs = most.merge(fewest[[*at, "unfreeze", "accuracy"]], on=at, suffixes=("", "_fewest"))
    return pairs.assign(gain=pairs.accuracy - pairs.accuracy_fewest)


def over_bounds(records: Records) -> pd.DataFrame:
    """By run the `share` that the measured excess risk is of each printed bound.

    Of the lemma at the last step that was run, and of a theorem at the first shown step from its
    own number of steps on, which it bounds too, since its lemma falls; none where that lies beyond.
    """
    parts = []
    for record in records:
        risks, bounds = columns([record], "risks"), columns([record], "bounds")
        for (schedule, epsilon), of_arm in risks.groupby(["schedule", "epsilon"], sort=False):
            shown = of_arm.step.unique()
            own = bounds[(bounds.schedule == schedule) & (bounds.epsilon == epsilon)]
            for row in own.itertuples():
                at = shown[shown >= row.step]
                if not len(at) or (row.bound.startswith("Lemma") and row.step < shown[-1]):
                    continue
                there = of_arm[of_arm.step == at[0]]
                share = there.excess_risk / row.paper
                parts.append(there.assign(bound=row.bound, share=share))
    return pd.concat(parts)


def rounded(value: float, digits: int = 2) -> tuple[float, float]:
    """The interval of the numbers that are printed as `value` with so many digits."""
    half = 10.0 ** (math.floor(math.log10(value)) + 1 - digits) / 2
    return value - half, value + half


def condition_interval(problem: Problem) -> tuple[float, float]:
    """beta / lambda where beta is any number that rounds to the printed whole one."""
    beta = PRINTED_TABLE_4[problem.dataset, problem.backbone][0]
    return (beta - 0.5) / problem.lam, (beta + 0.5) / problem.lam


def ratio_interval(problem: Problem, d: int) -> tuple[float, float]:
    """Table 4's last column from every beta / lambda that rounds to the printed one."""
    low, high = rounded(PRINTED_TABLE_4[problem.dataset, problem.backbone][1])
    at = [table4_ratio(problem.n, 1.0, 1e-5, d, condition) for condition in (high, low)]
    return float(at[0]), float(at[1])


def printed_constants(records: Records) -> pd.DataFrame:
    """By row of Table 4, for its columns as `figures.sgld_constants` recomputes them, a gap.

    Between two intervals, in units of the printed number: of what rounds to it, and of what follows
    from the rounded inputs. It is negative where they overlap.
    """
    rows = []
    for problem in TABLE_4:
        _, condition, ratio = PRINTED_TABLE_4[problem.dataset, problem.backbone]
        row: Row = {"dataset": problem.dataset, "backbone": problem.backbone}
        for name, printed, (low, high) in (
            ("beta_over_lambda", condition, condition_interval(problem)),
            ("ratio_classes", ratio, ratio_interval(problem, problem.classes)),
            ("ratio_parameters", ratio, ratio_interval(problem, problem.parameters)),
        ):
            low_in_print, high_in_print = rounded(printed)
            row[name] = max(low - high_in_print, low_in_print - high) / printed
        rows.append(row)
    return pd.DataFrame(rows)


def published_runs(records: Records) -> pd.DataFrame:
    """Thm 3.2's epsilon at the settings of every DP-SGLD row of Tables 1 and 2.

    With K the number of epochs or of steps; and its relative deviation from the printed epsilon.
    """
    rows = []
    for run in PUBLISHED_RUNS:
        row = {name: getattr(run, name) for name in ("table", "dataset", "backbone")}
        for count in COUNTS:
            row[f"claimed_{count}"] = run.claimed_epsilon(count)
            row[f"off_{count}"] = abs(run.claimed_epsilon(count) / run.printed_epsilon - 1)
        rows.append(row)
    return pd.DataFrame(rows)


def closed_form(records: Records) -> pd.DataFrame:
    """Cor. 3.3 for the steps eta_1 .. eta_K that Thm 3.2 sums, at every point of a curve.

    By record the largest relative `excess` of the divergence by the sum over that by the closed
    form, after as many steps as its longest curve.
    """
    rows = []
    for record in records:
        lam, beta = record.spec.lam, record.facts["beta"]
        steps = np.arange(1, columns([record], "curves").step.max() + 1)
        summed = sum_of_steps(beta, lam, steps + 1) - 1 / (2 * beta)
        bound = sum_of_steps(beta, lam, steps, "closed-form")
        divergences = [-np.expm1(-lam * total / 2) for total in (summed, bound)]
        excess = float(np.max(divergences[0] / divergences[1] - 1))
        rows.append({"record": record.id, "steps": steps[-1], "excess": excess})
    return pd.DataFrame(rows)


def composition(records: Records) -> pd.DataFrame:
    """The `ratio` of the claimed divergence of one step to the Gaussian mechanism's.

    Of a step eta = 1 / (2 beta) with a full batch, whose mean gradient moves by 2 L / n, Sec. 3.3
    has the latter as alpha L^2 eta / (n^2 sigma2). Order, L, n and sigma2 cancel.
    """
    rows = []
    for record in records:
        lam, beta = record.spec.lam, record.facts["beta"]
        L, n, sigma2, eta = record.facts["lipschitz"], record.spec.n, 1.0, 1 / (2 * beta)
        claimed = float(claimed_rdp_constant(2.0, L, lam, beta, n, sigma2, eta, 1))
        noise_multiplier = math.sqrt(2 * eta * sigma2) / (2 * L * eta / n)
        rows.append({"record": record.id, "ratio": claimed * noise_multiplier**2})
    return pd.DataFrame(rows)


def growth(records: Records) -> pd.DataFrame:
    """The relative `growth` of every curve of epsilon over its second half.

    Where half the number of steps lies between two points of the curve, epsilon there is that of
    the power law through both. Without curves that have no point before.
    """
    rows = []
    for record, names, steps, epsilons in _curves(records):
        curve, half = names[2], steps[-1] / 2
        row = dict(zip(CURVE, names, strict=True)) | {"record": record.id, "last": steps[-1]}
        if (reason := _infinite(record, curve, epsilons)) is None and steps[0] <= half:
            # From the last point at or before half the steps.
            first = int(np.searchsorted(steps, half, side="right")) - 1
            if (epsilons[first:] > 0).all():
                logs = np.log(epsilons[first:])
                log_at_half = np.interp(math.log(half), np.log(steps[first:]), logs)
                row["growth"] = math.expm1(logs[-1] - log_at_half)
            else:
                reason = f"{curve} of {record.id} is zero at some step"
        elif reason is None:
            continue
        rows.append({**row, "half": half, "undecided": reason})
    if not rows:
        raise NotRun("no curve has a point before half of its steps")
    return pd.DataFrame(rows)


def attained(records: Records) -> pd.DataFrame:
    """The largest `deviation` of the full-batch bound's epsilon from the quadratic's, and its step.

    Relative to the larger of the two; for every calibration with constant steps. The quadratic has
    curvature lambda and contracts by 1 - eta lambda, which is the bound's c at every step since
    eta = 1 / (2 beta) and lambda <= beta.
    """
    rows = []
    for record in records:
        curves = {names: of_curve for _, names, *of_curve in _curves([record])}
        quadratics = [names for names in curves if names[2] == QUADRATIC]
        if not quadratics:
            raise NotRun(f"{record.id} has no curve {QUADRATIC}")
        for calibration, schedule, _ in quadratics:
            if (calibration, schedule, BOUND) not in curves:
                found = f"{schedule} steps, noise {calibration}"
                raise NotRun(f"{record.id} has no curve {BOUND} for {found}")
            (steps, exact), (_, bound) = (
                curves[calibration, schedule, name] for name in (QUADRATIC, BOUND)
            )
            undecided = _infinite(record, QUADRATIC, exact) or _infinite(record, BOUND, bound)
            row: Row = {"record": record.id, "calibration": calibration, "undecided": undecided}
            if not undecided:
                larger = np.maximum(bound, exact)
                deviations = np.divide(
                    np.abs(bound - exact), larger, out=np.zeros_like(larger), where=larger > 0
                )
                worst = int(deviations.argmax())
                row |= {"step": steps[worst], "deviation": float(deviations[worst])}
            rows.append(row)
    return pd.DataFrame(rows)


def over_claims(records: Records) -> pd.DataFrame:
    """The largest `log_ratio` of what holds over what is claimed, and its `point`, in words.

    Of the Renyi divergence, to base e, over Thm 3.2 and over Thm 3.1 with whatever constant, and of
    delta, to base 10, each for m = n (`full`) and m < n.
    """
    found: dict[tuple[str, bool], list[tuple[float, str]]] = {
        (quantity, full): []
        for quantity in ("divergence", "divergence, any constant", "delta")
        for full in (False, True)
    }
    for record in records:
        n, L = record.facts["n"], record.facts["lipschitz"]
        for row in record.tables["scan"]:
            full, total = row["m"] == n, row["K"] * row["eta"]
            point = f"{_law(row)}, sigma2 {row['sigma2']:g}, K {row['K']}, order {row['alpha']:g}"
            what = f"log of exact over claimed divergence, {point}"
            found["divergence", full].append((_log(row["exact"] / row["claimed"]), what))
            # Thm 3.1 claims the most where the log-Sobolev constant is 0.
            most = float(claimed_rdp_lsi(row["alpha"], L, 0.0, n, row["sigma2"], total))
            what = f"log of exact divergence over the most that Thm 3.1 claims, {point}"
            found["divergence, any constant", full].append((_log(row["exact"] / most), what))
        for row in record.tables["calibrated"]:
            what = f"log10 of exact over promised delta, {_law(row)}, K {row['K']}"
            ratio = _log(row["delta"] / record.spec.delta) / math.log(10)
            found["delta", row["m"] == n].append((ratio, what))
    rows = []
    for (quantity, full), points in found.items():
        if points:
            ratio, point = max(points)
            rows.append({"quantity": quantity, "full": full, "log_ratio": ratio, "point": point})
    return pd.DataFrame(rows)


def counterexample_found(observed: Mapping[str, float]) -> str:
    """sgld-7 in a sentence; observed: its logarithms by part, as claims.csv has them."""
    divergence, delta = (
        f"{float(f'{ratio:.2g}'):,.0f} times"
        for ratio in (math.exp(observed["sgld-7a"]), 10 ** observed["sgld-7b"])
    )
    return (
        f"For mini-batches in one dimension the exact Rényi divergence is up to {divergence} what "
        f"dp_sgld's Thm 3.2 claims, and the exact delta up to {delta} what its Thm 4.2 promises."
    )


TABLES: dict[str, Callable[[Records], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        leads,
        layers,
        over_bounds,
        printed_constants,
        published_runs,
        closed_form,
        composition,
        growth,
        attained,
        over_claims,
    )
}
# What `evidence.first` writes of a claim.
FINDINGS = {"sgld-7": counterexample_found}


def _curves(
    records: Records,
) -> Iterator[tuple[Record[Any], tuple[str, str, str], np.ndarray, np.ndarray]]:
    """Each curve, by what `CURVE` names, with its steps and epsilons, NaN where infinite."""
    for record in records:
        for at, rows in columns([record], "curves").groupby(list(CURVE), sort=False):
            yield record, at, rows.step.to_numpy(), rows.epsilon.to_numpy(float)


def _infinite(record: Record[Any], curve: str, epsilons: np.ndarray) -> str | None:
    return f"{curve} of {record.id} is infinite at some step" if np.isnan(epsilons).any() else None


def _law(row: Row) -> str:
    """A pair of data sets with batch and step size, in words."""
    return f"1 against {row['x_prime']:g} among {row['rest']:g}s, m {row['m']}, eta {row['eta']:g}"


def _log(ratio: float) -> float:
    """The logarithm, -inf at 0."""
    return math.log(ratio) if ratio > 0 else -math.inf
