"""lp_fft's strategies: what two phases spend together, what they train, who sees which record."""

import json
import re
from itertools import product

import numpy as np
import pytest
import torch
from lpfft_small import (
    accounted_once,
    given_in,
    record_of,
    run,
    saved_at_every_step,
    spec_of,
    watched_trainings,
)
from small_jobs import counted, killed_at

from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.experiments import lpfft_strategies
from dpatlas.experiments.lpfft_networks import Networks
from dpatlas.experiments.lpfft_strategies import NO_CLIP, arms_of
from dpatlas.experiments.search import MOST
from dpatlas.models import backbone
from dpatlas.privacy.training import PrivateTraining

ARMS = [
    ("fft", 0.0, [4]),
    ("lp", 1.0, [4]),
    ("lp-fft", 0.25, [1, 3]),
    ("lp-fft", 0.5, [2, 2]),
    ("lp-lp", 0.5, [2, 2]),
    ("fft-fft", 0.5, [2, 2]),
]
VALIDATION, TEST = 9, 12
VIEWS = {"views": 2, "padding": 1, "flip": True}
LORA = {"strategies": ["lp", "lora", "lp-lora"], "shares": [0.5], "lora_rank": 2}
# One setting and one run of three arms, 2 steps each: 12 steps in all.
SHORT = {
    "strategies": ["lp", "fft", "lp-fft"],
    "shares": [0.5],
    "lrs": {"head": [1.0], "full": [0.5], "lora": [0.5]},
    "runs": 1,
    "steps": 2,
}


