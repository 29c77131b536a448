"""Verdicts and exit codes, bad input of every argument, files, ledgers, the printed gallery."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import epsilon_gallery
import numpy as np
import pytest

from dpatlas.accounting.guarantees import Phase, composition, guarantee
from dpatlas.accounting.ledger import Ran, ledger, tuning_of
from dpatlas.accounting.samplers import FullBatch, Poisson, Shuffled
from dpatlas.base.rounding import upward
from dpatlas.commands import bound
from dpatlas.commands.epsilon import main
from dpatlas.epsilon.check import _verdict, check_epsilon
from dpatlas.epsilon.claim import read_claim
from dpatlas.epsilon.valid import Reading
from dpatlas.errors import InputError, run_command

PROJECT = Path(__file__).parents[2]
GALLERY = (PROJECT / "docs" / "epsilon.md").read_text(encoding="utf-8")
WORDS = "--sampler poisson --n 1050 --batch 100 --noise 2 --steps 50 --delta 1e-5"
FULL = "--sampler full --noise 3 --steps 20 --delta 1e-5"
FULL_TARGET = "--sampler full --steps 20 --delta 1e-5"
SMALL = "--sampler full --steps 20 --delta 1e-12"
CYCLIC = WORDS.replace("poisson", "cyclic")
SETTINGS = {"sampler": "poisson", "n": 1050, "batch": 100, "noise": 2, "steps": 50, "delta": 1e-5}


def run(capsys, line):
    """Exit code, standard output and standard error."""
    code = run_command(main, line if isinstance(line, list) else shlex.split(line))
    return code, *capsys.readouterr()


def strict(text):
    """The content of JSON without NaN or Infinity."""
    return json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("line", "code", "verdict"),
    [
        (WORDS, 0, None),
        (f"{WORDS} --claimed 9", 0, "guaranteed"),
        (f"{WORDS} --claimed 9 --relation replace-one", 0, "guaranteed"),
        (f"{WORDS} --claimed 1", 1, "refuted"),
        (f"{WORDS} --claimed 1 --released last-iterate", 1, "not guaranteed"),
        (f"{FULL} --claimed 1", 1, "refuted"),
        (f"{FULL} --claimed 1 --released last-iterate", 1, "not guaranteed"),
        (f"{WORDS} --claimed 1".replace("poisson", "shuffle"), 1, "not guaranteed"),
        (f"{WORDS} --claimed 1".replace("poisson", "fixed"), 1, "not guaranteed"),
        (f"{CYCLIC} --claimed 1 --relation add_remove", 1, "not guaranteed"),
        # Under one relation guaranteed, under the other refuted.
        (f"{WORDS} --claimed 2 --relation replace_one", 1, "refuted"),
        (f"{WORDS} --claimed 2", 0, "guaranteed"),
        (f"{WORDS} --trials 9 --claimed 4", 1, "not guaranteed"),
        (f"{WORDS} --runs 9 --claimed 4", 1, "refuted"),
    ],
)
def test_verdicts_and_exit_codes(capsys, line, code, verdict):
    assert (found := run(capsys, f"{line} --no-slips --json"))[0] == code
    assert strict(found[1])["verdict"] == verdict
    spoken = run(capsys, f"{line} --no-slips")
    assert spoken[0] == code and (verdict is None or verdict.upper() in spoken[1])
    assert max(map(len, spoken[1].splitlines())) <= 100


def test_numbers_in_words_are_rounded_to_the_safe_side():
    supported, refuted = (
        check_epsilon(**SETTINGS, claimed=claimed, explain=False) for claimed in ("9", "1")
    )
    said = " ".join(str(supported).split())
    assert float(re.search(r"PLD gives (\S+)", said)[1]) >= supported.tightest.epsilon
    limits = [float(found) for found in re.findall(r"at least (\d\S+)", said)]
    assert len(limits) == 2
    assert limits[0] <= supported.least["add_remove"] < supported.least["replace_one"] >= limits[1]
    # Under every relation: so much is reached also by the one that costs least.
    reached = float(re.search(r"reaches epsilon (\S+)", " ".join(str(refuted).split()))[1])
    assert 1 < reached <= min(refuted.least.values())
    between = " ".join(str(check_epsilon(**SETTINGS, claimed="2", explain=False)).split())
    assert "under add_remove and zero_out" in between and "not under replace_one" in between


def test_between_both_sides_nothing_is_said():
    here = check_epsilon(**SETTINGS)
    between = (here.least["add_remove"] + here.tightest.epsilon) / 2
    report = check_epsilon(**SETTINGS, claimed=f"{between:.9f}", explain=False)
    assert report.verdict == "not guaranteed"
    # Of a release that reaches 2.852, epsilon 2.85 may be said, in rounded numbers.
    claim = read_claim({**SETTINGS, "relation": "add_remove", "claimed": "2.85"})
    proved = (Reading("add_remove", "pld", 2.86, ""),)
    assert _verdict(claim, proved, {"add_remove": 2.852})[0] == "not guaranteed"
    assert _verdict(claim, proved, {"add_remove": 2.856})[0] == "refuted"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", "--delta: found nothing; allowed: a value"),
        (f"{WORDS} --sample-rate 0.1", "--sample-rate: found batch as well; allowed: poisson"),
        (f"{WORDS} --mechanism tree", "--sampler: found poisson with tree; allowed: shuffled or"),
        (f"{WORDS} --largest-batch 200", "--largest-batch: found 200; allowed: a number with"),
        ("missing.yaml", "missing.yaml: found No such file"),
        ("one.yaml --batch two.yaml", "--batch two.yaml: found one.yaml as well"),
        (WORDS.replace("poisson", "poison"), "--sampler: found 'poison' (text); allowed: one of"),
        (WORDS.replace("1050", "many"), "--n: found 'many' (text); allowed: a whole number"),
        (
            WORDS.replace("batch 100", "batch 1051"),
            "found 1051; allowed: a whole number >= 1 and <=",
        ),
        (WORDS.replace("batch 100", "batch 2.5"), "--batch: found 2.5; allowed: a whole number"),
        (WORDS.replace("noise 2", "noise 0"), "--noise: found 0; allowed: a number; >= 0.001"),
        (WORDS.replace("--steps 50 ", ""), "--steps: found nothing; allowed: steps or epochs"),
        (WORDS.replace("1e-5", "1"), "--delta: found 1; allowed: a number; >= 1e-50; < 1"),
        (f"{WORDS} --epochs 3", "--steps: found epochs as well; allowed: steps or epochs"),
        (f"{WORDS} --claimed \u0663", "--claimed: found '\u0663'; allowed: a number >= 0"),
        (f"{WORDS} --claimed 1_0", "--claimed: found '1_0'; allowed: a number >= 0"),
        (f"{WORDS} --claimed 1e-400", "--claimed: found '1e-400'; allowed: a number >= 0"),
        (f"{WORDS} --target 3", "--target: found --noise as well; allowed: one of the two"),
        (f"{SMALL} --target 1e-9", "--target: found 1e-09 at delta 1e-12; allowed: at least"),
        (f"{FULL_TARGET} --target 2 --claimed 2", "--target: found --claimed as well"),
        (f"{FULL_TARGET} --target 3 --grid noise=abc,1", "--grid.0.noise: found 'abc' (text)"),
        (f"{WORDS} --trials 3 --grid noise=1,2", "--trials: found --grid as well"),
        (f"{WORDS} --grid noise", "--grid: found 'noise'; allowed: KEY=VALUE,VALUE"),
        (f"{WORDS} --grid n=900", "--grid: found other numbers of records"),
        (f"{WORDS} --drop-last", "--drop-last: found poisson batches; allowed: shuffled or cyclic"),
        (f"{FULL} --n 10 --batch 3", "--batch: found 3; allowed: nothing, or n, with full batches"),
        ("--batch missing.yaml --n 5", "--batch missing.yaml: found --n as well"),
        ("--ledgers one.json", "--ledgers one.json: found No such file"),
        ("--ledgers a.json ./a.json", "--ledgers: found the same file twice"),
    ],
)
def test_bad_arguments_give_exit_code_2_and_one_line(refusal_of, line, named):
    assert named in refusal_of(main, *shlex.split(line))


CLAIM = "sampler: poisson, n: 1050, batch: 100, noise: 2, steps: 50, delta: 1e-5"
FULL_JSON = '"sampler": "full", "noise": 1, "steps": 3, "delta": 1e-5'
TARGET = "{sampler: full, steps: 5, delta: 1e-5, relation: add_remove"


# The content, or what follows CLAIM in a block of keys.
@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "no settings"),
        ("{", "allowed: YAML 1.2"),
        ("\x80", "found bytes that are no text"),
        ("noise: 1\nnoise: 2", 'line 2: found duplicate key "noise" with value "2"'),
        (", color: red", "color: found a key that does not exist; allowed: sampler, n, batch"),
        (", dleta: 1", "source (did you mean delta?)"),
        (f"- {{{CLAIM}}}\n- {{{CLAIM}, runs: x}}", "claim 2, runs: found 'x'"),
        (", phases: 3", "phases: found 3; allowed: a list; at least 1 entries"),
        (", phases: [3]", "phases.0: found '3' (text); allowed: a block of keys"),
        (", phases: [{n: 1050}, {n: 900}]", "phases: found n of 1050 and 900"),
        (", trials: some", "trials: found 'some' (text); allowed: a whole number; >= 1; <= 100000"),
        (", grid: {size: [1, 2]}", "grid.0.size: found a key that does not exist"),
        ("? [a, b]\n: 1", "found ('a', 'b') (tuple) as a key; allowed: text"),
        ('{\n\t"noise": 1,\n\t"noise": 2}', "found noise twice; allowed: once"),
        (f'{{"name": "\\ud800", {FULL_JSON}}}', "name: found '\\ud800' (text); allowed: A name"),
        (f"{TARGET}, target: 3, phases: [{{noise: 2}}]}}", "target: found a noise for every phase"),
    ],
)
def test_bad_files_give_exit_code_2_and_one_line(refusal_of, tmp_path, content, named):
    path = tmp_path / "claims.yaml"
    content = f"{{{CLAIM}{content}}}" if content.startswith(",") else content
    path.write_bytes(content.encode("latin-1"))
    error = refusal_of(main, "--batch", path)
    assert named in error and "claims.yaml" in error


@pytest.mark.parametrize("wide", ["[" + ", ".join(["*{}"] * 10) + "]", "{noise: *{}, n: *{}}"])
def test_aliases_of_aliases_are_counted_before_they_are_copied(refusal_of, tmp_path, wide):
    levels = [f"a{n}: &a{n} {wide.replace('{}', f'a{n - 1}')}" for n in range(1, 40)]
    path = tmp_path / "claims.yaml"
    path.write_text("\n".join(["a0: &a0 [x]", *levels]))
    error = refusal_of(main, "--batch", path)
    assert "found more levels, or values with every use of an alias" in error
    assert "allowed: at most 40 levels and 1,000,000 values" in error


def test_a_file_of_claims(capsys, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "- {name: full, sampler: full, noise: 3, steps: 20, delta: 1e-5, claimed: 9.0}\n"
        "- name: two phases\n"
        "  n: 1050\n"
        "  phases: [{sampler: poisson, batch: 100, noise: 2, steps: 50},\n"
        "           {sampler: full, noise: 8, epochs: 2}]\n"
        "  trials: [{noise: 4}]\n"
        "  delta: 1e-5\n"
        "  claimed: 1.20\n"
    )
    # By its option, or in its place.
    code, out, err = run(capsys, ["--batch", str(path), "--json"])
    first, second = strict(out)
    assert (code, first["verdict"], second["verdict"]) == (1, "guaranteed", "refuted")
    assert "claims: 2/2" in err
    assert [phase["steps"] for phase in second["phases"]] == [50, 2]
    assert second["other_trials"] == 1
    code, out, _ = run(capsys, [str(path), "--no-slips"])
    assert code == 1 and "claimed 1.20: REFUTED" in out
    assert out.endswith("2 claims: 1 guaranteed, 1 refuted\n")
    assert max(map(len, out.splitlines())) <= 100


def test_json_may_be_indented_by_tabs_and_booleans_written_as_yaml_has_them(capsys, tmp_path):
    path = tmp_path / "claim.json"
    path.write_text(
        '{\n\t"sampler": "shuffled",\n\t"n": 100, "batch": 30, "drop_last": true,'
        '\n\t"noise": 3, "epochs": 2, "delta": 1e-5, "claimed": 1.20,'
        '\n\t"relation": null, "name": null\n}'
    )
    code, out, _ = run(capsys, ["--batch", str(path), "--no-slips"])
    assert code == 1 and "claimed 1.20: " in out
    # Editors put a byte order mark before it.
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert run(capsys, ["--batch", str(path), "--no-slips"])[:2] == (code, out)
    for word in ("True", "yes", "TRUE"):
        path.write_text(
            f"{{sampler: shuffled, n: 100, batch: 30, drop_last: {word}, noise: 3, epochs: 2, "
            "delta: 1e-5}"
        )
        content = strict(run(capsys, ["--batch", str(path), "--json"])[1])
        assert content[0]["phases"][0]["drop_last"] is True


def test_a_name_of_any_characters_is_shown_in_a_line_by_any_terminal(tmp_path):
    claim = {"sampler": "full", "noise": 1, "steps": 1, "delta": 1e-5, "claimed": 5}
    path = tmp_path / "claims.json"
    path.write_text(json.dumps({**claim, "name": "\u03b5\x1b[2J\nclaimed 1: GUARANTEED"}))
    words = [sys.executable, "-m", "dpatlas", "epsilon", "--batch", str(path), "--no-slips"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "\\u03b5\\x1b[2J claimed 1: GUARANTEED"


def test_json_is_strict_and_says_everything(capsys):
    code, out, _ = run(capsys, f"{FULL} --claimed 2.2 --json".replace("--noise 3", "--noise 1e-3"))
    content = strict(out)
    assert code == 1 and content["tightest"]["epsilon"] > 1e7
    assert set(content) == {
        *("name", "source", "phases", "parts", "delta", "runs", "other_trials", "released"),
        *("relation", "claimed", "target", "verdict", "by_rounding", "readings", "tightest"),
        *("least", "supported_by", "slips", "noise", "assumptions", "warnings"),
    }
    assert set(content["readings"][0]) == {"relation", "accountant", "epsilon", "event", "warning"}
    assert set(content["slips"]) == {"hits", "tried", "expected_by_chance"}


def test_a_target_gives_noise_that_meets_it(capsys):
    code, out, _ = run(capsys, f"{FULL} --json".replace("--noise 3", "--target 2"))
    noises = {each["relation"]: each["noise"] for each in strict(out)["noise"]}
    assert code == 0 and noises["replace_one"] == pytest.approx(2 * noises["add_remove"], rel=1e-3)
    met = guarantee([Phase(FullBatch(1), noises["add_remove"], 20)], 1e-5, "add_remove").epsilon
    assert met <= 2 * 1.001
    line = CYCLIC.replace("--noise 2", "--target 2") + " --relation add_remove"
    code, out, _ = run(capsys, line)
    assert code == 1 and "no accounting covers these words" in out


@pytest.mark.parametrize(
    ("stated", "alone"),
    [
        ("trials: [{noise: 0.5}]", {"noise": 0.5}),
        ("grid: {noise: [0.5]}", {"noise": 0.5}),
        ("phases: [{noise: 0.5}, {epochs: 2}]", {"noise": 0.5}),
    ],
)
def test_a_target_leaves_noise_that_is_stated_as_it_is(capsys, tmp_path, stated, alone):
    settings = {"sampler": "full", "steps": 5, "delta": 1e-5}
    spent = check_epsilon(**settings, **alone).tightest.epsilon
    path = tmp_path / "claims.yaml"
    path.write_text(f"{TARGET}, {stated}, target: {0.9 * spent}}}")
    code, _, err = run(capsys, ["--batch", str(path)])
    assert code == 2 and "target: found" in err and "the other phases spend it" in err
    path.write_text(f"{TARGET}, {stated}, target: {1.2 * spent}}}")
    code, out, _ = run(capsys, ["--batch", str(path), "--json"])
    found = strict(out)[0]["noise"][0]["noise"]
    free = check_epsilon(**settings, relation="add_remove", target=1.2 * spent).noises[0].noise
    assert code == 0 and found > free


def test_a_phase_does_not_change_what_later_phases_inherit():
    phases = [{"steps": 4}, {"noise": 1}]
    common = {"sampler": "full", "epochs": 2, "noise": 2}
    one, other = (
        check_epsilon(**common, delta=1e-5, phases=order).tightest.epsilon
        for order in (phases, phases[::-1])
    )
    assert one == pytest.approx(other)


def test_warnings_name_delta_and_the_release(capsys):
    _, out, _ = run(capsys, WORDS.replace("1e-5", "1e-2") + " --released last-iterate")
    assert "delta 0.01 is not below 1 / n" in out and "only the last iterate" in out
    _, out, _ = run(capsys, WORDS.replace("1e-5", "1e-3").replace("1050", "1000"))
    assert "delta 0.001 is not below 1 / n" in out
    # Where PLD does not resolve delta, RDP decides, though its best order is the largest.
    for delta, decides in (("1e-50", True), ("1e-5", False)):
        line = f"--sampler poisson --n 9 --batch 1 --noise 99 --steps 3 --delta {delta}"
        _, out, _ = run(capsys, line)
        assert ("RDP: the best order, 4441, ends the range" in " ".join(out.split())) == decides


POISSON = Ran("DP-SGD", (Phase(Poisson(1050, 100), 2.0, 50),), (1.0,), "os")
HEAVY = Ran(
    "DP-SGD", (Phase(Poisson(1050, 100), 1.5, 20), Phase(FullBatch(1050), 9.0, 2)), (1.0, 1.0), "os"
)


def stored(tmp_path, **contents):
    paths = []
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        paths.append(str(tmp_path / f"{name}.json"))
    return paths


def in_ledger(ran, relation="add_remove", **options):
    return ledger(ran, delta=1e-5, relation=relation, **options)


def stating(epsilon, **others):
    """A ledger that does not list its noisy sums."""
    relation = "add or remove one record; its number is not public"
    return {"neighbour_relation": relation, "epsilon": epsilon, "delta": 1e-5, **others}


@pytest.fixture
def total(capsys, tmp_path):
    """A function of options and of ledgers by name: exit code, total as JSON, total in words."""

    def of_ledgers(*options, **contents):
        words = ["--ledgers", *stored(tmp_path, **contents), *options]
        code, out, error = run(capsys, [*words, "--json"])
        said = run(capsys, words)
        assert (error, said[0], said[2]) == ("", code, "")
        return code, strict(out), said[1]

    return of_ledgers


def test_no_delta_is_printed_smaller_than_it_is(capsys, total):
    # At delta 1e-5, epsilon is 0.92300023.
    _, out, _ = run(capsys, "--sampler full --noise 4.0132 --steps 1 --delta 1.0000049e-5")
    assert "0.9230" in out and "at delta 1.00001e-05" in out
    one = ledger(POISSON, delta=1.0000049e-5, relation="add_remove")
    assert "at delta 1.00001e-05" in one["guaranteed"]
    *_, said = total(a={**one, "delta": 1.02e-5}, b={**one, "delta": 1e-5})
    assert "1.1e-05" in said and "2.1e-05" in said


def test_ledgers_are_composed_by_their_noisy_sums(total):
    other = ledger(HEAVY, delta=1e-6, relation="add_remove")
    both = {"a": in_ledger(POISSON), "b": {"ledger": other, "data": {"sha256": "1"}}}
    code, found, said = total(**both)
    # At the larger delta of the two.
    together = composition([POISSON.phases, HEAVY.phases], 1e-5, "add_remove")
    assert code == 0 and found["epsilon"] == pytest.approx(together.epsilon)
    assert found["epsilon"] < found["basic"]["epsilon"]
    assert (found["delta"], found["basic"]["delta"]) == (1e-5, pytest.approx(1.1e-5))
    assert upward(together.epsilon) in said and "by PLD, every noisy sum" in said
    assert [total("--claimed", budget, **both)[0] for budget in ("99", "1")] == [0, 1]


TUNED = {"epsilon_of_all": 2.0, "delta": 1e-5, "relation": "add_remove"}


@pytest.mark.parametrize(
    ("other", "budget", "met"),
    [
        ({}, "3", True),
        ({}, "3 --delta 2e-5", True),
        ({}, "2.9", False),
        # Epsilons and deltas were added up: nothing is known at the smaller delta.
        ({}, "3 --delta 1e-5", False),
        ({"tuning": TUNED}, "3.5", True),
        ({"tuning": TUNED}, "3", False),
        ({"tuning": {**TUNED, "epsilon_of_all": None}}, "99", False),
    ],
)
def test_a_budget_is_one_of_epsilon_and_delta_and_pays_for_tuning(total, other, budget, met):
    ledgers = {"a": stating(1.5, **other), "b": stating(1.5)}
    code, found, said = total("--claimed", *budget.split(), **ledgers)
    assert (code, found["budget_met"]) == (0 if met else 1, met)
    last = said.splitlines()[-1]
    assert last.startswith("budget of epsilon ") and last.endswith(": met" if met else ": NOT MET")


UNTOLD = {"what": "unknown: nobody said how the settings were chosen", "cost": "not counted"}


@pytest.mark.parametrize(
    ("chosen", "tuning", "uncounted"),
    [
        ("nothing: no choice rests on it", {}, []),
        (None, {}, []),
        (["nothing"], {}, []),
        ("nothing but the rate, by 20 trials", {}, ["nothing but the rate, by 20 trials"]),
        ([UNTOLD], {}, [UNTOLD["what"]]),
        ([UNTOLD], TUNED, [UNTOLD["what"]]),
        ([{"what": "the rate", "cost": "in tuning"}], {**TUNED, "what": "the rate"}, []),
        (["the clip bound"], {}, ["the clip bound"]),
    ],
)
def test_what_was_chosen_at_no_counted_cost_stands_beside_a_budget(
    total, chosen, tuning, uncounted
):
    warned = ["stopped after 3 steps"]
    others = {"chosen_on_private_data": chosen, "warnings": warned}
    one = stating(1.5, **others, **({"tuning": tuning} if tuning else {}))
    code, found, said = total("--claimed", "9", a=one, b=stating(1.5))
    assert code == 0 and found["ledgers"][0]["uncounted"] == uncounted
    assert said.splitlines()[-1].endswith(": met by what is counted" if uncounted else ": met")
    assert all(f": {what}" in said for what in uncounted)
    assert ("not counted: " in said) == bool(uncounted)
    assert "a.json: stopped after 3 steps" in said
    assert [each["warnings"] for each in found["ledgers"]] == [warned, []]


TUNING = tuning_of([HEAVY], [POISSON], delta=1e-5, relation="add_remove")


def test_ledgers_count_every_run_and_what_chose_them(total):
    both = {"a": in_ledger([POISSON, POISSON], tuning=TUNING), "b": in_ledger(HEAVY)}
    _, found, said = total(**both)
    together = composition([POISSON.phases] * 2 + [HEAVY.phases], 1e-5, "add_remove")
    assert found["epsilon"] == pytest.approx(together.epsilon)
    assert found["ledgers"][0]["trainings"] == 2 and "with tuning" in said
    tuned = TUNING["epsilon_of_all"] + in_ledger(HEAVY)["epsilon"]
    assert found["with_tuning"] == pytest.approx(tuned)
    # Tuning is added up, so nothing is known of it at the smaller delta.
    for delta, code in (("1e-5", 1), ("2e-5", 0)):
        assert total("--claimed", "99", "--delta", delta, **both)[0] == code


def test_what_a_ledger_does_not_say_is_added_up(total):
    shuffled, silent = (
        in_ledger(Ran(name, (Phase(Shuffled(1050, 100), noise, 10),), (1.0,), "os"), "replace_one")
        for name, noise in (("DP-SGD", 2.0), ("SGD", 0.0))
    )
    bare = {name: value for name, value in shuffled.items() if name != "sampler"}
    _, found, _ = total(a=bare, b=shuffled)
    assert found["epsilon"] == pytest.approx(2 * bare["epsilon"]) and found["delta"] == 2e-5
    assert "not every ledger has the epsilon of noisy sums" in found["by"]
    _, found, said = total(a=silent, b=bare)
    assert found["epsilon"] == "inf" and "nothing" in said


EXTREME = stating(
    1.5,
    sampler={"name": "fixed_size", "n": 1050, "expected_batch": 100},
    steps=5,
    neighbour_relation="replace one record; their number is public",
)
LISTED = in_ledger(POISSON)


@pytest.mark.parametrize(
    "content",
    [
        *({**EXTREME, "noise_multiplier": noise} for noise in (1e-100, 1e-170, 1e-300)),
        {**LISTED, "steps": math.inf},
        {**LISTED, "steps": 10**9},
        {**LISTED, "noise_multiplier": 10**400},
        {**LISTED, "sampler": {"name": "poisson", "n": 1050, "expected_batch": math.inf}},
        {**LISTED, "event": f"{'9' * 5000} trainings, each: x"},
        {**LISTED, "event": "99999999999 trainings, each: x"},
        # More than its noisy sums cost.
        {**LISTED, "epsilon": 1.009 * LISTED["epsilon"]},
    ],
)
def test_of_noisy_sums_beyond_all_numbers_what_the_ledger_states_is_left(total, content):
    other = stating(1.5, neighbour_relation=content["neighbour_relation"])
    code, found, _ = total(a=other, b=content)
    assert code == 0 and not found["ledgers"][1]["composed"]
    assert found["epsilon"] == 1.5 + content["epsilon"]


STATED = stating(1.5)
COSTS_MORE = "of noisy sums whose epsilon is "
OF_A = {"ledger": LISTED, "data": {"sha256": "a" * 64}}
OF_B = {"ledger": LISTED, "data": {"sha256": "b" * 64}}


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ([], "no ledger"),
        ({"ledger": {"mechanism": "none"}}, "no ledger"),
        ({**STATED, "arms": []}, "a ledger of several arms"),
        ({**STATED, "priors": []}, "a ledger of several arms"),
        ({**STATED, "neighbour_relation": "friends"}, "neighbour_relation: found 'friends'"),
        ({**STATED, "neighbour_relation": "replace one record"}, "add_remove and replace_one"),
        ({**STATED, "holds_for": "noise shared by several trainings (arms)"}, "noise shared with"),
        ({**STATED, "epsilon": "much"}, "epsilon: found 'much'"),
        ({**STATED, "delta": 1}, "delta: found 1"),
        ({**STATED, "tuning": [1]}, "tuning: found"),
        ({**STATED, "tuning": {"epsilon_of_all": "abc"}}, "tuning.epsilon_of_all: found 'abc'"),
        ({**STATED, "tuning": {"epsilon_of_all": -5.0}}, "tuning.epsilon_of_all: found -5.0"),
        ({**STATED, "tuning": {**TUNED, "delta": 1e-3}}, "tuning.delta: found 0.001; allowed: a"),
        ({**STATED, "tuning": {**TUNED, "relation": "replace_one"}}, "tuning.relation: found"),
        ({"ledger": STATED, "data": {"sha256": 5}}, "data.sha256: found 5; allowed: a checksum"),
        (OF_B, "aaaaaaaa... and of data bbbbbbbb..."),
        ({**LISTED, "steps": 4000}, COSTS_MORE),
        ({**LISTED, "noise_multiplier": 0.0, "epsilon": 0.0}, COSTS_MORE),
        ({**LISTED, "epsilon": 0.01}, COSTS_MORE),
    ],
)
def test_what_is_no_ledger_of_the_same_records_is_refused(refusal_of, tmp_path, other, named):
    paths = stored(tmp_path, a=OF_A, b=other)
    assert named in refusal_of(main, "--ledgers", *paths, "--claimed", "99")


def test_a_ledger_with_a_key_twice_and_one_alone_are_refused(refusal_of, tmp_path):
    paths = stored(tmp_path, a=stating(1.5), b=stating(1.5))
    assert "found 1 ledger" in refusal_of(main, "--ledgers", paths[1])
    first = tmp_path / "a.json"
    first.write_text(first.read_text().rstrip("}") + ', "epsilon": 0.1}')
    assert "found epsilon twice" in refusal_of(main, "--ledgers", *paths)


def test_numbers_of_numpy_are_numbers():
    plain = {"sampler": "full", "noise": 3.0, "steps": 3, "delta": 1e-5, "claimed": "3.0"}
    numpy = {**plain, "steps": np.int64(3), "claimed": np.float64(3.0)}
    assert str(check_epsilon(**numpy, explain=False)) == str(check_epsilon(**plain, explain=False))
    grids = [{"noise": [3.0, 4.0]}, {"noise": np.array([3.0, 4.0])}]
    one, other = (check_epsilon(**plain, grid=grid, explain=False) for grid in grids)
    assert one.claim == other.claim
    with pytest.raises(InputError, match=r"^steps: found \[3, 4\]"):
        check_epsilon(**{**plain, "steps": np.array([3, 4])})


BLOCKS = re.findall(
    r"```console\n\$ python -m dpatlas ((?:epsilon|bound) .*?[^\\])\n(.*?)```", GALLERY, re.S
)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(block[0].split())[:70])
def test_the_page_shows_what_the_command_prints(capsys, block):
    line, shown = block
    command, *words = shlex.split(line.replace("\\\n", " "))
    code = run_command({"epsilon": main, "bound": bound.main}[command], words)
    out, err = capsys.readouterr()
    assert (code in (0, 1), err) == (True, "")
    assert out.strip() == shown.strip()


@pytest.mark.slow
@pytest.mark.parametrize("claim", epsilon_gallery.CLAIMS, ids=lambda claim: claim.claimed.text)
def test_the_table_of_printed_epsilons_says_what_is_found(claim):
    assert epsilon_gallery.row(claim) in GALLERY


def test_the_table_has_every_claim_of_its_file_and_at_least_eight_sources():
    rows = epsilon_gallery.TABLE.search(GALLERY)[0].splitlines()[2:]
    printed = [each.claimed.text for each in epsilon_gallery.CLAIMS]
    assert [row.strip("| ").split(" | ")[2] for row in rows] == printed
    assert len({each.source for each in epsilon_gallery.CLAIMS} - {""}) >= 8
    notes = re.findall(r"\*\*([\d.]+)\*\*", GALLERY)
    assert notes and set(notes) <= set(printed)


def test_every_option_is_explained(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    options = set(re.findall(r"(--[a-z-]+)", capsys.readouterr().out)) - {"--help"}
    for option in options:
        assert f"`{option}" in GALLERY, option
