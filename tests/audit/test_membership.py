import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.audit import attack_model
from dpatlas.commands.audit import main
from dpatlas.errors import InputError

CANDIDATES, REFERENCES, DELTA = 2000, 32, 1e-5


def world(leak, seed, candidates=CANDIDATES, references=REFERENCES):
    """Log odds of candidates that lie `leak` deviations higher where they were in."""
    draws = np.random.default_rng(seed)
    members = draws.random((1 + references, candidates)) < 0.5
    ease = draws.normal(0, 2, candidates)
    return ease + leak * members + draws.normal(size=members.shape), members


@pytest.mark.parametrize("attack", [pytest.param("lira", marks=pytest.mark.slow), "rmia"])
def test_of_a_model_that_leaks_nothing_no_bound_is_above_zero_more_often_than_stated(attack):
    reports = [
        attack_model(*world(0.0, seed, 400, 8), delta=1e-4, epsilon=0.0, attack=attack)
        for seed in range(200)
    ]
    # At level .95 of each: more than 19 of 200 has probability .3 %.
    for wrong in (
        sum(report.epsilon_if_gaussian > 0 for report in reports),
        sum(report.epsilon_one_run.epsilon > 0 for report in reports),
        sum(report.contradicted for report in reports),
    ):
        assert wrong <= 19
    rates = [report.points[-1].fpr.share for report in reports]
    assert np.mean(rates) == pytest.approx(0.1, abs=0.02)
    assert np.mean([report.auc for report in reports]) == pytest.approx(0.5, abs=0.01)


def test_lira_finds_what_the_likelihood_ratio_of_a_known_leak_finds():
    report = attack_model(*world(2.0, 3, 8000, 100), delta=DELTA)
    # Two normal laws 2 deviations apart: the best test of all.
    assert report.auc == pytest.approx(stats.norm.cdf(2 / np.sqrt(2)), abs=0.02)
    for point in report.points:
        best = stats.norm.sf(stats.norm.isf(point.fpr.share) - 2)
        assert point.tpr.share == pytest.approx(best, abs=0.06)
        exact = stats.binomtest(point.tpr.count, point.tpr.records).proportion_ci(0.95, "exact")
        assert (point.tpr.low, point.tpr.high) == (exact.low, exact.high)
    assert 0.6 * gaussian_epsilon(2.0, DELTA) < report.epsilon_if_gaussian
    assert report.epsilon_if_gaussian <= gaussian_epsilon(2.0, DELTA)
    assert 0 < report.epsilon_one_run.epsilon < gaussian_epsilon(2.0, DELTA)


@pytest.mark.parametrize("attack", ["lira", "rmia"])
def test_a_claim_below_what_leaks_is_contradicted_and_one_above_is_not(attack):
    scores, members = world(3.0, 4)
    wrong = attack_model(scores, members, delta=DELTA, epsilon=0.5, attack=attack)
    assert wrong.contradicted and "CONTRADICTED" in str(wrong)
    true = attack_model(scores, members, delta=DELTA, epsilon=20.0, attack=attack)
    assert not true.contradicted and true.as_dict()["contradicted"] is False
    for point in wrong.points:
        by_few = np.exp(0.5) * point.fpr.high + DELTA
        by_many = 1 - np.exp(-0.5) * (1 - DELTA - point.fpr.high)
        assert point.allowed == pytest.approx(min(by_few, by_many))


def test_what_one_interval_alone_would_contradict_three_points_together_do_not():
    scores, members = world(1.0, 5)
    last = attack_model(scores, members, delta=DELTA).points[-1]
    epsilon = np.log((last.tpr.low - DELTA) / last.fpr.high) - 1e-6
    last = attack_model(scores, members, delta=DELTA, epsilon=epsilon).points[-1]
    assert last.tpr.low > last.allowed and not last.contradicts


def test_scores_are_those_of_the_attacks_by_hand():
    scores = np.array([[1.0, -1, 0, 2], [0, 1, 2, 0], [2, 1, 0, 1], [1, 3, 1, 0], [0, 0, 1, 2]])
    members = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]], bool)

    def ranks(values):
        return stats.rankdata(values)[members[0]].sum()

    rows, deviations = scores[1:], {}
    means = {bit: [rows[members[1:, j] == bit, j].mean() for j in range(4)] for bit in (0, 1)}
    for bit, of in means.items():
        squares = sum(((rows[members[1:, j] == bit, j] - of[j]) ** 2).sum() for j in range(4))
        deviations[bit] = np.sqrt(squares / (8 - 4))
    ratio = [stats.norm.logpdf(scores[0], means[bit], deviations[bit]) for bit in (1, 0)]
    p = special.expit(scores)
    mean = [np.mean([p[1:][members[1:, j] == bit, j].mean() for bit in (0, 1)]) for j in range(4)]
    for attack, found in {"lira": ratio[0] - ratio[1], "rmia": p[0] / mean}.items():
        auc = attack_model(scores, members, delta=0.1, attack=attack).auc
        assert auc == pytest.approx((ranks(found) - 3) / 4)


