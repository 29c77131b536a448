"""`dpatlas audit FILE.py:FUNCTION`: exit codes, one line for what is wrong, runs that are kept."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_trainings import DIMENSION, claim, training

from dpatlas.accounting.error_rates import SELECTION_STRIDE
from dpatlas.audit import Claim, audit_training, premises
from dpatlas.audit.audit import _attacks
from dpatlas.audit.premises import HOLDS, VIOLATED, Premise
from dpatlas.audit.run import Run, flatten
from dpatlas.base.scripts import printing_to_stderr
from dpatlas.commands import audit as command
from dpatlas.errors import InputError, run_command

HERE = Path(__file__).parent
FAST = ("--pairs", "12", "--runs", "8", "--seed", "1")
MANY = ("--runs", "100", "--seed", "1")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that writes a script which has these lines below the small trainings."""
    monkeypatch.syspath_prepend(str(HERE))

    def write(*lines):
        path = tmp_path / "mine.py"
        text = ["from small_trainings import *", "claim = claim()", "train = training()", *lines]
        path.write_text("\n".join(text) + "\n")
        return f"{path}:train"

    return write


def run(capsys, *words):
    code = run_command(command.main, list(map(str, words)))
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("lines", "words", "code", "said"),
    [
        ([], MANY, 0, "what this audit could not have seen"),
        ([], ["--premises-only"], 0, "NOT CONTRADICTED"),
        ([], FAST, 3, "COULD NOT HAVE CONTRADICTED"),
        (["train = training(clip=False)"], FAST, 1, "THE CLAIM'S PREMISES FAIL: sensitivity"),
        # Without any sum, by its bound.
        (["train = training(clip=False, see=False)"], MANY, 1, "\nCONTRADICTED: "),
    ],
)
def test_verdicts_and_exit_codes(capsys, script, lines, words, code, said):
    found, out, _ = run(capsys, script(*lines), *words)
    assert found == code and said in out


def test_json_has_the_verdict_the_premises_and_the_bounds(capsys, script):
    code, out, _ = run(capsys, script(), "--json", *FAST)
    report = json.loads(out)
    assert report["exit_code"] == code == 3
    assert report["claim"]["guaranteed"] == pytest.approx(8.036, abs=1e-3)
    assert [row["status"] for row in report["premises"]].count("holds") == 8
    assert report["facts"]["steps without a sum, of a run"] == [0, 0, 0]
    assert len(report["attacks"]) == 2 and report["runs"] == 8
    assert all(each["bound"]["epsilon"] >= 0 for each in report["attacks"])
    report = json.loads(run(capsys, script(), "--premises-only", "--json")[1])
    assert (report["exit_code"], report["runs"], report["attacks"]) == (0, 0, [])


def test_one_run_with_canaries_that_leak_is_contradicted(capsys, script):
    lines = [
        "def train(run):",
        "    noise = np.random.default_rng(run.seed).normal(size=len(run.included))",
        "    return run.included + SCALE * noise",
        "claim = Claim(sampler='full-batch', n=400, noise=1.0, steps=1, delta=1e-5)",
    ]
    for scale, canaries, expected, said in (
        (1.0, 400, 0, "The noise, the sensitivity and the sampling themselves"),
        (0.25, 400, 1, "guesses are right"),
        # Three canaries cannot contradict anything.
        (0.0, 3, 3, "no number would contradict"),
    ):
        words = script(*lines, f"SCALE = {scale}"), "--canaries", canaries, "--seed", 1
        code, out, _ = run(capsys, *words)
        assert code == expected and said in " ".join(out.split()), out


