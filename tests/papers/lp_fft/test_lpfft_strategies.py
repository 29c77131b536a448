"""lp_fft's strategies: what two phases spend together, what they train, who sees which record."""

import json

import numpy as np
import pytest
import torch
from lpfft_small import (
    VIEWS,
    a_guarantee_that_remembers,  # noqa: F401
    body_of,
    drawn_keys,
    equal,
    record_of,
    spec_of,
    watched_trainings,
    what_jobs_are_given,  # noqa: F401
)

from dpatlas.core.facts import MAX_RUNS_PER_SETTING
from dpatlas.data import prepared
from dpatlas.models import backbone
from dpatlas.papers.lp_fft.jobs import strategies as lpfft_strategies
from dpatlas.papers.lp_fft.jobs.networks import Networks
from dpatlas.privacy.accounting import Phase
from dpatlas.privacy.accounting import guarantee as accounted
from dpatlas.privacy.samplers import Poisson

ARMS = [
    ("fft", 0.0, [4]),
    ("lp", 1.0, [4]),
    ("lp-fft", 0.25, [1, 3]),
    ("lp-fft", 0.5, [2, 2]),
    ("lp-lp", 0.5, [2, 2]),
    ("fft-fft", 0.5, [2, 2]),
]
VALIDATION, TEST = 9, 12


@pytest.fixture(scope="module")
def whole(given, tmp_path_factory):
    """(record, trainings, draws' keys, sizes of the parts that were scored) of one job."""
    scored, real_accuracy = [], lpfft_strategies.accuracy

    def accuracy(outputs, labels):
        scored.append(len(labels))
        return real_accuracy(outputs, labels)

    with pytest.MonkeyPatch.context() as patch, drawn_keys() as keys, watched_trainings() as seen:
        patch.setattr(lpfft_strategies, "accuracy", accuracy)
        record = record_of(spec_of("strategies"), given, tmp_path_factory.mktemp("whole"))
    return record, seen, keys, scored


def place(training):
    """(arm, 0 for a reported run or 1 + setting, run) of a training."""
    rest, number = divmod(training.repetition, MAX_RUNS_PER_SETTING)
    return (*divmod(rest, MAX_RUNS_PER_SETTING), number)


def test_every_strategy_has_its_arms_and_shares_of_0_and_1_add_none(whole):
    rows = whole[0]["metrics"]["rows"]
    assert [(row["strategy"], row["share"], row["steps"]) for row in rows] == ARMS


def test_a_row_s_epsilon_is_what_the_accountant_gives_all_steps_of_its_trainings(whole, guarantee):
    record, seen, *_ = whole
    rows = record["metrics"]["rows"]
    assert len({row["epsilon"] for row in rows}) == 1
    for training in (each.training for each in seen):
        row = rows[place(training)[0]]
        phases = [phase.accounted for phase in training.phases]
        assert [phase.steps for phase in phases] == row["steps"]
        assert training.steps_done == sum(row["steps"]) == 4
        found = guarantee(phases, 1e-5, "add_remove")
        assert row["epsilon"] == pytest.approx(found.epsilon, rel=1e-6)
        assert row["guaranteed_by"] == f"every iterate, {found.accountant.upper()}"


def test_one_phase_of_two_alone_would_cost_less_than_the_row_says(whole, guarantee):
    # Otherwise the test above could not tell an accountant that starts anew with a phase.
    record, seen, *_ = whole
    for training in (each.training for each in seen if len(each.training.phases) == 2):
        spent = record["metrics"]["rows"][place(training)[0]]["epsilon"]
        for phase in training.phases:
            assert guarantee([phase.accounted], 1e-5, "add_remove").epsilon < 0.95 * spent


def test_the_ledger_s_arms_agree_with_the_rows(whole):
    ledger, rows = whole[0]["ledger"], whole[0]["metrics"]["rows"]
    for arm, row in zip(ledger["arms"], rows, strict=True):
        assert arm["arm"] == f"{row['strategy']}, share {row['share']:g}"
        assert arm["epsilon"] == pytest.approx(row["epsilon"], rel=1e-6)
        assert arm["clip"] in (1.0, [1.0, 1.0])
        steps, noise = np.atleast_1d(arm["steps"]), np.atleast_1d(arm["noise_multiplier"])
        assert steps.tolist() == row["steps"]
        assert set(noise) == {row["noise_multiplier"]} == {2.0}
    assert ledger["epsilon"] == rows[0]["epsilon"] and ledger["delta"] == 1e-5


def test_a_strategy_of_two_phases_pays_for_the_trials_of_its_first_phase_alone(whole):
    record = whole[0]
    fields, rows = record["spec"], record["metrics"]["rows"]
    for arm, row in zip(record["ledger"]["arms"], rows, strict=True):
        own = row["settings_tried"] * fields["tuning_runs"]
        first = row["strategy"].split("-")[0]
        before = [each for each in rows if len(row["steps"]) > 1 and each["strategy"] == first]
        alone = sum(each["settings_tried"] * fields["tuning_runs"] for each in before)
        assert row["trials"] == arm["tuning"]["trials"] == own + alone
        steps = fields["steps"] * (own + alone + 1)
        law = Poisson(record["metrics"]["n_train"], fields["batch"])
        expected = accounted([Phase(law, 2.0, steps)], 1e-5, "add_remove").epsilon
        assert row["with_tuning_epsilon"] == pytest.approx(expected, rel=1e-6)
        assert row["with_tuning_epsilon"] <= row["all_runs_epsilon"]