def test_without_references_that_had_a_record_the_law_of_those_without_is_used():
    scores, members = world(3.0, 5, references=8)
    scores[1:] -= 3.0 * members[1:]
    members[1:] = False
    assert attack_model(scores, members, delta=DELTA).auc > 0.9


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"log_odds": np.zeros((4, 9))}, r"log_odds: found an array of shape \(4, 9\)"),
        ({"members": np.zeros((9, 9), bool)}, "members: found 0 of 9 candidates in the model"),
        ({"members": np.ones((9, 8), bool)}, r"members: found bool of shape \(9, 8\)"),
        ({"epsilon": -1.0}, "epsilon: found -1.0"),
        ({"attack": "guess"}, "attack: found .guess.; allowed: one of lira, rmia"),
    ],
)
def test_bad_input_is_one_line(change, line):
    scores, members = world(1.0, 6, 9, 8)
    given = {"log_odds": scores, "members": members, "delta": 1e-3, **change}
    with pytest.raises(InputError, match=line):
        attack_model(given.pop("log_odds"), given.pop("members"), **given)
    members[1:] = True
    with pytest.raises(InputError, match="every candidate in every reference"):
        attack_model(scores, members, delta=1e-3)


def test_the_report_in_words_has_every_number():
    report = attack_model(*world(1.0, 7, 300, 8), delta=1e-4, epsilon=1.0)
    text = str(report)
    for point in report.points:
        assert re.search(rf"^{point.aimed:g} .* {point.allowed:.4f}", text, re.M)
    assert f"AUC {report.auc:.4f}" in text and "if the training is Gaussian DP" in text


def test_the_command_attacks_the_scores_of_a_file(tmp_path, result_of, refusal_of):
    path = tmp_path / "scores.npz"
    scores, members = world(3.0, 8, 400, 8)
    np.savez(path, log_odds=scores, members=members)
    words = ["--scores", path, "--delta", "1e-4"]
    code, out, _ = result_of(main, *words, "--epsilon", ".1", "--attack", "rmia", "--json")
    assert code == 1 and json.loads(out)["contradicted"] is True
    code, out, _ = result_of(main, *words, "--epsilon", "20")
    assert code == 0 and "lira, 8 reference models" in out
    for more, line in (
        (["--runs", "5"], "--runs: found it with --scores; allowed: one"),
        (["--epsilon", "-1"], "epsilon: found -1.0"),
    ):
        assert line in refusal_of(main, *words, *more)
    assert "--delta: found missing" in refusal_of(main, "--scores", path)
    assert "--epsilon: found it here" in refusal_of(main, "--epsilon", "1")
    whole = path.read_bytes()
    patched = bytearray(whole)
    patched[whole.rfind(b"PK\1\2") + 8] |= 32  # a flag of the directory: compressed patched data
    swapped = whole.replace(b"(9, 400)", b"(5, 400)", 1)  # a header that names fewer rows
    for content, found in (
        (b"text", "scores.npz: found a damaged file"),
        (bytes(patched), "scores.npz: found a damaged file"),
        (swapped, "scores.npz: found a damaged file"),
        (None, "scores.npz: found no members"),
    ):
        if content:
            path.write_bytes(content)
        else:
            np.savez(path, log_odds=scores)
        assert found in refusal_of(main, *words)


@pytest.mark.slow
def test_the_example_of_a_finished_model_prints_what_the_page_shows():
    docs = Path(__file__).parents[2] / "docs"
    command = [sys.executable, "-W", "ignore", str(docs / "examples" / "finished_model.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    section = (docs / "audit.md").read_text().partition("## A finished model")[2]
    shown = section.partition("```text\n")[2].partition("```")[0]
    # Other processors train other models: the numbers differ.
    words = [re.sub(r"[\d.]+", "N", text) for text in (shown, printed)]
    assert all(line in words[1] for line in words[0].splitlines())