BAD = [
    (["nothing"], "script: found 'nothing'"),
    (["missing.py:train"], "script: found no file missing.py"),
    (["{mine}:other"], "found no function other"),
    (["{mine}:train", "--level", "1"], "level: found 1.0; allowed: a number > 0 and <= 0.999"),
    # 0 is a value.
    (["{mine}:train", "--delta", "0"], "--delta: found it here; allowed: it without a script"),
    (["--mechanism", "dp-sgd-poisson", "--seed", "0"], "--seed: found it here"),
    (["--premises-only"], "--premises-only: found it here"),
    (["{mine}:train", "--canaries", "9", "--runs", "9"], "--runs: found it in an audit by one run"),
    (["{mine}:train", "--folder", "{mine}"], "found File exists; allowed: one that can be written"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line_and_exits_with_2(refusal_of, script, words, said):
    path = script().rpartition(":")[0]
    assert said in refusal_of(command.main, *(word.replace("{mine}", path) for word in words))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["claim = 3"], "found claim of type int"),
        (["1 / 0"], "ZeroDivisionError: division by zero at mine.py:4"),
        (["claim = Claim(sampler='poisson', delta=1e-5)"], "n: found nothing"),
        # What other commands call `claimed` would otherwise be dropped without a word.
        (["claim = Claim(**SETTINGS, delta=1e-5, claimed=1.0)"], "claimed: found an unknown key"),
        # Of so small a delta no accountant for these words proves anything.
        (
            ["claim = Claim(**SETTINGS, delta=1e-14, relation='replace_one')"],
            "claim: found no proved epsilon for poisson batches under replace_one",
        ),
        (["def train(run): raise KeyError('x')"], "KeyError: 'x' at mine.py:4"),
        (["raise SystemExit(0)"], "SystemExit: 0 at mine.py:4"),
        (["def train(run): raise SystemExit(0)"], "SystemExit: 0 at mine.py:4"),
        (["import os", "def train(run): os._exit(0)"], "SystemExit: os._exit(0)"),
        (["def train(run): pass"], "found nothing that an attacker sees"),
        (["def train(run): return float('nan')"], "published score: found NaN"),
        (["def train(run): run.see([])"], "run.see: found a sum of 0 numbers"),
        (["def train(run): return {'a': 'b'}"], "published a: found str"),
        (["def train(run): run.see([1.0]), run.see([1.0, 2.0])"], "found a sum of 2 numbers"),
        (
            ["def train(run): return {'a' if run.member else 'b': 1.0}"],
            "found b without the canary",
        ),
        (["def train(run): yield 1.0"], "the training: found a generator"),
        (["a = [1.0]", "a.append(a)", "def train(run): return a"], "found RecursionError: "),
        (
            [
                "calls = []",
                "def train(run):",
                "    calls.append(run)",
                "    run.see(np.full(3 + (len(calls) > 30), float(run.member)))",
            ],
            "run.see: found 4 numbers, and 3 in another run",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_script_that_fails_is_one_line_and_exits_with_2(capsys, script, lines, said):
    code, _, errors = run(capsys, script(*lines), *FAST)
    lines = [line for line in errors.strip().splitlines() if line.startswith("dpatlas:")]
    assert code == 2 and len(lines) == 1 and said in lines[0], errors


def test_a_stopped_audit_goes_on_from_its_folder_to_the_same_report(tmp_path):
    calls = []

    def counted(run):
        calls.append(run.seed)
        if len(calls) in (11, 40):
            raise KeyboardInterrupt
        return training()(run)

    options = {"runs": 20, "pairs": 12, "folder": tmp_path / "kept", "seed": 7}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            audit_training(counted, claim(), **options)
    report = audit_training(counted, claim(), **options)
    again = audit_training(training(), claim(), runs=20, pairs=12, seed=7)
    assert report.premises == again.premises and report.attacks == again.attacks
    # Each of the 64 runs once, with three that are repeated on purpose; but for those that were cut
    # off, with the others of their pair.
    assert len(calls) <= 2 * 12 + 3 + 2 * 20 + 4


def test_a_folder_of_another_audit_is_refused(tmp_path):
    audit_training(training(), claim(), premises_only=True, pairs=2, folder=tmp_path, seed=1)
    options = {"premises_only": True, "pairs": 2, "folder": tmp_path}
    with pytest.raises(InputError, match="another claim"):
        audit_training(training(), claim(noise=0.9), **options)
    with pytest.raises(InputError, match="another code"):
        audit_training(training(), claim(), code=lambda _: {"text": "changed"}, **options)
    with pytest.raises(InputError, match="another code"):
        audit_training(lambda run: 1.0, claim(), **options)
    with pytest.raises(InputError, match="seed"):
        audit_training(training(), claim(), seed=2, **options)
    assert audit_training(training(), claim(), **options).seed == 1


def test_a_folder_of_another_function_or_of_changed_imports_is_refused(capsys, script, tmp_path):
    helper = tmp_path / "helper_of_mine.py"
    helper.write_text("CLIP = True\n")
    lines = [
        "other = training(clip=False)",
        "def train(run):",
        "    from helper_of_mine import CLIP",
        "    return training(clip=CLIP)(run)",
    ]
    target = script(*lines)
    options = ("--premises-only", "--pairs", 8, "--folder", tmp_path / "kept", "--seed", 1)
    assert run(capsys, target, *options)[0] == 0
    # As in a process of its own, in which nothing is left to run that would import it.
    del sys.modules[helper.stem]
    assert run(capsys, target, *options)[0] == 0
    code, _, errors = run(capsys, target.replace(":train", ":other"), *options)
    assert code == 2 and "an audit of another code" in errors
    helper.write_text("CLIP = False\n")
    code, _, errors = run(capsys, target, *options)
    assert code == 2 and "an audit of another code" in errors


def test_every_look_at_more_runs_of_a_folder_counts_with_its_error(capsys, script, tmp_path):
    target = script("def train(run):", "    return training()(run)")
    kept = "--folder", tmp_path / "k"

    def audit(*words):
        code, out, _ = run(capsys, target, "--pairs", 4, *kept, *words)
        return code, out

    assert "look" not in audit("--runs", 8)[1]
    # The same runs again are no other test.
    assert "look" not in audit("--runs", 8)[1]
    code, out = audit("--runs", 10)
    assert code in (0, 3) and "look 2 at the runs" in out
    assert "with probability at most 0.02" in " ".join(out.split())
    found = json.loads(audit("--runs", 10, "--level", 0.9, "--json")[1])
    assert (found["looks"], found["error_of_all_looks"]) == (3, 0.12)
    head = tmp_path / "k" / "audit.json"
    content = json.loads(head.read_text())
    assert content["looks"] == [[4, 8, 0.99], [4, 10, 0.99], [4, 10, 0.9]]
    for looks in (5, [[4, 8]], [["a", 8, 0.99]]):
        head.write_text(json.dumps({**content, "looks": looks}))
        code, _, err = run(capsys, target, "--pairs", 4, *kept, "--runs", 8)
        assert code == 2 and "audit.json: looks" in err and "found" in err


def test_one_run_is_made_once_in_a_folder(tmp_path):
    calls = []

    def train(run):
        calls.append(run.seed)
        # By fair coins, within five standard deviations.
        assert abs(run.included.sum() - 200) < 50
        return run.included + np.random.default_rng().normal(size=len(run.included))

    claimed = Claim(sampler="full-batch", n=400, noise=1, steps=1, delta=1e-5, canaries=400)
    reports = [audit_training(train, claimed, folder=tmp_path, code=lambda _: {}) for _ in "ab"]
    assert len(calls) == 1 and reports[0].one_run == reports[1].one_run
    assert [report.error_of_all_looks for report in reports] == [0.01, 0.01]


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("first"),
        lambda arrays: arrays.pop("with/sample"),
        lambda arrays: arrays.update({"without/energy": np.array(1.0)}),
        lambda arrays: arrays.update({"without/sample": np.zeros(3)}),
        lambda arrays: arrays.update(acted=np.zeros(2)),
        None,
    ],
)
def test_a_damaged_file_and_arrays_that_are_no_pair_are_named(tmp_path, change):
    options = {"premises_only": True, "pairs": 2, "folder": tmp_path, "seed": 1}
    audit_training(training(), claim(), **options)
    path = tmp_path / "pairs" / "00001.npz"
    if change is None:
        path.write_bytes(b"")
    else:
        arrays = dict(np.load(path))
        change(arrays)
        np.savez(path, **arrays)
    with pytest.raises(InputError, match=r"00001\.npz: found a damaged file"):
        audit_training(training(), claim(), **options)


