"""Small records of max_information as JSON, to be changed; `typed` reads them as jobs' are read.

Coefficients and kappas are those of the bounds, simulated moments are exact, risks are made up.
"""

import copy
import functools
import math
from itertools import product

import numpy as np
from figure_samples import as_json, in_style, maker, names_of, sample_record
from scipy.special import logsumexp
from scipy.stats import binom

from dpatlas.core.files import read_json
from dpatlas.core.specs import Spec
from dpatlas.jobs.run import main
from dpatlas.papers.max_information.formulas.certificates import certificate as bound_without_draws
from dpatlas.papers.max_information.formulas.certificates import (
    certificate_monte_carlo,
    monte_carlo_risk,
)
from dpatlas.papers.max_information.formulas.kappa import (
    FORMS,
    batch_moment_exponent,
    kappa_of_form,
    kappa_repaired,
    standing,
)
from dpatlas.papers.max_information.formulas.mechanisms import (
    gaussian_leading_coefficient,
    gaussian_root_coefficient,
    pure_dp_leading_coefficient,
    pure_dp_root_coefficient,
)
from dpatlas.papers.max_information.formulas.universe import certificate_universe, setting_weight
from dpatlas.papers.max_information.looks import label_of
from dpatlas.papers.max_information.records import (
    agreement,
    certificates,
    coefficients,
    kappa,
    simulation,
)
from dpatlas.papers.max_information.records.certified import Looks
from dpatlas.records import parse_record

