"""lp_fft's features: what is measured, when they move, on whose records, and what that costs."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from lpfft_small import (
    Watched,
    a_guarantee_that_remembers,  # noqa: F401
    body_of,
    equal,
    given_in,
    record_of,
    run,
    saved_at_every_step,
    spec_of,
    watched_trainings,
    what_jobs_are_given,  # noqa: F401
)
from small_jobs import counted, killed_at

from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.models import backbone
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs import features
from dpatlas_workflow.papers.lp_fft.jobs.features import SHARED, features_of, knn_accuracy

MEASURED = ("private", "public", "accuracy")
CONDITIONS = [(1.0, "fft"), (1.0, "lp-fft"), (4.0, "fft"), (4.0, "lp-fft")]
RUNS, PROBING, STEPS = 2, 2, 4
SHORT = {"head_scales": [4.0], "runs": 1, "steps": 3, "lp_steps": 2, "at": [0, 1, 3]}


@pytest.fixture(scope="module")
def whole(given, tmp_path_factory):
    """(record, trainings, draws' keys) of one job."""
    keys, real_key = [], Noise.key
    with pytest.MonkeyPatch.context() as patch, watched_trainings() as seen:
        patch.setattr(Noise, "key", lambda *given: keys.append(real_key(*given)) or keys[-1])
        record = record_of(spec_of("feature_quality"), given, tmp_path_factory.mktemp("whole"))
    return record, seen, keys


def curves_of(record):
    """Rows by condition, each with its measures as lists of runs, lists over steps."""
    table = pd.DataFrame(record["metrics"]["curves"])
    return [
        dict(zip(("head_scale", "lr", "strategy"), condition, strict=True))
        | {name: [run[name].tolist() for _, run in of.groupby("run")] for name in MEASURED}
        for condition, of in table.groupby(["head_scale", "lr", "strategy"], sort=False)
    ]


def by_condition(seen):
    """(scale of the head, strategy, run, training) of every condition: run by run.

    LP-FFT is two trainings, of the head on features and of the network after it: its iterates are
    those of the network in both.
    """
    left = iter(seen)
    for number, (scale, strategy) in product(range(RUNS), CONDITIONS):
        each = next(left)
        if strategy == "lp-fft":
            heads, each = each.iterates, next(left)
            assert all(set(head) == {"head.weight", "head.bias"} for head in heads)
            assert equal({name: each.iterates[0][name] for name in heads[-1]}, heads[-1])
            start = each.iterates[0]
            iterates = [*({**start, **head} for head in heads), *each.iterates[1:]]
            each = Watched(each.training, iterates)
        yield scale, strategy, number, each
    assert not list(left)


def votes(known, labels, asked, truth, neighbours):
    """Accuracy of nearest neighbours, distance by distance; of equally near ones all vote."""
    distances = ((asked[:, None].astype(float) - known[None].astype(float)) ** 2).sum(2)
    last = np.sort(distances, axis=1)[:, neighbours - 1, None]
    found = [np.bincount(labels[row]).argmax() for row in distances <= last]
    return float(np.mean(np.array(found) == truth))


def quality_of(network, known, labels, queries, truth, neighbours=3):
    with torch.no_grad():
        first, second = (network.features(torch.as_tensor(x)).numpy() for x in (known, queries))
    return votes(first, np.asarray(labels), second, truth, neighbours)


@pytest.mark.parametrize("neighbours", [1, 4])
def test_nearest_neighbours_are_scikit_learn_s_and_those_of_the_distances(neighbours):
    from sklearn.neighbors import KNeighborsClassifier

    draws = np.random.default_rng(3)
    known, asked = draws.standard_normal((60, 5)), draws.standard_normal((40, 5))
    labels, truth = draws.integers(0, 3, 60), draws.integers(0, 3, 40)
    tensors = (torch.from_numpy(each) for each in (known, labels, asked, truth))
    found = knn_accuracy(*tensors, neighbours)
    reference = KNeighborsClassifier(neighbours, algorithm="kd_tree").fit(known, labels)
    assert found == reference.score(asked, truth)
    assert found == votes(known, labels, asked, truth, neighbours)


def test_all_that_are_as_near_as_the_last_neighbour_vote_and_no_query_is_left_out():
    known, labels = torch.tensor([[0.0], [1], [1], [1], [5]]), torch.tensor([2, 0, 1, 1, 0])
    queries = torch.full((2 * features.ROWS + 1, 1), 0.9)
    for truth, neighbours, found in ((1, 1, 1.0), (0, 1, 0.0), (0, 5, 1.0)):
        truths = torch.full((len(queries),), truth)
        assert knn_accuracy(known, labels, queries, truths, neighbours) == found
    # Features that are not finite count as zero.
    known = torch.tensor([[np.nan, 1.0], [np.inf, 4.0]])
    queries = torch.tensor([[0.0, 3.9], [-np.inf, 4.0], [np.nan, -1.0]])
    truths = torch.tensor([1, 1, 0])
    assert knn_accuracy(known, torch.tensor([0, 1]), queries, truths, 1) == 1.0


def test_lp_is_the_same_for_every_rate_of_fft_and_trained_once(given, tmp_path):
    spec = spec_of("feature_quality", lrs=[0.5, 1.0], runs=1, head_scales=[4.0])
    with counted((PrivateTraining, "step")) as steps:
        rows = curves_of(record_of(spec, given, tmp_path))
    assert len(steps) == 2 * STEPS + PROBING + 2 * (STEPS - PROBING)
    (_, one), (_, other) = [
        (row["lr"], row["accuracy"][0]) for row in rows if row["strategy"] == "lp-fft"
    ]
    assert one[: PROBING + 1] == other[: PROBING + 1] and one != other


def test_evaluations_that_end_within_lp_need_no_step_of_fft(given, tmp_path, whole):
    spec = spec_of("feature_quality", at=[0, 1])
    with watched_trainings() as seen:
        rows = curves_of(record_of(spec, given, tmp_path))
    assert {len(row["accuracy"][0]) for row in rows} == {2}
    assert {len(each.iterates) - 1 for _, _, _, each in by_condition(seen)} == {1, PROBING}


def test_features_do_not_move_during_lp_and_do_in_every_step_of_fft(whole, given):
    trained = body_of(backbone.load(given.backbone).network.state_dict())
    for _, strategy, _, each in by_condition(whole[1]):
        still = PROBING if strategy == "lp-fft" else 0
        for done, weights in enumerate(each.iterates):
            assert equal(body_of(weights), trained) == (done <= still)


def rest_of(data, x):
    """The records of the pool that are not among x, with their labels: what a run tests on."""
    pool = np.concatenate([data.x_train, data.x_test])
    labels = np.concatenate([data.y_train, data.y_test])
    dealt = {row.tobytes() for row in x.numpy()}
    rest = [number for number, row in enumerate(pool) if row.tobytes() not in dealt]
    return pool[rest], labels[rest]


def test_what_is_reported_of_every_step_is_measured_on_that_step_s_network(whole, given):
    record, seen, _ = whole
    private, public = (prepared.load(path.parent) for path in (given.data, given.public))
    rows = {(row["head_scale"], row["strategy"]): row for row in curves_of(record)}
    for scale, strategy, number, each in by_condition(seen):
        row, training = rows[scale, strategy], each.training
        x, truth = rest_of(private, training.x)
        assert len(x) == 12
        for place, weights in enumerate(each.iterates):
            training.model.load_state_dict(weights)
            found = quality_of(training.model, training.x, training.labels, x, truth)
            assert row["private"][number][place] == found
            known = public.x_train[:20], public.y_train[:20]
            found = quality_of(training.model, *known, public.x_test[:10], public.y_test[:10])
            assert row["public"][number][place] == found
            with torch.no_grad():
                predicted = training.model(torch.from_numpy(x)).argmax(1).numpy()
            assert row["accuracy"][number][place] == pytest.approx(np.mean(predicted == truth))


def test_trainings_of_a_run_share_its_head_records_batches_and_noise(whole, given):
    _, seen, keys = whole
    plain = backbone.load(given.backbone)
    found = [*by_condition(seen)]
    firsts = [each.training.x for *_, each in found[:: len(CONDITIONS)]]
    for scale, _, number, each in found:
        assert (each.training.repetition, each.training.shared_noise) == (number, SHARED)
        assert torch.equal(each.training.x, firsts[number])
        fresh = plain.with_new_head(3, key="lp_fft", run=number, base_seed=0)
        assert torch.equal(each.iterates[0]["head.weight"], scale * fresh.head.weight)
    assert not torch.equal(*firsts)
    # A batch and the noise of each of six parameters, once for every run and step.
    assert len(set(keys)) == (1 + 6) * STEPS * RUNS < len(keys)


def test_both_strategies_spend_the_budget_that_the_record_names(whole, guarantee):
    record, seen, _ = whole
    for _, strategy, _, each in by_condition(seen):
        phases = each.training.ran.phases
        assert [phase.steps for phase in phases] == ([2, 2] if strategy == "lp-fft" else [4])
        assert {phase.max_grad_norm for phase in each.training.phases} == {1.0}
        found = guarantee(phases, 1e-5, "add_remove").epsilon
        assert record["metrics"]["epsilon"] == pytest.approx(found, rel=1e-6)
    assert record["ledger"]["epsilon"] == record["metrics"]["epsilon"]
    assert record["ledger"]["steps"] == STEPS
    # The rates were given to the job; whoever gave them may have seen these records.
    (choice,) = record["ledger"]["chosen_on_private_data"]
    assert "does not know" in choice["what"] and choice["cost"] == "not counted"
    released = record["ledger"]["holds_for"].partition("released: ")[2]
    assert released.startswith("every iterate of one run, without nearest neighbours")


def test_the_head_sees_the_features_times_their_scale(whole, given):
    network = whole[1][0].training.model
    network.load_state_dict(whole[1][0].iterates[0])
    x = torch.from_numpy(prepared.load(given.data.parent).x_test)
    plain = backbone.load(given.backbone).network
    assert torch.equal(features_of(network, x), 0.5 * features_of(plain, x))


@pytest.mark.parametrize("noise_source", ["keyed", "os"])
def test_a_job_killed_anywhere_resumes_to_the_same_bytes(given, tmp_path, noise_source):
    spec = spec_of("feature_quality", **SHORT, noise_source=noise_source)
    with pytest.MonkeyPatch.context() as patch, saved_at_every_step():
        # The system gives the first attempt its secret, and another one to whoever asks again.
        patch.setattr("os.urandom", lambda size: b"\0" * size)
        expected = run(spec, given, tmp_path / "whole")
        for kill_at in range(2 * SHORT["steps"]):
            for owner, name in ((PrivateTraining, "step"), (Checkpoints, "save")):
                folder = tmp_path / f"{name}-{kill_at}"
                with killed_at(kill_at, (owner, name)):
                    run(spec, given, folder)
                if kill_at:
                    patch.setattr("os.urandom", lambda size: b"\1" * size)
                with counted((PrivateTraining, "step")) as left:
                    assert run(spec, given, folder) == expected
                patch.setattr("os.urandom", lambda size: b"\0" * size)
                assert len(left) == 2 * SHORT["steps"] - kill_at


def test_a_job_killed_at_a_look_looks_again_and_at_nothing_twice(given, tmp_path):
    spec = spec_of("feature_quality", **SHORT)
    expected = run(spec, given, tmp_path / "whole")
    for look in range(2 * len(SHORT["at"])):
        with saved_at_every_step():
            with killed_at(look, (features.Task, "accuracy")):
                run(spec, given, tmp_path / f"{look}")
            assert run(spec, given, tmp_path / f"{look}") == expected


QUALITY, PICTURE = "feature_quality", "umap"


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (QUALITY, {"at": [0, 2, 1]}, "at: found [0, 2, 1]; allowed: increasing steps"),
        (QUALITY, {"at": [0, 5]}, "at: found [0, 5]; allowed: increasing steps, at most steps = 4"),
        (QUALITY, {"lp_steps": 4}, "lp_steps: found 4"),
        (QUALITY, {"batch": 25}, "batch of the poisson sampler: found 25"),
        (QUALITY, {"neighbours": 21}, "neighbours: found 21"),
        (QUALITY, {"neighbours": 25, "public_known": 30}, "neighbours: found 25"),
        (QUALITY, {"lrs": [0.0]}, "lrs.0: found 0"),
        (PICTURE, {"points": 13}, "points: found 13"),
        (PICTURE, {"early": 4}, "early: found 4"),
        (PICTURE, {"neighbours": 25}, "neighbours: found 25"),
    ],
)
def test_bad_settings_are_refused_by_name_before_any_training(
    given, tmp_path, kind, changes, words
):
    with watched_trainings() as seen, pytest.raises(InputError, match=re.escape(words)):
        run(spec_of(kind, **changes), given, tmp_path)
    assert not seen and not (tmp_path / "record.json").exists()


