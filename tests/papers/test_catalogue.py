import json
import math
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
    assert keys == sorted(keys) and set(keys) == set(all_papers())


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


@pytest.mark.parametrize(
    "inputs, complaint",
    [
        ({**STEP, "sigma2": 0}, "kl-step: sigma2: found 0; allowed: a number > 0"),
        ({**STEP, "sigma2": "small"}, "kl-step: sigma2: found 'small'; allowed: a number > 0"),
        ({**STEP, "sigma2": True}, "kl-step: sigma2: found True"),
        ({**STEP, "sigma2": None}, "kl-step: sigma2: found None"),
        ({**STEP, "sigma2": [1.0]}, r"kl-step: sigma2: found \[1.0\]"),
        ({**STEP, "sigma2": math.nan}, "kl-step: sigma2: found nan"),
        ({**STEP, "sigma2": math.inf}, "kl-step: sigma2: found inf"),
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