@pytest.mark.parametrize(
    ("head", "named"),
    [
        ([], "found list"),
        ({"claim": {}, "code": {}, "looks": []}, "seed: found nothing"),
        ({"claim": {}, "code": {}, "looks": [], "seed": -1}, "seed: found -1"),
    ],
)
def test_a_folder_whose_facts_are_damaged_is_named(tmp_path, head, named):
    (tmp_path / "audit.json").write_text(json.dumps(head))
    with pytest.raises(InputError, match=rf"audit\.json: {named}"):
        audit_training(training(), claim(), premises_only=True, pairs=2, folder=tmp_path)


def test_damaged_lines_of_scores_and_runs_that_other_pairs_taught_are_made_again(tmp_path):
    options = {"pairs": 8, "runs": 8, "folder": tmp_path, "seed": 1}
    whole = audit_training(training(), claim(), **options)
    path = tmp_path / "runs.jsonl"
    first, second, *rest = path.read_bytes().strip().splitlines()
    short = {**json.loads(first), "scores": [0.5]}
    words = {**json.loads(second), "scores": ["x"] * len(json.loads(second)["scores"])}
    bad = [b"[]", b"5", b"\xff", json.dumps(short).encode(), json.dumps(words).encode()]
    path.write_bytes(b"\n".join([*bad, *rest]))
    assert audit_training(training(), claim(), **options).attacks == whole.attacks
    more = audit_training(training(), claim(), **{**options, "pairs": 12})
    assert more.attacks == audit_training(training(), claim(), pairs=12, runs=8, seed=1).attacks
    # Where the time is up, a run whose line is lost is left out.
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join(line for line in lines if b'"run": 5,' not in line))
    assert audit_training(training(), claim(), **options, seconds=1e-9).runs == 7


