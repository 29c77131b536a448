"""lp_fft's strategies under other settings: killed, without privacy, averaged, LoRA, refused."""

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
from dpatlas.errors import InputError
from dpatlas.jobs.private_plan import NO_CLIP
from dpatlas.models import backbone
from dpatlas.papers.lp_fft.jobs import strategies as lpfft_strategies
from dpatlas.privacy.training import PrivateTraining

LORA = {"strategies": ["lp", "lora", "lp-lora"], "shares": [0.5], "lora_rank": 2}
# One setting and one run of three arms, 2 steps each: 12 steps in all.
SHORT = {
    "strategies": ["lp", "fft", "lp-fft"],
    "shares": [0.5],
    "lrs": {"head": [1.0], "full": [0.5], "lora": [0.5]},
    "runs": 1,
    "steps": 2,
}


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


def test_a_second_phase_without_the_first_alone_is_refused(given, tmp_path):
    with pytest.raises(InputError, match=r"strategies: found .*; allowed: lp beside lp-fft"):
        run(spec_of("strategies", strategies=["fft", "lp-fft"]), given, tmp_path)


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
        ({"strategies": ["lp", "ftt"]}, "strategies.1: found 'ftt'"),
        ({"shares": [1.5]}, "shares.0: found 1.5"),
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
