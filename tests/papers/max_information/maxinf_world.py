"""Records of max_information in which every claim is true but those that arithmetic refutes.

Coefficients, kappas and moments are those of the samples; certificates and risks are made up.
"""

import maxinf_sample_records as samples
import numpy as np
from committed_claims import CLAIMS
from maxinf_sample_records import PRIORS, TAUS, typed

from dpatlas.evidence.claims import judge_claims
from dpatlas.evidence.comparisons import PaperRecords

RUNS, SPREAD = 5, 1e-3
# By arithmetic on the printed table: two of eight bounds do not follow with Eq. 98.
FALSE = {"maxinf-2b", "maxinf-2"}
# Of a kind of prior and its epochs, at the better deviation: the certificate and the rigorous one.
LEVELS = {
    ("independent", None): (0.40, 0.40),
    ("noise-only", 1): (0.38, 0.38),
    ("dp-sgd", 1): (0.34, 0.34),
    ("dp-sgd", 5): (0.30, 0.90),
}
AXES = {
    "n": (10_000, 50_000, 1_000_000),
    "zeta_over_sigma": (0.001, 0.01, 0.1),
    "E": (1, 4, 20),
    "T": (1, 10, 50),
    "delta": (1e-8, 1e-4, 0.05),
}


def certificates_record(name="digits", priors=PRIORS, runs=RUNS, **fields):
    record = samples.certificates_record(name, priors, runs, **fields)
    for row in record["metrics"]["rows"]:
        prior = (row["prior"], row["E"])
        level, proven = LEVELS[prior]
        noise = np.random.default_rng((list(LEVELS).index(prior), row["run"])).normal(0, SPREAD)
        bound = level + 0.05 * (row["tau"] == TAUS[0]) + noise
        row |= {
            "certificate_rigorous": bound + proven - level,
            "certificate_posterior": bound,
            "certificate_tight": bound - 0.02,
            "certificate_universe": bound + 0.02,
            "test_error": bound - 0.1,
            "certificate_prior": 0.85,
            "prior_test_error": 0.84,
        }
    return record


def world():
    """Groups of records in which every claim is true, but for `FALSE`."""
    betas = (1e-12, 1e-6, 0.01, 0.5, 0.6)
    return {
        "certificates": [certificates_record(), certificates_record("mnist")],
        "coefficients": [samples.coefficients_record((0.5, 1.0, 3.0, 8.0), betas)],
        "kappa": [samples.kappa_record(axes=AXES)],
        "agreement": [samples.agreement_record(draws=20_000)],
        "simulation": [samples.simulation_record()],
    }


def verdicts(groups):
    records = PaperRecords({}, {name: typed(group) for name, group in groups.items()})
    rows = judge_claims(CLAIMS, {"max_information": records}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == "max_information"}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def rows_of(record, **keys):
    rows = record["metrics"]["rows"]
    return [row for row in rows if all(row[name] == value for name, value in keys.items())]


def panel_of(groups, axis):
    (panel,) = (each for each in groups["kappa"][0]["metrics"]["panels"] if each["axis"] == axis)
    return panel


def power_law(axis, exponent):
    """The change that makes a panel one between its ends, whatever lies between."""

    def change(groups):
        panel = panel_of(groups, axis)
        middle, end = (panel["x"][place] / panel["x"][0] for place in (1, 2))
        values = [1e-4, 9e-4 * middle, 1e-4 * end**exponent]
        for form, factor in (("optimised", 1.0), ("explicit", 2.0), ("tight", 0.9)):
            panel[form] = [factor * value for value in values]

    return change