def test_a_process_that_the_training_forks_ends_as_it_asks_to(capsys, script):
    lines = ["import os", "def train(run):", "    os.fork() or os._exit(3)"]
    lines += ["    assert os.waitstatus_to_exitcode(os.wait()[1]) == 3"]
    lines += ["    return float(run.member)"]
    code, out, _ = run(capsys, script(*lines), *FAST, "--json")
    assert code == 3 and json.loads(out)["runs"] == 8


ALONE = [{"canary": np.zeros(DIMENSION)}, {"canary": np.zeros(DIMENSION), "see": False}]


@pytest.mark.parametrize("changes", ALONE, ids=["sums", "no sums"])
def test_a_canary_that_changes_nothing_is_no_audit(changes):
    report = audit_training(training(**changes), claim(), pairs=60, runs=8, seed=1)
    assert report.absent and report.exit_code == 3
    assert "the canary changes nothing in any of 60 pairs: is it planted?" in str(report)
    # With so few pairs an honest canary may never be drawn.
    assert not audit_training(training(**changes), claim(), pairs=4, runs=8, seed=1).absent


def test_what_a_script_prints_stays_out_of_the_report(capfd, script):
    """Printed when it is imported and when it trains, by it, by a child process and by C."""
    lines = [
        "import ctypes, subprocess, sys",
        "print('loading')",
        "ctypes.CDLL(None).puts(b'from C')",
        "def train(run):",
        "    print('epoch 1')",
        "    print('epoch 2', file=sys.__stdout__)",
        "    subprocess.run(['echo', 'from a child'], check=True)",
        "    return training()(run)",
    ]
    _, out, errors = run(capfd, script(*lines), "--json", *FAST)
    assert json.loads(out)["runs"] == 8
    for words in ("loading", "from C", "epoch 1", "epoch 2", "from a child"):
        assert words in errors


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_the_standard_output_comes_back_after_an_error(capfd, error):
    with pytest.raises(error), printing_to_stderr():
        subprocess.run(["echo", "within"], check=True)
        raise error
    print("after")
    subprocess.run(["echo", "after too"], check=True)
    shown = capfd.readouterr()
    assert shown.err == "within\n" and sorted(shown.out.split("\n")) == ["", "after", "after too"]


def test_tensors_of_any_layout_and_precision_are_flattened():
    torch = pytest.importorskip("torch")
    values = torch.tensor([[0.0, 1.5]])
    for each in (values, values.bfloat16(), values.half(), values.to_sparse(), values.int()):
        assert flatten("x", each).tolist() == each.to_dense().double().flatten().tolist()


def test_a_bound_above_the_claim_contradicts_it_whatever_the_profile_says():
    report = audit_training(training(), claim(), runs=8, pairs=8, seed=1)
    above = replace(report.attacks[0].bound, epsilon=9.4567)
    attacks = (replace(report.attacks[0], bound=above), *report.attacks[1:])
    changed = replace(report, attacks=attacks)
    assert not report.contradicted and changed.exit_code == 1
    # Both rounded down.
    assert "above epsilon 8.04 at delta 1e-05 by at least 1.420" in str(changed)
    assert "  9.456 " in str(changed)