KEYS = {"key": "max_information", "seed": 0, "noise_source": "keyed"}
BASE = {"n": 50_000, "m": 5000, "zeta": 0.01, "sigma": 1.0, "E": 1, "delta": 0.05}
AXES = {
    "n": [5000, 20_000, 100_000, 500_000],
    "zeta_over_sigma": [0.002, 0.01, 0.05],
    "E": [1, 2, 5, 20],
    "T": [1, 5, 25],
    "delta": [1e-6, 1e-3, 0.05],
}
PRIORS = (
    {"prior": "independent"},
    {"prior": "noise-only", "zeta": 0.01, "sigma": 1.0, "m": 500, "E": 1, "lr": 20.0},
    {"prior": "dp-sgd", "zeta": 0.01, "sigma": 1.0, "m": 500, "E": 1, "lr": 20.0},
    {"prior": "dp-sgd", "zeta": 0.01, "sigma": 1.0, "m": 500, "E": 5, "lr": 20.0},
)
TAUS = (0.03, 0.06)
UNION = {"K1": 4, "K2": 2, "delta": 0.05, "delta_mc": 0.0125, "beta": 0.025}
LOOKS = {"number": 1, "registered": True, "others": []}
N_TRAIN, N_TEST, DRAWS = 6000, 500, 20_000
LABEL = label_of(Looks.model_validate(LOOKS))
SIZES = {
    **{"n_train": N_TRAIN, "n_test": N_TEST, "inputs": 64, "classes": 10, "parameters": 7510},
    **{"T": N_TRAIN // 500, "kappa_level": UNION["beta"] / UNION["K1"], "tau_is": "deviation"},
    **{"holds_together": "the certificates of one kind of prior", **LABEL},
}
FIELDS = {
    "model": "mlp",
    "options": {"widths": [100]},
    "objective": "fquad",
    "training": {"lr": 0.1},
    "grid": {
        **{"zetas": [0.01], "lrs": [20.0], "epochs": [1, 5], "taus": list(TAUS)},
        **{"m": 500, "sigma": 1.0},
    },
    **UNION,
    "looks": LOOKS,
    "draws": DRAWS,
}


FIGURES, TABLES = (names_of("max_information", kind) for kind in ("figure", "table"))


def written(kind, metrics, slug=None, **fields):
    """What `record.json` holds of a record of a kind, a module of `records`."""
    name = kind.__name__.rpartition(".")[2]
    spec = kind.Spec.model_validate({**KEYS, "kind": name, **fields})
    return as_json(sample_record(spec, kind.Metrics.model_validate(metrics), slug))


def typed(records):
    """The records as figures and claims take them."""
    return [parse_record(record, record["id"]) for record in records]


def job_record(folder, kind, **fields):
    """What a job of a kind without data writes under `folder`, as JSON."""
    spec, path = Spec.of({**KEYS, "kind": kind, **fields}, kind), folder / kind / "record.json"
    words = ["--record", str(path), "--checkpoints", str(folder / "checkpoints")]
    main(["--spec", spec.argument, *words])
    return read_json(path)


def show(name, *records):
    """What a figure or table shows, by default of its sample records."""
    return in_style(maker(name), typed(records or RECORDS[name]()), {})


def coefficients_record(alphas=(0.5, 1.0, 2.0, 3.0), betas=None):
    betas = np.geomspace(1e-6, 0.5, 7) if betas is None else np.array(betas)
    curves = [
        {
            "alpha": alpha,
            "beta": betas.tolist(),
            "gaussian_leading": gaussian_leading_coefficient(alpha, betas).tolist(),
            "gaussian_root": gaussian_root_coefficient(alpha, betas).tolist(),
            "pure_dp_leading": pure_dp_leading_coefficient(betas).tolist(),
            "pure_dp_root": pure_dp_root_coefficient(betas, betas).tolist(),
        }
        for alpha in alphas
    ]
    fields = {"alphas": list(alphas), "betas": betas.tolist()}
    return written(coefficients, {"alphas": list(alphas), "curves": curves}, **fields)


def kappa_record(base=BASE, axes=AXES):
    """kappa / n at K1 = 1, as Theorem 2 has it."""
    panels = []
    for axis, values in axes.items():
        points = [_at(base, axis, value) for value in values]
        panel = {"axis": axis, "x": list(values)}
        for form in FORMS:
            found = [_per_record(form, point) for point in points]
            panel[form] = [value if math.isfinite(value) else None for value in found]
        panel["confidence"] = [
            math.log(4 * math.sqrt(point["n"]) / point["delta"]) / point["n"] for point in points
        ]
        panels.append(panel)
    axes = {axis: list(values) for axis, values in axes.items()}
    return written(kappa, {"base": base, "panels": panels}, base=base, axes=axes)


def _at(base, axis, value):
    if axis == "T":
        return {**base, "m": base["n"] // value, "T": value}
    if axis == "zeta_over_sigma":
        axis, value = "zeta", value * base["sigma"]
    point = {**base, axis: value}
    return {**point, "T": point["n"] // point["m"]}


def _per_record(form, point):
    names = ("m", "zeta", "sigma", "T", "E")
    kappa = kappa_of_form(form, *(point[name] for name in names), point["delta"] / 2)
    return float(kappa) / point["n"]


def simulation_record(nus=(0.5, 20.0), ys=(0.02, 0.1, 0.3), m=20, draws=10_000):
    """Sums of m coins, fair and not: the exact moment, and the error of so many draws."""
    heads = np.arange(m + 1)
    rows = []
    for (law, chance), nu, y in product((("signs", 0.5), ("rare-signs", 0.1)), nus, ys):
        squares = 4 * (heads - m * chance) ** 2 / m
        moment, second = (
            math.exp(logsumexp(binom.logpmf(heads, m, chance) + k * y * squares)) for k in (1, 2)
        )
        rows.append(
            {
                **{"law": law, "nu": nu, "x": y / nu, "y": y, "simulated": moment},
                "standard_error": math.sqrt((second - moment**2) / draws),
                "lemma_10": math.exp(batch_moment_exponent(y)),
                "tight": math.exp(batch_moment_exponent(y, "minimum")),
            }
        )
    fields = {"m": m, "draws": draws, "nus": list(nus), "ys": list(ys)}
    fields["laws"] = ["signs", "rare-signs"]
    return written(simulation, {"m": m, "draws": draws, "rows": rows}, **fields)


def agreement_record(repetitions=2, draws=1000):
    rows = [
        {"what": what, "method": method, "repetition": repetition, "draws": draws}
        | {"errors": round(risk * draws), "risk": risk}
        for what, risk in (("prior", 0.7), ("posterior", 0.2))
        for method in ("reparametrisation", "sampling")
        for repetition in range(repetitions)
    ]
    fields = {**FIELDS, "priors": spec_priors(PRIORS[2:3]), "taus": [TAUS[0]], "draws": draws}
    fields |= {"runs": 1, "repetitions": repetitions, "data": data_of("digits")}
    metrics = {**SIZES, "form": "optimised", "diverged": None, "rows": rows}
    return written(agreement, metrics, **fields)


def data_of(name):
    return {"name": name, "n_train": N_TRAIN, "n_add": 0, "n_test": N_TEST}


def spec_priors(priors):
    """Priors of rows as a spec has them."""
    return [
        {"kind": prior["prior"]} | {name: prior[name] for name in prior if name != "prior"}
        for prior in priors
    ]


def certificates_record(name="digits", priors=PRIORS, runs=3, form="optimised", **changes):
    """DP-SGD helps, five epochs more than one; tau 0.06 is better than 0.03."""
    rows = [
        certificate_row(tuple(prior.items()), tau, run, form)
        for prior, tau, run in product(priors, TAUS, range(runs))
    ]
    fields = {**FIELDS, "priors": spec_priors(priors), "taus": list(TAUS), "data": data_of(name)}
    fields |= {"form": form, "runs": runs, **changes}
    metrics = {**SIZES, "form": form, "rows": rows, "selected": []}
    return written(certificates, metrics, f"certificates-{name}", **fields)


def certificate_row(prior, tau, run, form):
    """A row whose certificates follow from its risks; infinite kappas are null."""
    return copy.deepcopy(_certificate_row(prior, tau, run, form))


@functools.cache
def _certificate_row(prior, tau, run, form):
    keys = {"zeta": None, "sigma": None, "m": None, "E": None, "lr": None, **dict(prior)}
    private = keys["prior"] == "dp-sgd"
    T = N_TRAIN // keys["m"] if keys["m"] else None
    level = UNION["beta"] / UNION["K1"]
    setting = (keys["m"], keys["zeta"], keys["sigma"], T, keys["E"], level)
    kappas = {each: float(kappa_of_form(each, *setting)) if private else 0.0 for each in FORMS}
    gain = 0.0 if not private else 0.05 * keys["E"] ** 0.5
    errors_prior = round(DRAWS * (0.8 - 2 * gain + 0.002 * run))
    errors = round(DRAWS * (0.25 - gain - tau + 0.002 * run))
    kl = 400.0 + 10 * run
    found = {
        "risk_prior": errors_prior / DRAWS,
        "risk_posterior": errors / DRAWS,
        "errors_prior": errors_prior,
        "errors_posterior": errors,
        "kl": kl,
    }

    def certificate(risk, kl, kappa, interval):
        inputs = (risk, DRAWS, kl, kappa, N_TRAIN, *UNION.values(), interval)
        return float(certificate_monte_carlo(*inputs))

    paid, risk = kappas[form], found["risk_posterior"]
    proven = float(kappa_repaired(*setting, moment="minimum")) if private else 0.0
    counted = monte_carlo_risk(risk, DRAWS, UNION["delta_mc"] / 8, "clopper-pearson")
    weight = setting_weight(
        kind=keys["prior"],
        **{name: keys[name] for name in ("zeta", "sigma", "m", "E", "lr")},
        **{"model": "mlp", "widths": [100], "normalise": None, "tau": tau, "tau_is": "deviation"},
        **{"n": N_TRAIN, "look": 1, "run": run},
    )
    dearer = (*setting[:-1], UNION["beta"] * weight)
    charged = float(kappa_repaired(*dearer, moment="minimum")) if private else 0.0
    levels = [UNION[name] for name in ("delta", "delta_mc", "beta")]
    return {
        **keys,
        "T": T,
        "tau": tau,
        "run": run,
        "universe": {
            "weight": weight,
            "nats": -math.log(weight),
            "kappa": charged if math.isfinite(charged) else None,
        },
        **LABEL,
        "kappa": {
            key: each if math.isfinite(each) else None
            for key, each in {**kappas, "rigorous": proven}.items()
        },
        "standing": standing(form, keys["E"]) if private else "rigorous",
        **found,
        "certificate_prior": certificate(found["risk_prior"], 0.0, paid, "paper"),
        "certificate_posterior": certificate(risk, kl, paid, "paper"),
        "certificate_tight": certificate(risk, kl, kappas["tight"], "clopper-pearson"),
        "certificate_rigorous": float(
            bound_without_draws(counted, kl, proven, N_TRAIN, *UNION.values())
        ),
        "certificate_universe": float(
            certificate_universe(risk, DRAWS, kl, charged, N_TRAIN, weight, *levels)
        ),
        "diverged": None,
        "skipped_records": 0,
        "test_error": risk + 0.01,
        "test_draws": N_TEST,
        "prior_test_error": found["risk_prior"] + 0.001,
    }


RECORDS = {
    "maxinf_coefficients": lambda: [coefficients_record()],
    "maxinf_kappa": lambda: [kappa_record(), simulation_record()],
    "maxinf_certificates": lambda: [certificates_record(), agreement_record()],
    "maxinf_grid": lambda: [certificates_record()],
}
