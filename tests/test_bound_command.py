import json
import subprocess
import sys
from pathlib import Path

import pytest

from dpatlas.catalogue import catalogue
from dpatlas.commands.bound import main

VECTORS = Path(__file__).parent / "reference" / "vectors.json"
EXACT = ["dp-sgld-exact-renyi", "n=3", "m=2", "eta=0.73", "K=7", "x_prime=1"]
STEP = ["kl-step", "eta=1e-2", "sigma2=1e-4", "delta_norm2=2.5e-6"]


def strict(text):
    """JSON without the constants that only Python reads."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_batch_of_reference_values_agrees_entry_by_entry():
    """Extra keys of the entries are ignored, bounds of papers to come are errors."""
    done = subprocess.run(
        [sys.executable, "-m", "dpatlas", "bound", "--batch", VECTORS],
        capture_output=True,
        text=True,
        check=True,
    )
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    results = strict(done.stdout)
    assert [result["bound"] for result in results] == [vector["bound"] for vector in vectors]
    for vector, result in zip(vectors, results, strict=True):
        if vector["bound"] not in catalogue():
            assert "value" not in result
            continue
        assert result["value"] == pytest.approx(vector["expected"], rel=vector["rel_tol"], abs=0)
        assert result["source"] == vector["source"]
        assert vector["inputs"].items() <= result["inputs"].items()
    assert any(vector["source"].startswith("kl_privacy") for vector in vectors)


def test_one_bound_is_one_json_object(result_of):
    code, out, err = result_of(main, *STEP, "convention=paper")
    assert (code, err) == (0, "")
    assert strict(out) == {
        "bound": "kl-step",
        "inputs": {"eta": 0.01, "sigma2": 1e-4, "delta_norm2": 2.5e-6, "convention": "paper"},
        "value": pytest.approx(1.25e-4),
        "source": "kl_privacy Eq. 77",
    }


def test_json_may_be_asked_for_where_all_is_json(result_of, tmp_path):
    batch = tmp_path / "batch.json"
    batch.write_text('[{"bound": "kl-step", "inputs": {}}]')
    for arguments in (STEP, ["--batch", str(batch)]):
        assert result_of(main, *arguments, "--json") == result_of(main, *arguments)
        assert strict(result_of(main, *arguments, "--json")[1])


LARGE = 10**20


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (
            f"dp-sgld-exact-renyi n=100 m=1 sigma2={LARGE} eta=0.5 K=1 radius=1 alpha=2 x_prime=0",
            7.482903185973555e-14,
        ),
        (f"two-record-distortion-probability head_var=5 spread=2 ratio={LARGE}", 0.5),
        ("kl-drift-integral T=2000 beta=1 c=1 n=3 gdiff0=1 g0=1 sigma2=1 rank=2", "inf"),
    ],
)
def test_values_of_large_numbers_are_strict_json(result_of, words, value):
    code, out, _ = result_of(main, *words.split())
    found = strict(out)
    assert code == 0 and found["value"] == (value if value == "inf" else pytest.approx(value))
    assert value == "inf" or LARGE in found["inputs"].values()


@pytest.mark.parametrize(
    "arguments, named",
    [
        (f"dp-sgld-radius feature_norm=3 lam=0.1 classes={LARGE}".split(), "dp-sgld-radius: "),
        (f"feature-noise-assumption4 d=100 n=100 q=1 eps_b={LARGE}".split(), "noise-assumption4: "),
        # Refused by a formula within, in words of arguments that this bound does not have.
        (
            ["dp-sgld-sigma2", "eps=1e23", "delta=1e-5", "L=1", "lam=1", "n=100"],
            "dp-sgld-sigma2: found inputs with which the formula fails (alpha: found",
        ),
        # An exact power of 2 * 10^9 digits.
        (
            ["feature-printed-mu", "d=100", "n=2", "q=100", "p=1", "eps_b=1000000000"],
            "feature-printed-mu: found inputs with which the formula fails (",
        ),
        (["kl-stp", "eta=1"], "'kl-stp'; allowed: kl-step"),
        (STEP[:3], "delta_norm2: found nothing"),
        ([*STEP, "gamma=1"], "'gamma'; allowed: eta, sigma2"),
        ([*STEP, "eta=2"], "eta: found 0.01 and 2"),
        ([*STEP, "convention"], "'convention'; allowed: key=value"),
        (["kl-step", "eta=x", *STEP[2:]], "eta: found 'x'; allowed: a number > 0"),
        (["kl-step", "eta=nan", *STEP[2:]], "eta: found nan"),
        (["kl-step", "eta=1_0", *STEP[2:]], "eta: found '1_0'; allowed: a number > 0"),
        (["kl-step", "eta=\u0661", *STEP[2:]], "eta: found '\u0661'; allowed: a number > 0"),
        ([], "not exactly one of NAME, --list and --batch"),
        ([*STEP, "--list"], "not exactly one of"),
        (["--batch", "missing.json"], "missing.json: found No such file"),
        # numpy finds arrays that no memory holds.
        ([*EXACT, "sigma2=1e-293", "radius=1e-186", "alpha=23"], "with which the formula fails"),
    ],
)
def test_bad_arguments_give_exit_code_2_and_one_line(refusal_of, arguments, named):
    assert named in refusal_of(main, *arguments)


def test_overflow_gives_one_line_in_words_of_the_bound():
    """In a process of its own, in which numpy would warn in further lines."""
    inputs = [*EXACT, "sigma2=.02", "radius=1", "alpha=1e308"]
    words = [sys.executable, "-m", "dpatlas", "bound", *inputs]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("dpatlas: dp-sgld-exact-renyi: found")
    assert "numbers fail; allowed: smaller or larger ones of n, m, sigma2" in ended.stderr


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"3"])
def test_batch_file_that_is_no_json_list_gives_exit_code_2_and_one_line(
    refusal_of, tmp_path, content
):
    path = tmp_path / "batch.json"
    path.write_bytes(content)
    assert "batch.json" in refusal_of(main, "--batch", path)


def test_bad_entries_of_a_batch_do_not_spoil_the_others(result_of, tmp_path):
    good = {"bound": "excess-risk-time", "inputs": {"B": 2, "R": 4, "n": 1, "eps": 1}}
    step = {"eta": 1, "sigma2": 1, "delta_norm2": 1}
    bad = [
        7,
        *({"bound": "kl-step", **more} for more in ({}, {"inputs": [1]})),
        *({"bound": name, "inputs": {}} for name in ("kl-stop", "long")),
        {"bound": "nested", "inputs": "nested"},
        *(
            {"bound": "kl-step", "inputs": {**step, "sigma2": value}}
            for value in (float("nan"), 10**400, "a\nb", "nested", "long")
        ),
    ]
    path = tmp_path / "batch.json"
    text = json.dumps([good, *bad, {**good, "note": "last"}])
    # What json.dumps cannot write.
    text = text.replace('"nested"', "[" * 800 + "]" * 800).replace('"long"', "9" * 5000)
    path.write_text(text, encoding="utf-8")
    code, out, err = result_of(main, "--batch", path)
    results = strict(out)
    assert (code, err, len(results)) == (0, "", len(bad) + 2)
    for result in (results[0], results[-1]):
        assert set(result) == {"bound", "inputs", "value", "source"}
        assert result["value"] == pytest.approx(1.0)
    for result in results[1:-1]:
        assert set(result) == {"bound", "inputs", "error", "source"}
        assert result["error"].splitlines() == [result["error"]]


def test_a_key_twice_is_the_error_of_its_entry(result_of, tmp_path):
    path = tmp_path / "batch.json"
    inputs = '"B": 2, "R": 4, "n": 1, "eps": 1'
    entries = [
        f'{{"bound": "excess-risk-time", "inputs": {{{inputs}, "n": 2}}}}',
        f'{{"bound": "x", "bound": "excess-risk-time", "inputs": {{{inputs}}}}}',
        f'{{"bound": "excess-risk-time", "inputs": {{{inputs}}}}}',
    ]
    path.write_text(f"[{', '.join(entries)}]")
    code, out, _ = result_of(main, "--batch", path)
    found = json.loads(out)
    assert code == 0 and found[2]["value"] > 0
    assert found[0]["error"] == "argument n: found twice; allowed: once"
    assert found[1]["error"] == "bound: found twice; allowed: once"


def test_list_names_every_bound_with_its_arguments(result_of):
    code, out, _ = result_of(main, "--list")
    listed = strict(result_of(main, "--list", "--json")[1])
    assert code == 0
    assert {entry["bound"]: [each["name"] for each in entry["arguments"]] for entry in listed} == {
        name: [*entry.arguments] for name, entry in catalogue().items()
    }
    for name, entry in catalogue().items():
        block = out[out.index(f"{name}   [") :].partition("]\n")[2]
        assert all(argument.describe() in block for argument in entry.arguments.values())
