import json
import math
import re
from pathlib import Path

import pytest

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, real
from dpatlas.catalogue import catalogue, evaluate, modules
from dpatlas.errors import InputError
from dpatlas_workflow.registry import all_papers

VECTORS = json.loads(
    (Path(__file__).parents[1] / "reference" / "vectors.json").read_text(encoding="utf-8")
)
STEP = {"eta": 0.1, "sigma2": 0.5, "delta_norm2": 2.0}


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS if vector["bound"] in catalogue()],
    ids=lambda vector: f"{vector['bound']}-{VECTORS.index(vector)}",
)
def test_reference_value_is_reproduced(vector):
    result = evaluate(vector["bound"], vector["inputs"])
    assert result["value"] == pytest.approx(vector["expected"], rel=vector["rel_tol"], abs=0)
    assert result["source"] == vector["source"]


def test_every_reference_bound_of_a_paper_is_in_the_catalogue():
    wanted = {each["bound"] for each in VECTORS if each["source"].split()[0] in all_papers()}
    assert wanted and wanted <= set(catalogue())


def test_modules_of_a_paper_stand_together_and_shared_ones_last():
    *of_papers, last = modules()
    assert last == "dpatlas.accounting.gaussian_dp"
    keys = [name.split(".")[2] for name in of_papers]
    assert set(keys) == set(all_papers()) and keys == sorted(keys)


def test_result_states_the_defaults_that_were_used():
    assert evaluate("kl-step", STEP) == {
        "bound": "kl-step",
        "inputs": {**STEP, "convention": "exact"},
        "value": pytest.approx(0.1),
        "source": "kl_privacy Eq. 77",
    }


def test_whole_floats_pass_for_whole_numbers_and_others_do_not():
    inputs = {"B": 1.0, "T": 1.0, "sigma2": 1.0}
    assert evaluate("kl-linearized", {**inputs, "n": 1e2})["inputs"]["n"] == 100
    with pytest.raises(InputError, match=r"kl-linearized: n: found 2\.5; allowed: a whole number"):
        evaluate("kl-linearized", {**inputs, "n": 2.5})


@pytest.mark.parametrize("bad", ["small", None, [1.0], math.nan, -math.inf], ids=str)
def test_no_bound_takes_a_text_a_list_or_what_is_no_number_for_any_of_its_inputs(bad):
    known = {vector["bound"]: vector["inputs"] for vector in VECTORS}
    for name in known.keys() & set(catalogue()):
        for key in known[name]:
            with pytest.raises(InputError, match=f"^{name}: {key}: found {re.escape(repr(bad))}"):
                evaluate(name, {**known[name], key: bad})


@pytest.mark.parametrize(
    "inputs, complaint",
    [
        ({**STEP, "sigma2": 0}, "kl-step: sigma2: found 0; allowed: a number > 0"),
        ({**STEP, "sigma2": True}, "kl-step: sigma2: found True"),
        ({**STEP, "sigma2": 10**400}, "kl-step: sigma2: found a whole number of over 300 digits"),
        ({**STEP, "convention": 2}, "kl-step: convention: found 2; allowed: one of exact, paper"),
        ({**STEP, "convention": "Exact"}, "found 'Exact'; allowed: one of exact, paper"),
        ({**STEP, "sigma": 1}, "kl-step: argument: found 'sigma'; allowed: eta, sigma2, delta_"),
        ({"eta": 1, "sigma2": 1}, "kl-step: delta_norm2: found nothing; allowed: a number >= 0"),
        ([1, 2], r"kl-step: inputs: found \[1, 2\]; allowed: a mapping of eta"),
    ],
)
def test_bad_inputs_are_refused_by_name(inputs, complaint):
    with pytest.raises(InputError, match=complaint):
        evaluate("kl-step", inputs)


GAP = dict(relation="remove", g_norm2=1.0, gbar_norm2=1.0, inner=0.0)
NETWORK = dict(d=3, m=3, L=3, o=1)
CLAIM = dict(alpha=2, L=1, lam=0.1, beta=2.0, n=100, sigma2=0.1, eta=0.1, K=5)
GIVEN = dict(L=1, lam=0.1, beta=1, n=10, m=2, sigma2=0.1, eta=0.5, K=3, delta=1e-5)
FULL = dict(eta=2.0, lam=0.1, beta=1.0, sensitivity=0.1, sigma2=0.1, K=5)
EXACT = dict(n=100, m=1, sigma2=1e-9, eta=0.5, K=1, radius=1.0, alpha=2.0, x_prime=0)
SIGMA2 = dict(eps=1e-3, delta=1e-5, L=1, lam=0.1, n=10, sum_eta=1)
UTILITY = dict(eps=24, delta=1e-5, L=1, lam=0.1, beta=1, n=10, d=3, xi2=1)
LP = {"t": 1.0, "h": 3, "head_var": 0.4, "b_norm2": 0.2, "sigma2": 0.05}
STEPS = dict(eps=1, delta=1e-5, beta=1, lam=0.1, n=10, d=3)
FFT = dict(t=1, h=3, head_var=2.0, y_norm2=1.0, xty_norm=1.0, sigma2=0.1, d=4)
FFT_BOUND, FAILS = "fft-linear-loss-bound", "found inputs with which the formula fails"
NO_NOISE = {"h": 1, "head_var": 1.0, "sigma2": 0.0}
DP_SGD = dict(m=250, zeta=0.1, sigma=2.0, T=4, E=1, beta=0.01)
UNION = dict(K1=100, K2=7, delta=0.05, delta_mc=0.0125, beta=0.025)
RISK = dict(risk=0.1, kl=10.0, kappa=2.0, n=1000, **UNION)
COUNTED = dict(risk=0.12345, draws=1000, delta_mc=0.1, interval="clopper-pearson")
NOISE = {"d": 64, "n": 20_000, "q": 2}
LEVEL = {"eps": 2.0, "delta": 1e-5}


