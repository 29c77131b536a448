"""Records of max_information in which every claim is true but those that arithmetic refutes.

Coefficients and kappas are those of the bounds; certificates, risks and moments are made up.
"""

import itertools

import numpy as np
from committed_claims import CLAIMS

from dpatlas.evidence.claims import (
    judge_claims,
)
from dpatlas.evidence.comparisons import PaperRecords
from dpatlas.papers.max_information.formulas.kappa import kappa_of_form
from dpatlas.papers.max_information.formulas.mechanisms import (
    gaussian_leading_coefficient,
    pure_dp_leading_coefficient,
)

RUNS, SPREAD = 5, 1e-3
# By arithmetic on the printed table: two of eight bounds do not follow with Eq. 98.
FALSE = {"maxinf-2b", "maxinf-2"}
# zeta and epochs of a tuple; at the better of two deviations its certificate, and the rigorous one.
TUPLES = (
    ("independent", None, None, 0.40, 0.40),
    ("noise-only", 0.01, 1, 0.38, 0.38),
    ("dp-sgd", 0.01, 1, 0.34, 0.34),
    ("dp-sgd", 0.01, 5, 0.30, 0.90),
)
AXES = {
    "n": (10_000, 50_000, 1_000_000),
    "zeta_over_sigma": (0.001, 0.01, 0.1),
    "E": (1, 4, 20),
    "T": (1, 10, 50),
    "delta": (1e-8, 1e-4, 0.05),
}


def certificates_record(name="digits", tuples=TUPLES, runs=RUNS, classes=10, **fields):
    rows = []
    for place, (prior, zeta, epochs, level, proven) in enumerate(tuples):
        for tau, run in itertools.product((0.02, 0.05), range(runs)):
            noise = np.random.default_rng((place, run)).normal(0, SPREAD)
            bound = level + 0.05 * (tau == 0.02) + noise
            rows.append(
                {
                    **{"prior": prior, "zeta": zeta, "sigma": zeta and 1.0, "m": zeta and 100},
                    **{"E": epochs, "lr": zeta and 5.0, "tau": tau, "run": run},
                    "diverged": None,
                    "certificate_rigorous": bound + proven - level,
                    "certificate_posterior": bound,
                    "certificate_tight": bound - 0.02,
                    "certificate_universe": bound + 0.02,
                    "test_error": bound - 0.1,
                    "certificate_prior": 0.85,
                    "prior_test_error": 0.84,
                }
            )
    spec = {
        "kind": "certificates",
        "runs": runs,
        "data": {"name": name},
        "K1": 3,
        "K2": 2,
        "beta": 0.025,
        "looks": {"number": 1, "registered": True, "others": []},
        "priors": [],
        **fields,
    }
    metrics = {"n_test": 400, "classes": classes, "rows": rows}
    return {"id": f"certificates-{name}", "spec": spec, "metrics": metrics}


def coefficients_record(alphas=(0.5, 1.0, 3.0, 8.0), betas=(1e-12, 1e-6, 0.01, 0.5, 0.6)):
    betas = np.array(betas)
    curves = [
        {
            "alpha": alpha,
            "beta": betas.tolist(),
            "gaussian_leading": gaussian_leading_coefficient(alpha, betas).tolist(),
            "pure_dp_leading": pure_dp_leading_coefficient(betas).tolist(),
        }
        for alpha in alphas
    ]
    return {"id": "coefficients", "spec": {}, "metrics": {"curves": curves}}


def kappa_record(axes=AXES):
    base = {"n": 50_000, "m": 5000, "zeta_over_sigma": 0.01, "E": 1, "T": 10, "delta": 0.05}
    panels = []
    for axis, values in axes.items():
        points = [{**base, axis: value} for value in values]
        for point in points:
            if axis == "n":
                point["T"] = point["n"] // point["m"]
            if axis == "T":
                point["m"] = point["n"] // point["T"]
        panel = {"axis": axis, "x": list(values)}
        for form in ("optimised", "explicit", "tight"):
            panel[form] = [
                kappa_of_form(
                    form, p["m"], p["zeta_over_sigma"], 1.0, p["T"], p["E"], p["delta"] / 2
                )
                / p["n"]
                for p in points
            ]
        panels.append(panel)
    return {"id": "kappa", "spec": {}, "metrics": {"panels": panels}}


def agreement_record(draws=20_000):
    rows = [
        {"what": what, "method": method, "draws": draws, "errors": round(risk * draws)}
        for what, risk in (("prior", 0.8), ("posterior", 0.2))
        for method in ("reparametrisation", "sampling")
        for _ in range(2)
    ]
    return {"id": "agreement", "spec": {}, "metrics": {"rows": rows}}


def simulation_record():
    rows = [
        {"law": law, "nu": 4.0, "x": y / 4, "y": y}
        | {"simulated": 1 + y, "standard_error": 0.1 * y, "lemma_10": 1 + 3 * y, "tight": 1 + 2 * y}
        for law, y in itertools.product(("signs", "sphere"), (0.01, 0.1))
    ]
    return {"id": "simulation", "spec": {}, "metrics": {"m": 4, "draws": 1000, "rows": rows}}


def world():
    """Groups of records in which every claim is true, but for `FALSE`."""
    return {
        "certificates": [certificates_record(), certificates_record("mnist")],
        "coefficients": [coefficients_record()],
        "kappa": [kappa_record()],
        "agreement": [agreement_record()],
        "simulation": [simulation_record()],
    }


def verdicts(groups):
    rows = judge_claims(CLAIMS, {"max_information": PaperRecords({}, groups)}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == "max_information"}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def rows_of(record, **keys):
    rows = record["metrics"]["rows"]
    return [row for row in rows if all(row[name] == value for name, value in keys.items())]


def panel_of(groups, axis):
    (found,) = (each for each in groups["kappa"][0]["metrics"]["panels"] if each["axis"] == axis)
    return found


def power_law(axis, exponent):
    """The change that makes a panel one between its ends, whatever lies between."""

    def change(groups):
        panel = panel_of(groups, axis)
        middle, end = (panel["x"][place] / panel["x"][0] for place in (1, 2))
        values = [1e-4, 9e-4 * middle, 1e-4 * end**exponent]
        for form, factor in (("optimised", 1.0), ("explicit", 2.0), ("tight", 0.9)):
            panel[form] = [factor * value for value in values]

    return change