@pytest.fixture(autouse=True, scope="module")
def guarantee():
    with accounted_once() as remembered:
        yield remembered


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return given_in(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def whole(given, tmp_path_factory):
    """(record, trainings, draws' keys, sizes of the parts that were scored) of one job."""
    keys, scored = [], []
    real_key, real_accuracy = Noise.key, lpfft_strategies.accuracy

    def key(*arguments):
        keys.append(real_key(*arguments))
        return keys[-1]

    def accuracy(outputs, labels):
        scored.append(len(labels))
        return real_accuracy(outputs, labels)

    with pytest.MonkeyPatch.context() as patch, watched_trainings() as seen:
        patch.setattr(Noise, "key", key)
        patch.setattr(lpfft_strategies, "accuracy", accuracy)
        record = record_of(spec_of("strategies"), given, tmp_path_factory.mktemp("whole"))
    return record, seen, keys, scored


def place(training):
    """(arm, 0 for a reported run or 1 + setting, run) of a training."""
    rest, number = divmod(training.repetition, MOST)
    return (*divmod(rest, MOST), number)


def body_of(weights):
    return {name: value for name, value in weights.items() if not name.startswith("head.")}


def equal(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


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
    monkeypatch.setattr(Networks, "behind_features", lambda networks, net: (net, networks.x))
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


@pytest.mark.parametrize("changes", [{}, {"augmentation": VIEWS, "ema_decay": 0.5}])
def test_a_job_killed_anywhere_resumes_to_the_same_bytes(given, tmp_path, changes):
    spec = spec_of("strategies", **SHORT, **changes)
    expected = run(spec, given, tmp_path / "whole")
    step, save = (PrivateTraining, "step"), (Checkpoints, "save")
    with saved_at_every_step():
        for kill_at, (owner, name) in product(range(12), (step, save)):
            folder = tmp_path / f"{name}-{kill_at}"
            with killed_at(kill_at, (owner, name)):
                run(spec, given, folder)
            with counted(step) as left:
                assert run(spec, given, folder) == expected
            # A step whose checkpoint was lost is taken again.
            assert len(left) == 12 - kill_at


def test_a_secret_of_the_system_is_kept_over_a_kill_and_no_draw_is_made_twice(
    given, tmp_path, monkeypatch
):
    keys, real_key = [], Noise.key

    def key(*arguments):
        keys.append(real_key(*arguments))
        return keys[-1]

    monkeypatch.setattr(Noise, "key", key)
    spec = spec_of("strategies", **SHORT, noise_source="os")
    with watched_trainings() as seen, saved_at_every_step():
        with killed_at(7, (PrivateTraining, "step")):
            run(spec, given, tmp_path)
        run(spec, given, tmp_path)
    assert len({each.training.noise.secret for each in seen}) == 1
    assert len(keys) == len(set(keys)) == 2 * 12


@pytest.mark.parametrize(("share", "steps"), [(0.05, 4), (0.95, 4), (0.5, 1)])
def test_a_share_that_leaves_a_phase_without_a_step_is_refused(given, tmp_path, share, steps):
    with pytest.raises(InputError, match=f"share: found {share:g}; .* one of the {steps} steps"):
        run(spec_of("strategies", shares=[share], steps=steps), given, tmp_path)


def test_a_second_phase_without_the_first_alone_is_refused():
    fields = spec_of("strategies", strategies=["fft", "lp-fft"]).fields
    with pytest.raises(InputError, match="lp-fft without lp"):
        list(arms_of(fields))


def test_without_privacy_nothing_is_clipped_and_nothing_is_guaranteed(given, tmp_path):
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies", level={"noise_multiplier": 0.0}), given, tmp_path)
    phases = [phase for each in seen for phase in each.training.phases]
    assert {phase.max_grad_norm for phase in phases} == {NO_CLIP}
    assert {phase.noise_multiplier for phase in phases} == {0.0}
    for row in record["metrics"]["rows"]:
        assert [row[name] for name in ("epsilon", "relation", "max_grad_norm")] == [None] * 3
    ledger = record["ledger"]
    assert ledger["epsilon"] is None and ledger["delta"] is None
    for arm in ledger["arms"]:
        assert arm["epsilon"] is None and arm["guaranteed"] == "nothing: no noise"


def test_noise_is_calibrated_to_an_epsilon_and_said_aloud(given, tmp_path, capsys):
    spec = spec_of("strategies", **SHORT, level={"epsilon": 8.0}, accountant="pld")
    rows = record_of(spec, given, tmp_path)["metrics"]["rows"]
    (noise,) = {row["noise_multiplier"] for row in rows}
    for row in rows:
        assert 7.9 < row["epsilon"] <= row["target_epsilon"] == 8.0
        assert row["guaranteed_by"] == "every iterate, PLD"
    said = capsys.readouterr().err
    assert f"{spec.id}: epsilon 8 takes noise multiplier {noise:.4g}\n" in said
    assert "outweighs" not in said


def test_noise_above_all_that_the_batches_can_add_up_to_is_warned_of(given, tmp_path, capsys):
    # 21 numbers of the head, 4 batches of 6: from a noise multiplier of 12 / sqrt(21) = 2.6 on.
    for noise, warned in ((2.5, False), (2.7, True)):
        record_of(
            spec_of("strategies", level={"noise_multiplier": noise}, strategies=["lp"]),
            given,
            tmp_path / f"{noise}",
        )
        assert ("expect the accuracy of chance" in capsys.readouterr().err) == warned


@pytest.mark.parametrize("augmentation", [None, VIEWS])
def test_the_averaged_weights_are_what_is_scored(given, tmp_path, monkeypatch, augmentation):
    scored, real_outputs = [], lpfft_strategies.outputs

    def outputs(model, x):
        scored.append({name: value.clone() for name, value in model.state_dict().items()})
        return real_outputs(model, x)

    monkeypatch.setattr(lpfft_strategies, "outputs", outputs)
    with watched_trainings() as seen:
        averaged = {"ema_decay": 0.75, "augmentation": augmentation}
        record_of(spec_of("strategies", **SHORT, **averaged), given, tmp_path)
    for each, found in zip(seen, scored, strict=True):
        expected = each.iterates[0]
        for done, weights in enumerate(each.iterates[1:]):
            decay = min(0.75, (1 + done) / (10 + done))
            expected = {k: decay * expected[k] + (1 - decay) * weights[k] for k in weights}
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
        assert not torch.allclose(found["head.weight"], each.iterates[-1]["head.weight"])


def test_lora_trains_its_branches_and_the_head_and_no_bit_of_the_base(given, tmp_path):
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies", **LORA), given, tmp_path)
    trained = body_of(backbone.load(given.backbone).network.state_dict())
    # Branches of rank 2 of 16 -> 8 and 8 -> 6, and the head of 6 -> 3.
    branches = 2 * (16 + 8) + 2 * (8 + 6)
    rows = record["metrics"]["rows"]
    assert [row["trained_parameters"] for row in rows] == [21, 21 + branches, 21 + branches]
    whole_networks = [each for each in seen if body_of(each.iterates[0])]
    assert len(whole_networks) == 8
    for each in whole_networks:
        for weights in each.iterates:
            base = {k.replace("base.", ""): v for k, v in body_of(weights).items() if "base." in k}
            assert equal(base, trained)
        moved = {k for k, v in each.iterates[-1].items() if not torch.equal(v, each.iterates[0][k])}
        names = {f"linear{i}.{part}.weight" for i in (1, 2) for part in ("down", "up")}
        assert moved == names | {"head.weight", "head.bias"}


def test_a_rank_above_a_layer_s_width_is_refused_by_the_layer_s_name(given, tmp_path):
    with pytest.raises(InputError, match=r"rank: found 7; allowed: at most 6, .* layer linear2"):
        run(spec_of("strategies", **{**LORA, "lora_rank": 7}), given, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 25}, "batch of the poisson sampler: found 25"),
        ({"steps": 0}, "steps: found 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm: found 0"),
        ({"head_scale": 0.0}, "head_scale: found 0"),
        ({"relation": "remove_one"}, "relation"),
        ({"relation": "replace_one", "accountant": "rdp"}, "accountant: found rdp for poisson"),
        ({"strategies": ["lp", "ftt"]}, "strategies: found 'ftt'"),
        ({"shares": [1.5]}, "share: found 1.5"),
        ({"delta": 0.0}, "delta: found 0"),
        ({"level": {"noise_multiplier": 1e-6}}, "noise_multiplier: found 1e-06"),
        ({"strategies": ["lp", "lora"]}, "strategies: found lora; allowed: a lora_rank with it"),
        ({"lora_rank": 2}, "strategies: found fft; allowed: no lora_rank with it"),
        ({"augmentation": {**VIEWS, "padding": 4}}, "padding: found 4; allowed: less than 4"),
        ({"backbone": "another"}, "--backbone: found small-backbone; allowed: another"),
    ],
)
def test_bad_settings_are_refused_by_name_before_any_training(given, tmp_path, changes, words):
    with watched_trainings() as seen, pytest.raises(InputError, match=re.escape(words)):
        run(spec_of("strategies", **changes), given, tmp_path)
    assert not seen and not (tmp_path / "record.json").exists()


def test_a_record_that_is_not_finite_poisons_nothing(tmp_path):
    given = given_in(tmp_path, x_train=np.nan)
    with watched_trainings() as seen:
        record_of(spec_of("strategies"), given, tmp_path)
    assert sum(each.training.skipped_records for each in seen) > 0
    for each in seen:
        assert all(bool(value.isfinite().all()) for value in each.iterates[-1].values())


def test_the_record_says_what_was_compared(whole, given):
    metrics = whole[0]["metrics"]
    assert [metrics[f"n_{part}"] for part in ("train", "validation", "test")] == [24, 9, 12]
    assert metrics["classes"] == 3
    assert metrics["backbone"]["sha256"] == backbone.load(given.backbone).sha256
    assert json.loads(json.dumps(metrics)) == metrics