@pytest.mark.parametrize(
    "name, inputs, complaint",
    [
        ("neighbour-gap", {**GAP, "n": 1}, "n: found 1; allowed: a whole number >= 2"),
        ("gradient-norm-constant", {**NETWORK, "init": "glorot"}, "init: found 'glorot'"),
        ("dp-sgld-claimed-rdp-constant", {**CLAIM, "eta": 0.5}, "eta: found 0.5; .*< 1/beta = 0.5"),
        ("dp-sgld-claimed-rdp-constant", {**CLAIM, "lam": 3}, "lam: found 3; .*<= beta = 2"),
        ("dp-sgld-conditional-epsilon", {**GIVEN, "eta": 1}, "eta: found 1; .*< 1/beta = 1"),
        ("dp-sgld-conditional-epsilon", {**GIVEN, "m": 0}, "m: found 0; .*a whole number >= 1"),
        ("dp-sgld-conditional-epsilon", {**GIVEN, "m": 11}, "m: found 11; .*<= n = 10"),
        ("noisy-gd-gdp", FULL, "eta: found 2.0; allowed: .*< 2/beta = 2"),
        ("dp-sgld-exact-renyi", EXACT, "sigma2: found 1e-09; .*>= 0.0009"),
        ("dp-sgld-steps", STEPS, "d: found 3; allowed: a whole number < 2.17"),
        ("dp-sgld-claimed-sigma2", SIGMA2, "eps: found 0.001; allowed: .*= 0.00576"),
        ("dp-sgld-utility", UTILITY, r"eps: found 24; allowed: .*2 log\(1/delta\) = 23.0"),
        ("lp-head-norm", {**LP, "t": -1}, "t: found -1; allowed: a number >= 0"),
        ("lp-loss", {**LP, "y_norm2": 1.0, "b_norm2": 1.5}, "b_norm2: found 1.5; .*<= y_norm2 = 1"),
        ("least-lp-loss", {"y_norm2": 1, "b_norm2": 2}, "b_norm2: found 2"),
        ("lp-relu-loss-bound", {"L0": 0, "A": 1, "B": 1, "T": 1}, "L0: found 0"),
        (FFT_BOUND, {**FFT, "sigma2": 2.0}, rf"{FAILS} \(A: found -9.14214; allowed: more"),
        (FFT_BOUND, {**FFT, **NO_NOISE}, rf"{FAILS} \(A: found 0; allowed: more"),
        ("kappa", {**DP_SGD, "batches": "poisson"}, "batches: found 'poisson'; .* one of disj"),
        ("kappa-repaired", {**DP_SGD, "batches": "poisson"}, "batches: found 'poisson'"),
        ("kappa-explicit", {**DP_SGD, "beta": 0}, "beta: found 0; allowed: a number > 0 and < 1"),
        ("kappa-repaired", {**DP_SGD, "E": 1001}, "E: found 1001; .* <= 1000"),
        ("kappa-per-record", {**DP_SGD, "n": 999}, r"T: found 4; .*<= floor\(n/m\) = 3"),
        ("batch-moment-exponent", {"y": 0.5}, "y: found 0.5; allowed: a number >= 0 and < 0.5"),
        ("leading-term-ratio", {"alpha": 5, "beta": 0.9}, r"alpha: found 5; .*<= .* = 2\.5"),
        ("certificate", {**RISK, "beta": 0.0375}, r"delta_mc \+ beta: found 0.05; .*< delta"),
        ("certificate-monte-carlo", {**RISK, "draws": 1000, "beta": 0.04}, r"found 0.0525"),
        ("certificate-failure", dict(delta=0.1, delta_mc=0.1), r"delta_mc \+ beta: found 0.1"),
        ("certificate", {**RISK, "kappa": -1}, "kappa: found -1; .*a number or infinity >= 0"),
        ("monte-carlo-risk", COUNTED, "risk: found 0.12345; allowed: a multiple of 1/draws"),
        ("feature-noise-assumption4", {**NOISE, "d": 1}, "d: found 1; allowed: .* >= 2"),
        ("feature-layer2-mu", {**LEVEL, "eps": 0}, "eps: found 0; allowed: a number > 0"),
        ("feature-layer2-delta", {**LEVEL, "relation": "both"}, "one of add_remove, replace_one"),
        ("feature-eps-n", {"n": 64, "d": 64}, "n: found 64; allowed: a whole number > d = 64"),
    ],
)
def test_what_a_theorem_leaves_out_is_refused_in_one_line_with_what_is_allowed(
    name, inputs, complaint
):
    with pytest.raises(InputError, match=f"^{name}: .*{complaint}") as caught:
        evaluate(name, inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [None, 3, ["kl-step"], "", "KL-STEP", "kl-steps"])
def test_unknown_bound_is_answered_with_known_names(name):
    with pytest.raises(InputError, match=r"allowed: .*kl-"):
        evaluate(name, STEP)


def test_inputs_too_large_for_the_formula_are_bad_input():
    with pytest.raises(InputError, match="kl-linearized: found inputs"):
        evaluate("kl-linearized", {"B": 1.0, "T": 1.0, "sigma2": 1.0, "n": 10**200})


def test_bound_without_declared_domains_cannot_be_declared():
    with pytest.raises(TypeError, match="y"):

        @bound("half-guarded", source="nowhere")
        @checked(x=real())
        def half_guarded(x, y):
            return x + y
