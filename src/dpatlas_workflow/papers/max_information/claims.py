"""max_information: the tables that claims.yaml reads beside those of the paper's records.

For every kind of prior a run selects, among all priors that were tried and paid for, the one with
the smallest certificate; claims are about the certificates of these priors. Intervals are over
runs. A run has its own deal or draw of the records, initial weights, batches, noise and risk
estimates. The priors of a run share its records, initial weights, batches and noise, and are
compared in pairs. What follows from formulas and from the printed table by arithmetic has no
interval; such a table needs no record, and its entry names the runs whose table shows it.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpatlas.formulas.max_information.kappa import FORMS
from dpatlas.formulas.max_information.mechanisms import leading_term_ratio
from dpatlas.formulas.max_information.published import TABLE_1, PublishedCertificates
from dpatlas_workflow.evidence.comparisons import NotRun, Undecided
from dpatlas_workflow.papers.max_information.selection import (
    HYPERPARAMETERS,
    PAID,
    RIGOROUS,
    settings_of,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

Records = Sequence[Record[Any]]
PRIOR = "certificate_prior"
METHODS = ("reparametrisation", "sampling")
# Half a unit of the last printed digit of risks and bounds, and of kappa and KL.
HALF_CENT, HALF_NAT = 0.005, 0.5
# Lemma 6 covers alpha and beta up to these values.
LARGEST_ALPHA, LARGEST_BETA = 3.0, 0.5
SIGNAL_TO_NOISE = "zeta_over_sigma"


def selected(records: Records, by: str = PAID) -> pd.DataFrame:
    """The selected row of every `setting`, kind of prior and run; no certificate if it diverged.

    over_guessing: the certificate of the posterior less 1 - 1/classes; over_test_error: less the
    measured test error. words: the prior and the run.
    """
    parts = []
    for setting in settings_of(records):
        for kind in setting.kinds:
            rows = setting.selected(kind, by)
            certificates = [name for name in rows if name.startswith("certificate_")]
            rows = rows.assign(
                **rows[certificates].where(rows.diverged.isna()),
                setting=setting.name,
                record=f"{setting.name}, every posterior of the {kind} prior,",
                of_runs=rows.runs,
            )
            parts.append(rows)
    data = pd.concat(parts)
    return data.assign(
        words=data.apply(_words, axis=1),
        over_guessing=data[PAID] - (1 - 1 / data.classes),
        over_test_error=data[PAID] - data.test_error,
    )


def selected_rigorous(records: Records) -> pd.DataFrame:
    """As `selected`, by the rigorous certificate."""
    return selected(records, RIGOROUS)


def largest(records: Records) -> pd.DataFrame:
    """The largest `value` over runs of the certificates of the selected priors and posteriors."""
    rows = []
    data = selected(records)
    for (setting, prior), runs in data.groupby(["setting", "prior"], sort=False):
        for column in (PRIOR, PAID):
            known = runs[column].notna().all()
            at = runs.loc[runs[column].idxmax()] if known else runs.iloc[0]
            value = at[column] if known else math.nan
            what = {"what": f"certificate of the {column.partition('_')[2]}", "value": value}
            where = {"setting": setting, "prior": prior, "run": at.run, "record": at.record}
            on = {"data.name": at["data.name"], "model": at.model}
            rows.append({**what, **where, **on, "of_runs": at.runs})
    return pd.DataFrame(rows)


def tested_posteriors(records: Records) -> pd.DataFrame:
    """All rows with a test error: the tight certificate less it, and the error of that."""
    return _tested(records, "certificate_tight", "test_error")


def tested_priors(records: Records) -> pd.DataFrame:
    """All rows: the certificate of the prior less its test error, and the error of that."""
    return _tested(records, PRIOR, "prior_test_error")


def _tested(records: Records, certificate: str, test_error: str) -> pd.DataFrame:
    """margin, and error: that of as many independent test records at a risk equal to the bound.

    Testing a record repeatedly with fresh weights can only reduce it.
    """
    parts = []
    for setting in settings_of(records):
        # A diverged posterior has a certificate of 1 and no test error.
        rows = setting.rows[setting.rows[test_error].notna()]
        if rows.empty:
            raise Undecided(f"every posterior of {setting.name} diverged")
        bound = rows[certificate]
        parts.append(
            rows.assign(
                words=rows.apply(_words, axis=1),
                setting=setting.name,
                margin=bound - rows[test_error],
                error=np.sqrt(bound * (1 - bound) / rows.n_test),
            )
        )
    return pd.concat(parts)


def _words(row: Any) -> str:
    """The prior of a row, and its run."""
    settings = [f"{name} {row[name]:g}" for name in HYPERPARAMETERS if pd.notna(row[name])]
    return ", ".join([f"{row.prior} prior", *settings, f"tau {row.tau:g}, run {row.run}"])


def agreement(records: Records) -> pd.DataFrame:
    """By network the `difference` of its risk by both methods, over all repetitions."""
    rows = []
    for (record, what), counts in columns(records).groupby(["record", "what"], sort=False):
        risks = []
        for method in METHODS:
            of_method = counts[counts.method == method]
            if of_method.empty:
                raise NotRun(f"{record} has no {method} of the {what}")
            draws = int(of_method.draws.sum())
            risks.append((of_method.errors.sum() / draws, draws))
        (first, pairs), (second, others) = risks
        error = math.sqrt(first * (1 - first) / pairs + second * (1 - second) / others)
        of_both = {"difference": first - second, "error": error, "pairs": min(pairs, others)}
        on = {"record": record, "data.name": counts["data.name"].iloc[0]}
        rows.append({**on, "what": what, **of_both})
    return pd.DataFrame(rows)


def moments(records: Records) -> pd.DataFrame:
    """Simulated moments, and their errors, over the tight bound."""
    data = columns(records)
    return data.assign(ratio=data.simulated / data.tight, error=data.standard_error / data.tight)


def slopes(records: Records) -> pd.DataFrame:
    """By `axis` with two values or more the log-log `slope` of kappa/n between its ends."""
    rows = []
    for record in records:
        for axis, panel in columns([record]).groupby("axis", sort=False):
            if panel.optimised.count() > 1:
                rows.append(
                    {"record": record.id, "axis": axis, "slope": _slope(_points(record, axis))}
                )
    return pd.DataFrame(rows)


def noise_over_others(records: Records) -> pd.DataFrame:
    """By other `axis` the slope in log(zeta/sigma) less the size of that one: `excess`."""
    rows = []
    for record in records:
        slope = _slope(_points(record, SIGNAL_TO_NOISE))
        for axis in columns([record]).axis.unique():
            if axis != SIGNAL_TO_NOISE:
                excess = slope - abs(_slope(_points(record, axis)))
                rows.append({"record": record.id, "axis": axis, "excess": excess})
    return pd.DataFrame(rows)


def confidence(records: Records) -> pd.DataFrame:
    """By axis the confidence term over kappa/n at the smallest value of the panel: `ratio`."""
    data = columns(records)
    data = data.loc[data.groupby(["record", "axis"], sort=False).x.idxmin()]
    return data.assign(ratio=data.confidence / data.optimised.astype(float).fillna(math.inf))


def against_log(records: Records) -> pd.DataFrame:
    """kappa/n against log(1/delta): log-log `slope` between the ends, and how straight it is.

    bend: the steepest over the flattest slope between neighbouring points.
    """
    rows = []
    for record in records:
        points = [(-math.log(delta), kappa) for delta, kappa in reversed(_points(record, "delta"))]
        slopes = [(y - x) / (v - u) for (u, x), (v, y) in itertools.pairwise(points)]
        bend = max(slopes) / min(slopes) if min(slopes) > 0 else math.inf
        rows.append({"record": record.id, "slope": _slope(points), "bend": bend})
    return pd.DataFrame(rows)


def form_ratios(records: Records) -> pd.DataFrame:
    """The largest `excess` of one form of kappa over another, by panel and pair of forms."""
    rows = []
    for _, panel in columns(records).groupby(["record", "axis"], sort=False):
        for of, over in itertools.permutations(FORMS, 2):
            ratios = panel[of].to_numpy(float) / panel[over].to_numpy(float)
            at = panel.iloc[int(ratios.argmax())]
            pair = {"of": of, "over": over, "excess": ratios.max() - 1}
            rows.append({**pair, "axis": at.axis, "x": at.x})
    return pd.DataFrame(rows)


def printed_kappas(records: Records) -> pd.DataFrame:
    """The tuples behind Table 1: kappa less print, and one form over another."""
    rows = []
    for row in TABLE_1:
        if row.zeta is not None:
            kappas = {form: row.kappa_of_form(form) for form in FORMS}
            at = {"dataset": row.dataset, "zeta": row.zeta, "E": row.E, "T": row.T}
            at["less_print"] = kappas["optimised"] - row.kappa
            for of, over in itertools.permutations(FORMS, 2):
                rows.append({**at, "of": of, "over": over, "ratio": kappas[of] / kappas[over]})
    return pd.DataFrame(rows)


def printed_gaps(records: Records) -> pd.DataFrame:
    """The gap between a printed bound and what its rounded inputs allow, negative if they overlap.

    equation: 97, or 98 for Eq. 97 at the upper limit of Eq. 98.
    """
    rows = [
        {"dataset": row.dataset, "prior": row.prior, "equation": equation, "what": what, "gap": gap}
        for row in TABLE_1
        for equation in (97, 98)
        for what, gap in _gaps(row, monte_carlo=equation == 98)
    ]
    return pd.DataFrame(rows)


def lemma_6(records: Records) -> pd.DataFrame:
    """The ratio of leading coefficients at every point in the domain of Lemma 6."""
    data = columns(records)
    data = data[(data.alpha <= LARGEST_ALPHA) & (data.beta <= LARGEST_BETA)]
    if missing := {record.id for record in records} - set(data.record):
        raise NotRun(f"{min(missing)} has no point in the domain of Lemma 6")
    return data.assign(ratio=data.gaussian_leading / data.pure_dp_leading)


def extreme_ratios(records: Records) -> pd.DataFrame:
    """The smallest and the largest ratio of each record (`name`)."""
    by_record = lemma_6(records).groupby("record", sort=False)
    rows = [
        of.loc[getattr(of.ratio, choose)()].to_dict() | {"name": name}
        for _, of in by_record
        for name, choose in (("smallest", "idxmin"), ("largest", "idxmax"))
    ]
    return pd.DataFrame(rows)


def ratio_growth(records: Records) -> pd.DataFrame:
    """The smallest growth of the ratio between neighbours in alpha, and in beta (`name`)."""
    rows = []
    for record, points in lemma_6(records).groupby("record", sort=False):
        for name, fixed in (("alpha", "beta"), ("beta", "alpha")):
            ordered = points.sort_values([fixed, name])
            growth = ordered.groupby(fixed).ratio.diff().dropna()
            if growth.empty:
                raise NotRun(f"{record} has one {name} only in the domain of Lemma 6")
            at = ordered.loc[growth.idxmin()]
            of = {"name": name, "growth": growth.min(), "alpha": at.alpha, "beta": at.beta}
            rows.append({"record": record, **of})
    return pd.DataFrame(rows)


def corner(records: Records) -> pd.DataFrame:
    """The ratio at the largest alpha and beta of Lemma 6."""
    ratio = float(leading_term_ratio(LARGEST_ALPHA, LARGEST_BETA))
    return pd.DataFrame([{"alpha": LARGEST_ALPHA, "beta": LARGEST_BETA, "ratio": ratio}])


TABLES: dict[str, Callable[[Records], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        selected,
        selected_rigorous,
        largest,
        tested_posteriors,
        tested_priors,
        agreement,
        moments,
        slopes,
        noise_over_others,
        confidence,
        against_log,
        form_ratios,
        printed_kappas,
        printed_gaps,
        extreme_ratios,
        ratio_growth,
        corner,
    )
}


def _gaps(row: PublishedCertificates, *, monte_carlo: bool) -> Iterator[tuple[str, float]]:
    """Gaps between each printed bound and the range that its rounded inputs allow, by name."""
    for name, risk, kl, printed in (
        ("B(pi)", row.risk_prior, 0.0, row.bound_prior),
        ("B(rho)", row.risk_posterior, row.kl, row.bound_posterior),
    ):
        ends = []
        for sign in (-1, 1):
            rounded = risk + sign * HALF_CENT
            # A printed zero is exact.
            nats, kappa_nats = (value + sign * HALF_NAT * (value > 0) for value in (kl, row.kappa))
            ends.append(row.bound(rounded, nats, kappa_nats, monte_carlo=monte_carlo))
        low, high = ends
        yield name, max(low - (printed + HALF_CENT), (printed - HALF_CENT) - high)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """log-log slope between the ends of points (x, y)."""
    (first, start), *_, (last, end) = points
    return math.log(end / start) / math.log(last / first)


def _points(record: Record[Any], axis: str) -> list[tuple[float, float]]:
    """(x, optimised kappa/n) of a panel in ascending order; NotRun for fewer than two points."""
    panel = columns([record], axis=axis)
    if panel.empty:
        raise NotRun(f"{record.id} has no panel against {axis}")
    finite = panel.dropna(subset="optimised")
    if len(finite) < 2:
        raise NotRun(f"{record.id} has one value of {axis} only")
    return sorted(zip(finite.x, finite.optimised, strict=True))
