"""An audit that can fail: honest mechanisms pass, and two broken ones are caught in every row."""

import functools
import json

import numpy as np
import pytest
from small_audits import audited

from dpatlas.base.seeds import Noise
from dpatlas.commands import audit as command
from dpatlas.errors import run_command
from dpatlas_workflow.checks.audit.jobs.feature_releases import FEATURES
from dpatlas_workflow.checks.audit.jobs.kernels import ATTACKED_NETWORKS
from dpatlas_workflow.checks.audit.jobs.langevin import LANGEVIN
from dpatlas_workflow.checks.audit.jobs.mechanisms import (
    MECHANISMS,
    PrivateSGD,
    log_likelihood_ratio,
    neighbours,
)
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS as ENTRIES
from dpatlas_workflow.checks.audit.mechanisms import MORE_RUNS

pytestmark = pytest.mark.usefixtures("one_thread_without_gradients")

# The others are broken in test_audit_langevin and test_audit_features.
PRIVATE_SGD = [name for name, mechanism in MECHANISMS.items() if isinstance(mechanism, PrivateSGD)]
# The fast tests attack one mechanism of private SGD, the slow ones every kernel and sampler.
FAST = "dp-sgd-poisson"


def fast_first(names):
    slow = {name for name in PRIVATE_SGD if name != FAST}
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


BROKEN = fast_first(PRIVATE_SGD)
# Enough for nine audits of ten to catch half the noise; the one accountant of fixed-size batches
# leaves more room.
RUNS = {name: 500 if name == "dp-sgd-fixed-size" else 300 for name in PRIVATE_SGD}


@pytest.fixture(autouse=True, scope="module")
def profiles_once():
    """The same guarantee is asked for by every test of a mechanism."""
    honest = PrivateSGD.profile
    cached = functools.cache(lambda mechanism, deltas: honest(mechanism, deltas))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateSGD, "profile", lambda self, deltas: cached(self, tuple(deltas)))
        yield


def test_the_plan_counts_the_updates_and_the_runs_of_every_mechanism():
    """Larger networks, whose updates take longer, are given fewer; cheap mechanisms run more."""
    assert tuple(MECHANISMS) == tuple(ENTRIES)
    for name in PRIVATE_SGD:
        updates = sum(phase.steps for phase in MECHANISMS[name].phases)
        if name in ATTACKED_NETWORKS:
            assert updates < 4
        else:
            assert updates == 4
    assert set(MORE_RUNS) == set(LANGEVIN) | set(FEATURES)


# Honest releases of features run longer in test_audit_features.
@pytest.mark.parametrize("name", fast_first(name for name in MECHANISMS if name not in FEATURES))
def test_an_honest_mechanism_is_not_contradicted(name):
    metrics = audited(name, runs=200)
    assert not metrics["contradicted"]
    assert metrics["lower"]["epsilon"] <= metrics["guaranteed"]


@pytest.mark.parametrize("name", BROKEN)
def test_noise_at_half_scale_is_caught(name, half_the_noise):
    assert audited(name, RUNS[name])["contradicted"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_forgotten_clip_is_caught(name, no_clip):
    assert audited(name, runs=150)["contradicted"]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_neighbours_differ_in_one_record_and_the_others_have_no_gradient(relation):
    (x, labels), (other, other_labels) = neighbours(relation)
    differs = (x != other).any(1) | (labels != other_labels)
    assert differs.nonzero().flatten().tolist() == [0]
    assert not x[1:].any()


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("q", [1.0, 0.3, 0.0])
def test_the_score_is_the_log_ratio_of_the_two_densities(q, relation):
    sigma, share = 1.3, 0.8

    def density(t, mean):
        mixed = (1 - q) * np.exp(-(t**2) / (2 * sigma**2))
        return mixed + q * np.exp(-((t - mean) ** 2) / (2 * sigma**2))

    for t in (-2.0, 0.1, 1.5):
        against = density(t, -share) if relation == "replace_one" else np.exp(-(t**2) / 2 / 1.69)
        expected = np.log(density(t, share) / against)
        ratio = log_likelihood_ratio(t, share, q, sigma, relation)
        assert ratio == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["logistic-full-batch", *LANGEVIN, *FEATURES])
def test_neighbours_runs_and_steps_never_share_noise(monkeypatch, name):
    keys, advanced = [], []
    honest = Noise.key

    def remember(self, *axes):
        keys.append(axes)
        return honest(self, *axes)

    monkeypatch.setattr(Noise, "key", remember)
    scores = MECHANISMS[name].scores(3, Noise("x", "keyed"), lambda: advanced.append(1))
    assert len(keys) == len(set(keys))
    assert {repetition for repetition, *_ in keys} == set(range(6))
    assert len(np.unique(np.concatenate(scores))) == len(advanced) == 6


def test_the_command_fails_and_names_what_is_contradicted(capsys, no_clip):
    words = ["--mechanism", "logistic-full-batch", "--runs", "60", "--json"]
    assert run_command(command.main, words) == 1
    captured = capsys.readouterr()
    (record,) = json.loads(captured.out)
    assert record["metrics"]["contradicted"]
    # As in the config: a table of many correct mechanisms should raise no alarm.
    assert (record["spec"]["level"], record["spec"]["verdict_level"]) == (0.95, 0.999)
    assert record["ledger"]["epsilon"] == pytest.approx(record["metrics"]["guaranteed"])
    assert "logistic-full-batch" in captured.err.splitlines()[-1]


def test_too_few_runs_to_contradict_a_guarantee_exit_with_3(capsys):
    words = ["--mechanism", "logistic-full-batch", "--json", "--runs"]
    assert run_command(command.main, [*words, "8"]) == 3
    assert "contradicted the guarantee of logistic-full-batch" in capsys.readouterr().err
    assert run_command(command.main, [*words, "60"]) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--mechanism", "dp-sgd"], "'dp-sgd'"),
        (["--runs", "7"], "--runs"),
        (["--runs", "1" + "0" * 20], "--runs"),
        (["--level", "0.9999999999999999"], "--level"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(refusal_of, arguments, named):
    assert named in refusal_of(command.main, *arguments)