def test_the_lp_phase_leaves_the_body_s_bits_alone_and_fft_moves_them(whole, given):
    trained = body_of(backbone.load(given.backbone).network.state_dict())
    checked = set()
    for training, iterates in ((each.training, each.iterates) for each in whole[1]):
        if not body_of(iterates[0]):
            continue
        strategy, _, steps = ARMS[place(training)[0]]
        probing = steps[0] if strategy == "lp-fft" else 0
        for done, weights in enumerate(iterates):
            assert equal(body_of(weights), trained) == (done <= probing)
        checked.add((strategy, probing))
    assert checked == {("fft", 0), ("fft-fft", 0), ("lp-fft", 1), ("lp-fft", 2)}


def test_lp_of_augmented_images_leaves_the_body_s_bits_alone(given, tmp_path):
    alone = {"strategies": ["lp"], "augmentation": VIEWS}
    with watched_trainings() as seen:
        record_of(spec_of("strategies", **alone), given, tmp_path)
    trained = body_of(backbone.load(given.backbone).network.state_dict())
    assert len(seen) == 4
    for each in seen:
        assert all(equal(body_of(weights), trained) for weights in each.iterates)
        assert each.training.views == 2


def test_lp_on_kept_features_is_lp_on_the_whole_network(whole, given, tmp_path, monkeypatch):
    monkeypatch.setattr(Networks, "on_frozen_features", lambda networks, net: (net, networks.x))
    with watched_trainings() as slow:
        record_of(spec_of("strategies"), given, tmp_path)
    pairs = [
        (one, two)
        for one, two in zip(whole[1], slow, strict=True)
        if ARMS[place(one.training)[0]][0] in ("lp", "lp-lp")
    ]
    assert len(pairs) == 8
    for one, two in pairs:
        assert not body_of(one.iterates[0]) and body_of(two.iterates[0])
        for kept, computed in zip(one.iterates, two.iterates, strict=True):
            for name, value in kept.items():
                np.testing.assert_allclose(value, computed[name], rtol=1e-4, atol=1e-5)


def test_a_first_phase_takes_the_rate_that_was_best_alone(whole):
    rows = whole[0]["metrics"]["rows"]
    alone = {row["strategy"]: row["lrs"] for row in rows if len(row["lrs"]) == 1}
    for row in rows[2:]:
        assert row["lrs"][:1] == alone["fft" if row["strategy"] == "fft-fft" else "lp"]
    for training in (each.training for each in whole[1]):
        arm, block, _ = place(training)
        rates = [phase.lr for phase in training.phases]
        assert rates[:-1] == rows[arm]["lrs"][:-1]
        assert block != 0 or rates == rows[arm]["lrs"]


def test_controls_try_as_many_settings_as_lp_fft(whole):
    assert {row["settings_tried"] for row in whole[0]["metrics"]["rows"]} == {2}
    tried = {}
    for training in (each.training for each in whole[1]):
        arm, block, _ = place(training)
        if block:
            tried.setdefault(arm, set()).add(tuple(phase.lr for phase in training.phases))
    assert [len(tried[arm]) for arm in range(len(ARMS))] == [2] * len(ARMS)


def test_run_i_of_every_row_starts_from_the_same_head_and_other_runs_from_others(whole):
    heads = {}
    for training, iterates in ((each.training, each.iterates) for each in whole[1]):
        _, block, run_number = place(training)
        number = run_number if block == 0 else 2 + run_number
        heads.setdefault(number, []).append(iterates[0]["head.weight"])
    assert [len(heads[number]) for number in (0, 1, 2)] == [6, 6, 12]
    for found in heads.values():
        assert all(torch.equal(found[0], other) for other in found)
    firsts = [found[0] for found in heads.values()]
    assert not any(torch.equal(firsts[i], firsts[j]) for i, j in [(0, 1), (0, 2), (1, 2)])


def test_the_head_s_scale_multiplies_its_initial_weights(whole, given):
    plain = backbone.load(given.backbone).with_new_head(3, key="lp_fft", run=0, base_seed=0)
    starts = {place(each.training): each.iterates[0] for each in whole[1]}
    assert torch.equal(starts[0, 0, 0]["head.weight"], 2 * plain.head.weight)


def test_no_draw_of_batches_or_noise_is_made_twice(whole):
    _, seen, keys, _ = whole
    assert len(keys) == len(set(keys)) == 2 * 4 * len(seen)


def test_tuning_sees_validation_records_only_and_reported_runs_the_test_records_once(whole):
    assert whole[3] == [VALIDATION, VALIDATION, TEST, TEST] * len(ARMS)


def test_test_records_change_the_accuracies_and_nothing_else(whole, given, tmp_path):
    data = prepared.load(given.data.parent)
    arrays = {f"{a}_{part}": getattr(data, f"{a}_{part}") for part in
              ("train", "add", "test", "validation") for a in "xy"}  # fmt: skip
    arrays["y_test"] = (arrays["y_test"] + 1) % 3
    facts = {k: data.manifest[k] for k in ("name", "classes", "image_shape", "preprocessing")}
    prepared.save(tmp_path / "data", arrays, facts)
    other = given.__class__(tmp_path / "data" / "manifest.json", given.public, given.backbone)
    found = record_of(spec_of("strategies"), other, tmp_path)["metrics"]["rows"]
    rows = whole[0]["metrics"]["rows"]
    assert [row.pop("accuracy") for row in found] != [row["accuracy"] for row in rows]
    assert found == [{k: v for k, v in row.items() if k != "accuracy"} for row in rows]


def test_the_record_says_what_was_compared(whole, given):
    metrics = whole[0]["metrics"]
    assert [metrics[f"n_{part}"] for part in ("train", "validation", "test")] == [24, 9, 12]
    assert metrics["classes"] == 3
    assert metrics["backbone"]["sha256"] == backbone.load(given.backbone).sha256
    assert json.loads(json.dumps(metrics)) == metrics