@pytest.mark.parametrize("premises_only", [False, True])
def test_all_tests_of_an_audit_share_its_error(monkeypatch, premises_only):
    errors = []

    def asked(error):
        errors.append(error)
        return Premise("asked", HOLDS, "", "")

    monkeypatch.setattr(premises, "_noise_tests", lambda *_: [asked] * 4)
    monkeypatch.setattr(premises, "_sampling", lambda *_: asked)
    options = {"pairs": 8, "runs": 8, "seed": 1, "level": 0.9, "premises_only": premises_only}
    report = audit_training(training(), claim(), **options)
    tests = [test for attack in report.attacks for test in (attack.bound, attack.test)]
    assert (len(errors), len(tests)) == (5, 0 if premises_only else 4)
    assert sum(errors) + sum(1 - test.level for test in tests) == pytest.approx(0.1)


def test_adversaries_are_selected_on_runs_that_no_bound_counts():
    """The third is the best on those that count, which the threshold's selection leaves out."""
    draws = np.random.default_rng(1)
    selecting = np.arange(400) % SELECTION_STRIDE == 0
    scores = {member: draws.normal(size=(400, 3)) for member in (True, False)}
    scores[True][np.ix_(selecting, [0, 1])] += 2
    scores[True][np.ix_(~selecting, [2])] += 9
    attacks = _attacks(claim(), ("first", "second", "third"), scores, 0.01)
    assert {attack.adversary for attack in attacks} == {"first", "second"}


@pytest.mark.parametrize(
    ("seconds", "pairs", "runs", "missing"),
    [
        (1.5, 0, 0, "0 of at least 2 pairs"),
        (4, 1, 0, "1 of at least 2 pairs"),
        (13, 2, 4, "4 of at least 8 runs on each data set"),
        (28, 5, 8, ""),
    ],
)
def test_no_run_begins_after_the_time_is_up(monkeypatch, seconds, pairs, runs, missing):
    begun = []
    # Each run takes a second.
    clock = SimpleNamespace(monotonic=lambda: float(len(begun)))
    monkeypatch.setattr("dpatlas.audit.audit.time", clock)

    def train(run):
        begun.append(clock.monotonic())
        return training()(run)

    report = audit_training(train, claim(), seconds=seconds, seed=1)
    assert max(begun) <= seconds
    assert (report.pairs, report.runs, report.missing) == (pairs, runs, missing)
    assert report.exit_code == 3
    violated = (Premise("noise", VIOLATED, "", ""),)
    assert replace(report, premises=violated).exit_code == 1


def test_runs_are_seeded_coupled_in_pairs_and_apart_in_the_bound():
    seen = []

    def train(run):
        seen.append((run.seed, run.member, np.random.random()))  # noqa: NPY002
        return float(run.seed)

    audit_training(train, Claim(epsilon=1, delta=1e-5), pairs=3, runs=8, seed=1)
    pairs, runs = seen[:9], seen[9:]
    for first in (0, 3, 6):
        # Without the canary, the same once more, and with it.
        assert len({(seed, draw) for seed, _, draw in pairs[first : first + 3]}) == 1
        assert [member for _, member, _ in pairs[first : first + 3]] == [False, False, True]
    assert len({seed for seed, _, _ in pairs + runs}) == 3 + 16


def test_an_epsilon_alone_is_a_claim():
    def leaks(run):
        return float(run.member)

    assert audit_training(leaks, Claim(epsilon=1, delta=1e-5), seed=1).exit_code == 1
    assert audit_training(leaks, Claim(epsilon=9, delta=1e-5), seed=1).exit_code == 3
    assert Claim(epsilon="1.0", delta=1e-5).epsilon == 1.0
    # Beside settings, which guarantee 8.04, the published one is put to the test.
    published = claim(epsilon=9)
    assert published.claimed == 9 and (9, 1e-5) in zip(*published.profile(), strict=True)
    for bad in ("one", "0", True, -1.0):
        with pytest.raises(InputError, match=r"^epsilon: found"):
            Claim(epsilon=bad, delta=1e-5)
    with pytest.raises(InputError, match="neither settings nor epsilon"):
        Claim(delta=1e-5)


def test_a_run_with_several_canaries_has_no_member():
    with pytest.raises(InputError, match=r"run\.member"):
        _ = Run(claim(canaries=3), 1, np.array([True, False, True])).member
    assert Run(claim(), 1, np.array([True])).member is True