@pytest.mark.parametrize("value", [np.nan, 3e38])
def test_a_private_record_that_is_not_finite_ends_no_job(tmp_path, value):
    given = given_in(tmp_path, x_train=value)
    with watched_trainings() as seen:
        rows = curves_of(record_of(spec_of("feature_quality"), given, tmp_path))
    measured = [row[name] for row in rows for name in MEASURED]
    assert np.isfinite(measured).all()
    assert all(each.iterates[-1]["head.weight"].isfinite().all() for each in seen)


@pytest.fixture(scope="module")
def pictured(given, tmp_path_factory):
    """(record, trainings) of one spec of umap."""
    with watched_trainings() as seen:
        record = record_of(spec_of("umap"), given, tmp_path_factory.mktemp("pictured"))
    return record, seen


@pytest.mark.slow
def test_a_picture_is_drawn_to_the_same_bits_again(pictured, given, tmp_path):
    assert record_of(spec_of("umap"), given, tmp_path) == pictured[0]


@pytest.mark.slow
def test_panels_come_by_lp_steps_and_then_before_early_and_late(pictured):
    panels = pictured[0]["metrics"]["panels"]
    moments = (("before", 0), ("early", 1), ("late", 3))
    expected = [(first, *moment) for first, moment in product((0, 2), moments)]
    found = [(each["lp_steps"], each["moment"], each["fft_steps"]) for each in panels]
    assert found == expected * RUNS
    for each in panels:
        assert np.shape(each["x"]) == np.shape(each["y"]) == (12,)
        assert np.isfinite([each["x"], each["y"]]).all() and np.ptp(each["x"]) > 0
    labels = [each["labels"] for each in pictured[0]["metrics"]["labels"]]
    assert np.shape(labels) == (RUNS, 12) and labels[0] != labels[1]
    # LP leaves features alone, so both pictures before FFT are one; later ones are not.
    assert panels[0]["x"] == panels[3]["x"] and panels[0]["knn"] == panels[3]["knn"]
    assert panels[1]["x"] != panels[4]["x"]


@pytest.mark.slow
def test_a_picture_s_budget_composes_lp_and_fft(pictured, guarantee):
    record, seen = pictured
    # Of a run: LP, FFT from the start, and FFT after LP.
    assert len(seen) == 3 * RUNS
    budgets, arms = record["metrics"]["budgets"], record["ledger"]["arms"]
    assert [budget["lp_steps"] for budget in budgets] == [0, 2]
    for each, budget, arm in zip(seen[1:3], budgets, arms, strict=True):
        found = guarantee(each.training.ran.phases, 1e-5, "add_remove").epsilon
        assert budget["epsilon"] == pytest.approx(found, rel=1e-6) == arm["epsilon"]
