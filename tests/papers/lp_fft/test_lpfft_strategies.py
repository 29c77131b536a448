"""lp_fft's strategies: budgets, what each phase trains, who sees which record, kills, refusals."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from lpfft_small import (
    VIEWS,
    a_guarantee_that_remembers,  # noqa: F401
    body_of,
    drawn_keys,
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

from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.facts import MAX_RUNS_PER_SETTING
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.jobs.private_plan import NO_CLIP
from dpatlas.models import backbone
from dpatlas.papers.lp_fft.jobs import strategies as lpfft_strategies
from dpatlas.papers.lp_fft.jobs.networks import Networks
from dpatlas.privacy.accounting import Phase
from dpatlas.privacy.accounting import guarantee as accounted
from dpatlas.privacy.samplers import Poisson
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
LORA = {"strategies": ["lp", "lora", "lp-lora"], "shares": [0.5], "lora_rank": 2}
# One setting and one run of three arms, 2 steps each: 12 steps in all.
SHORT = {
    "strategies": ["lp", "fft", "lp-fft"],
    "shares": [0.5],
    "lrs": {"head": [1.0], "full": [0.5], "lora": [0.5]},
    "runs": 1,
    "steps": 2,
}


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


def origin(training):
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
        row = rows[origin(training)[0]]
        phases = [phase.accounted for phase in training.phases]
        assert [phase.steps for phase in phases] == row["steps"]
        assert training.steps_done == sum(row["steps"]) == 4
        found = guarantee(phases, 1e-5, "add_remove")
        assert row["epsilon"] == pytest.approx(found.epsilon, rel=1e-6)
        assert row["guaranteed_by"] == f"every iterate, {found.accountant.upper()}"
        # An accountant that starts anew with each phase would say less.
        for phase in phases if len(phases) == 2 else ():
            assert guarantee([phase], 1e-5, "add_remove").epsilon < 0.95 * row["epsilon"]


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
        strategy, _, steps = ARMS[origin(training)[0]]
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
        if ARMS[origin(one.training)[0]][0] in ("lp", "lp-lp")
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
        arm, block, _ = origin(training)
        rates = [phase.lr for phase in training.phases]
        assert rates[:-1] == rows[arm]["lrs"][:-1]
        assert block != 0 or rates == rows[arm]["lrs"]


def test_controls_try_as_many_settings_as_lp_fft(whole):
    assert {row["settings_tried"] for row in whole[0]["metrics"]["rows"]} == {2}
    tried = {}
    for training in (each.training for each in whole[1]):
        arm, block, _ = origin(training)
        if block:
            tried.setdefault(arm, set()).add(tuple(phase.lr for phase in training.phases))
    assert [len(tried[arm]) for arm in range(len(ARMS))] == [2] * len(ARMS)


def test_run_i_of_every_row_starts_from_the_same_head_and_other_runs_from_others(whole):
    heads = {}
    for training, iterates in ((each.training, each.iterates) for each in whole[1]):
        _, block, run_number = origin(training)
        number = run_number if block == 0 else 2 + run_number
        heads.setdefault(number, []).append(iterates[0]["head.weight"])
    assert [len(heads[number]) for number in (0, 1, 2)] == [6, 6, 12]
    for found in heads.values():
        assert all(torch.equal(found[0], other) for other in found)
    firsts = [found[0] for found in heads.values()]
    assert not any(torch.equal(firsts[i], firsts[j]) for i, j in [(0, 1), (0, 2), (1, 2)])


def test_the_head_s_scale_multiplies_its_initial_weights(whole, given):
    plain = backbone.load(given.backbone).with_new_head(3, key="lp_fft", run=0, base_seed=0)
    starts = {origin(each.training): each.iterates[0] for each in whole[1]}
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


def test_a_secret_of_the_system_is_kept_over_a_kill_and_no_draw_is_made_twice(given, tmp_path):
    spec = spec_of("strategies", **SHORT, noise_source="os")
    with drawn_keys() as keys, watched_trainings() as seen, saved_at_every_step():
        with killed_at(7, (PrivateTraining, "step")):
            run(spec, given, tmp_path)
        run(spec, given, tmp_path)
    assert len({each.training.noise.secret for each in seen}) == 1
    assert len(keys) == len(set(keys)) == 2 * 12


@pytest.mark.parametrize(("share", "steps"), [(0.05, 4), (0.95, 4), (0.5, 1)])
def test_a_share_that_leaves_a_phase_without_a_step_is_refused(given, tmp_path, share, steps):
    with pytest.raises(InputError, match=f"share: found {share:g}; .* one of the {steps} steps"):
        run(spec_of("strategies", shares=[share], steps=steps), given, tmp_path)


def test_without_privacy_gradients_have_no_effective_bound_and_no_guarantee(given, tmp_path):
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 25}, "batch of the poisson sampler: found 25"),
        ({"relation": "replace_one", "accountant": "rdp"}, "accountant: found rdp for poisson"),
        ({"strategies": ["fft", "lp-fft"]}, "allowed: lp beside lp-fft"),
        ({"level": {"noise_multiplier": 1e-6}}, "noise_multiplier: found 1e-06"),
        ({"strategies": ["lp", "lora"]}, "strategies: found lora; allowed: a lora_rank with it"),
        ({"lora_rank": 2}, "strategies: found fft; allowed: no lora_rank with it"),
        ({"augmentation": {**VIEWS, "padding": 4}}, "padding: found 4; allowed: less than 4"),
        ({**LORA, "lora_rank": 7}, "layer linear2"),
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
