"""feature_learning: the tables that claims.yaml reads beside those of the paper's records.

Intervals are over runs, which draw the direction, weights, records and noise anew. Conditions of
a sweep, and kinds of features, share a run's draws and are compared in pairs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpatlas.accounting.gaussian_dp import gaussian_mu
from dpatlas.formulas.feature_learning.rates import (
    largest_epsilon,
    printed_first_layer_mu,
    printed_least_risk,
    second_layer_mu,
)
from dpatlas_workflow.evidence.comparisons import NotRun
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

Records = Sequence[Record[Any]]
# The grid on which a formula is compared with exact accounting: delta, and eps as a share of its
# range up to 8 log(1 / delta).
DELTAS = (1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
SHARES = (1e-3, 1e-2, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999)
# Inputs, exponents of n and p in them, and degree of the link, for a limit in which d grows.
LARGE, N_POWER, P_POWER, DEGREE = 10**8, 1.3, 0.1, 2


def learnable(records: Records) -> pd.DataFrame:
    """`rows` of links of information exponent 1."""
    return _of_exponent(records, "1", lambda exponent: exponent == 1)


def beyond(records: Records) -> pd.DataFrame:
    """`rows` of links of information exponent 2 or more."""
    return _of_exponent(records, "2 or more", lambda exponent: exponent > 1)


def _of_exponent(records: Records, words: str, taken: Callable[[Any], Any]) -> pd.DataFrame:
    rows = columns(records)
    rows = rows[taken(rows.information_exponent)]
    if rows.empty:
        along = f"along {records[0].spec.axis}"
        raise NotRun(f"the config has no link of information exponent {words} {along}")
    return rows


def ladder_falls(records: Records) -> pd.DataFrame:
    """By run the log of the factor by which the private risk falls along ladders, beside the rate.

    Theorem 1's rate where n and p are powers of d: 3 eps_p / 16 < eps_n makes d^(-eps_p / (8 q))
    the larger term. The risk's factor is that of a power of d, fitted run by run. `fall`: its
    logarithm, `excess`: that less the rate's; along the `whole` ladder or its `end`, two d.
    """
    parts = []
    for link, rows in learnable(records).query("features == 'private'").groupby("link", sort=False):
        risks = rows.pivot(index="d", columns="run", values="risk_private")
        if len(risks) < 2:
            raise NotRun(f"{rows.record.iloc[0]} has one value of d")
        largest = rows.loc[rows.d.idxmax()]
        rate = math.log(largest.p) / math.log(largest.d) / (8 * largest.degree)
        for part, of_part in (("whole", risks), ("end", risks[-2:])):
            d = of_part.index.to_numpy(float)
            falls = -np.polyfit(np.log(d), np.log(of_part.to_numpy(float)), 1)[0]
            length = math.log(d[-1] / d[0])
            named = {"link": link, "part": part, "low": d[0], "high": d[-1]}
            named |= {"run": of_part.columns, "fall": falls * length}
            parts.append(pd.DataFrame({**named, "excess": (falls - rate) * length}))
    return pd.concat(parts)


def first_layer(records: Records) -> pd.DataFrame:
    """By condition mu allowed by (eps, delta) less that of the printed first layer's worst pair.

    q is the link's degree, eps_B = 0.
    """
    rows = []
    for record in records:
        delta, degree = record.spec.delta, record.facts["degree"]
        for point in record.spec.points:
            mu = printed_first_layer_mu(point.d, point.n, degree, point.p)
            margin = gaussian_mu(point.epsilon, delta) - mu
            rows.append({"record": record.id, **dict(point), "margin": margin})
    return pd.DataFrame(rows)


def second_layer(records: Records) -> pd.DataFrame:
    """mu allowed by (eps, delta) less that of the printed second layer, on a grid; no record's.

    relation: whether a mean of clipped gradients has sensitivity C_a / n (add_remove) or 2 C_a / n
    (replace_one).
    """
    rows = [
        {"relation": relation, "delta": delta, "share": share, "epsilon": epsilon}
        | {"margin": gaussian_mu(epsilon, delta) - second_layer_mu(epsilon, delta, relation)}
        for relation in ("add_remove", "replace_one")
        for delta in DELTAS
        for share in SHARES
        for epsilon in [share * largest_epsilon(delta)]
    ]
    return pd.DataFrame(rows)


def least_risk(records: Records) -> pd.DataFrame:
    """The risk that the printed first layer leaves to any second layer at one large d; no record's.

    As a share of the labels' variance, with eps_B = 0.
    """
    n, p = round(LARGE**N_POWER), max(1, round(LARGE**P_POWER))
    risk = printed_least_risk(LARGE, n, p, DEGREE)
    return pd.DataFrame([{"d": LARGE, "n": n, "p": p, "q": DEGREE, "risk": risk}])


TABLES: dict[str, Callable[[Records], pd.DataFrame]] = {
    table.__name__: table
    for table in (learnable, beyond, ladder_falls, first_layer, second_layer, least_risk)
}
