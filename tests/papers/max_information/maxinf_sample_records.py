"""Small records of max_information as JSON, to be changed; `typed` reads them as jobs' are read.

Jobs without data are run; risks and KLs of certificates are made up.
"""

import copy
import functools
import math
from itertools import product
from types import SimpleNamespace

import numpy as np
from figure_samples import as_json, maker, names_of, sample_record

from dpatlas.base.specs import Spec
from dpatlas.formulas.max_information.kappa import standing
from dpatlas_workflow.papers.max_information.jobs import coefficients as coefficients_job
from dpatlas_workflow.papers.max_information.jobs import kappa as kappa_job
from dpatlas_workflow.papers.max_information.jobs import simulation as simulation_job
from dpatlas_workflow.papers.max_information.jobs.priors import (
    epochs_of,
    facts_of_prior,
    kappas_of,
)
from dpatlas_workflow.papers.max_information.looks import label_of
from dpatlas_workflow.papers.max_information.records import agreement, certificates
from dpatlas_workflow.papers.max_information.records.certified import (
    DpSgdPrior,
    IndependentPrior,
    SetLooks,
)
from dpatlas_workflow.records import parse_record

KEYS = {"key": "max_information", "seed": 0, "noise_source": "keyed"}
BASE = {"n": 50_000, "m": 5000, "zeta": 0.01, "sigma": 1.0, "E": 1, "delta": 0.05}
AXES = {
    "n": (10_000, 50_000, 1_000_000),
    "n_at_T": (10_000, 50_000, 1_000_000),
    "zeta_over_sigma": (0.001, 0.01, 0.1),
    "E": (1, 4, 20),
    "T": (1, 10, 50),
    "delta": (1e-8, 1e-4, 0.05),
}
BETAS = np.geomspace(1e-6, 0.5, 7).tolist()
TUPLE = {"zeta": 0.01, "sigma": 1.0, "m": 500, "E": 1, "lr": 20.0}
PRIORS = (
    {"prior": "independent"},
    {"prior": "noise-only", **TUPLE},
    {"prior": "dp-sgd", **TUPLE},
    {"prior": "dp-sgd", **TUPLE, "E": 5},
)
TAUS = (0.03, 0.06)
UNION = {"K1": 4, "K2": 2, "delta": 0.05, "delta_mc": 0.0125, "beta": 0.025}
LOOKS = {"number": 1, "registered": True, "others": []}
N_TRAIN, N_TEST, DRAWS = 6000, 500, 20_000
LEVEL = UNION["beta"] / UNION["K1"]
LABEL = label_of(SetLooks.model_validate(LOOKS))
SIZES = {
    **{"n_train": N_TRAIN, "n_test": N_TEST, "inputs": 64, "classes": 10, "parameters": 7510},
    **{"T": N_TRAIN // 500, "kappa_level": LEVEL},
    **{"holds_together": "the certificates of one kind of prior", **LABEL},
}
GRID = {"zetas": [0.01], "lrs": [20.0], "epochs": [1, 5], "taus": list(TAUS), "m": 500}
FIELDS = {
    **{"model": "mlp", "options": {"widths": [100]}, "objective": "fquad"},
    "training": {"lr": 0.1, "momentum": 0.95, "batch": 250, "epochs": 100},
    **{"grid": {**GRID, "sigma": 1.0}, **UNION, "looks": LOOKS, "draws": DRAWS},
}
# How far a posterior's certificates lie above its risk.
ABOVE = {"posterior": 0.1, "tight": 0.08, "rigorous": 0.09, "universe": 0.12}
COMPUTED = {}
TABLES = names_of("max_information", "table")


def written(kind, metrics, slug=None, **fields):
    """What `record.json` holds of a record of a kind, a module of `records`."""
    name = kind.__name__.rpartition(".")[2]
    spec = kind.RECORD.spec.model_validate({**KEYS, "kind": name, **fields})
    return as_json(sample_record(spec, metrics, slug))


def typed(records):
    """The records as figures and claims take them."""
    return [parse_record(record, record["id"]) for record in records]


def computed(module, **fields):
    """A record with the metrics that the job of a kind without data computes, once."""
    kind = module.KIND.run.__name__
    frozen = Spec.of({**KEYS, "kind": kind, **fields}, kind)
    if frozen.id not in COMPUTED:
        spec = module.RECORD.spec.model_validate(frozen.fields)
        outcome = module.KIND.run(SimpleNamespace(fields=spec, spec=frozen))
        COMPUTED[frozen.id] = as_json(sample_record(spec, outcome.metrics))
    return copy.deepcopy(COMPUTED[frozen.id])


def coefficients_record(alphas=(0.5, 1.0, 2.0, 3.0), betas=BETAS):
    return computed(coefficients_job, alphas=list(alphas), betas=list(betas))


def kappa_record(base=BASE, axes=AXES):
    axes = {axis: list(values) for axis, values in axes.items()}
    return computed(kappa_job, base=base, axes=axes)


def simulation_record(**fields):
    given = {"laws": ["signs", "rare-signs"], "nus": [0.5, 20.0], "ys": [0.02, 0.1, 0.3]}
    return computed(simulation_job, **given, m=20, draws=10_000, **fields)


def agreement_record(repetitions=2, draws=1000):
    rows = [
        {"what": what, "method": method, "repetition": repetition, "draws": draws}
        | {"errors": round(risk * draws), "risk": risk}
        for what, risk in (("prior", 0.7), ("posterior", 0.2))
        for method in ("reparametrisation", "sampling")
        for repetition in range(repetitions)
    ]
    fields = {**FIELDS, "priors": spec_priors(PRIORS[2:3]), "taus": [TAUS[0]], "draws": draws}
    fields |= {"repetitions": repetitions, "data": data_of("digits")}
    metrics = {**SIZES, "diverged": None, "rows": rows}
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
    metrics = {**SIZES, "rows": copy.deepcopy(rows)}
    return written(certificates, metrics, f"certificates-{name}", **fields)


@functools.cache
def certificate_row(prior, tau, run, form):
    """A row whose certificates lie above its risks."""
    (entry,), kind = spec_priors([dict(prior)]), dict(prior)["prior"]
    made = (DpSgdPrior if "E" in entry else IndependentPrior).model_validate(entry)
    gain = 0.05 * epochs_of(made) ** 0.5 if kind == "dp-sgd" else 0.0
    errors_prior = round(DRAWS * (0.8 - 2 * gain + 0.002 * run))
    errors = round(DRAWS * (0.25 - gain - tau + 0.002 * run))
    risk_prior, risk = errors_prior / DRAWS, errors / DRAWS
    return {
        **facts_of_prior(made, N_TRAIN),
        "tau": tau,
        "run": run,
        **{"universe_weight": 1e-20, "universe_nats": 20 * math.log(10), "universe_kappa": 0.0},
        **{f"kappa_{form}": value for form, value in kappas_of(made, N_TRAIN, LEVEL).items()},
        "standing": standing(form, epochs_of(made)),
        **{"risk_prior": risk_prior, "risk_posterior": risk, "kl": 400.0 + 10 * run},
        **{"errors_prior": errors_prior, "errors_posterior": errors},
        "certificate_prior": risk_prior + 0.02,
        **{f"certificate_{name}": risk + above for name, above in ABOVE.items()},
        **{"diverged": None, "skipped_records": 0, "test_draws": N_TEST},
        **{"test_error": risk + 0.01, "prior_test_error": risk_prior + 0.001},
    }


RECORDS = {
    "maxinf_coefficients": lambda: [coefficients_record()],
    "maxinf_kappa": lambda: [kappa_record(), simulation_record()],
    "maxinf_certificates": lambda: [certificates_record(), agreement_record()],
    "maxinf_grid": lambda: [certificates_record()],
}


def show(name, *records):
    """What a figure or table shows, by default of its sample records."""
    return maker(name)(typed(records or RECORDS[name]()), {})
