"""lp_fft's strategies: budgets, what each phase trains, what runs share, kills, refusals."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from lpfft_small import (
    CHOSEN,
    VIEWS,
    Given,
    a_guarantee_that_remembers,  # noqa: F401
    body_of,
    equal,
    record_of,
    run,
    saved_at_every_step,
    spec_of,
    watched_trainings,
    what_jobs_are_given,  # noqa: F401
)
from small_jobs import counted, killed_at

from dpatlas.base.checkpoints import Checkpoints
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.models import backbone
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs import strategies as lpfft_strategies
from dpatlas_workflow.records import parse_record
from dpatlas_workflow.rows import arms as arms_over_runs
from dpatlas_workflow.run.private_plan import NO_CLIP
from dpatlas_workflow.run.reports import SHARED

ARMS = [("fft", 0.0, [4]), ("lp", 1.0, [4]), ("lp-fft", 0.25, [1, 3])]
ARMS += [(strategy, 0.5, [2, 2]) for strategy in ("lp-fft", "lp-lp", "fft-fft")]
# LP-LP, which keeps LP's rate, is LP: a run has no training of its own for it.
TRAINED = [arm for arm in ARMS if arm[0] != "lp-lp"]
RUNS, TRAIN, TEST, FIXED = 2, 24, 12, 9
# Records of a trial: five sixths of the fixed part.
TRIED = 7
LORA = {"strategies": ["lp", "lora", "lp-lora"], "shares": [0.5], "lora_rank": 2}
# One run of three arms, 2 steps each.
SHORT = {"strategies": ["lp", "fft", "lp-fft"], "shares": [0.5], "runs": 1, "steps": 2}


@pytest.fixture(scope="module")
def whole(given, tmp_path_factory):
    """(record, trainings) of one job; each run has those of `TRAINED`, in their order."""
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies"), given, tmp_path_factory.mktemp("whole"))
    return record, seen


@pytest.fixture(scope="module")
def tuned(given, tmp_path_factory):
    """(path of the record, record, trainings) of a tuning."""
    folder = tmp_path_factory.mktemp("tuned")
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies_tuning"), given, folder)
    return folder / "record.json", record, seen


def rows_of(record):
    """The arms of a record (JSON), each with the list over runs of its accuracies."""
    return arms_over_runs(parse_record(record, "record"))


def by_arm(seen):
    """(arm, run, training) of every training of a whole job."""
    assert len(seen) == RUNS * len(TRAINED)
    for number, each in enumerate(seen):
        yield TRAINED[number % len(TRAINED)], number // len(TRAINED), each


def test_a_row_s_epsilon_is_what_the_accountant_gives_all_steps_of_its_trainings(whole, guarantee):
    record, seen = whole
    rows = rows_of(record)
    assert [(row["strategy"], row["share"], row["steps"]) for row in rows] == ARMS
    assert all(len(row["accuracy"]) == RUNS for row in rows)
    assert len({row["epsilon"] for row in rows}) == 1
    for (strategy, share, steps), _, each in by_arm(seen):
        row = rows[ARMS.index((strategy, share, steps))]
        phases = each.training.ran.phases
        # LP and FFT are trained to the end for all that go on from them, which count their steps.
        assert [phase.steps for phase in phases] == row["steps"]
        found = guarantee(phases, 1e-5, "add_remove")
        assert row["epsilon"] == pytest.approx(found.epsilon, rel=1e-6)
        assert row["guaranteed_by"] == f"every iterate, {found.accountant.upper()}"
        # An accountant that starts anew with each phase would say less.
        for phase in phases if len(phases) == 2 else ():
            assert guarantee([phase], 1e-5, "add_remove").epsilon < 0.95 * row["epsilon"]


def test_the_ledger_s_arms_agree_with_the_rows_and_say_that_they_share_noise(whole):
    ledger, rows = whole[0]["ledger"], rows_of(whole[0])
    for arm, row in zip(ledger["arms"], rows, strict=True):
        phases = f", share {row['share']:g}" if len(row["steps"]) == 2 else ""
        assert arm["arm"] == f"{row['strategy']}{phases}"
        assert arm["epsilon"] == pytest.approx(row["epsilon"], rel=1e-6)
        assert arm["clip"] in (1.0, [1.0, 1.0])
        steps, noise = np.atleast_1d(arm["steps"]), np.atleast_1d(arm["noise_multiplier"])
        assert steps.tolist() == row["steps"]
        assert set(noise) == {row["noise_multiplier"]} == {2.0}
        assert SHARED in arm["holds_for"] and arm["public_constants"] == ["max_grad_norm"]
    # A head that is trained by itself is all of its own network.
    mechanism = {arm["arm"]: arm["mechanism"] for arm in ledger["arms"]}
    assert (
        mechanism["lp"] != mechanism["fft"] and mechanism["fft"] in mechanism["lp-fft, share 0.5"]
    )
    assert ledger["epsilon"] is None and "all arms together have no guarantee" in str(ledger)
    (choice,) = ledger["chosen_on_private_data"]
    assert f"small-tuning on {FIXED} records that are in no run" in choice["what"]


def test_the_lp_phase_leaves_the_body_s_bits_alone_and_fft_moves_them(whole, given):
    trained = body_of(backbone.load(given.backbone).network.state_dict())
    for (strategy, _, _), _, each in by_arm(whole[1]):
        bodies = [body_of(weights) for weights in each.iterates]
        if strategy in ("lp", "lp-lp"):
            assert not any(bodies)
            continue
        for done, body in enumerate(bodies):
            assert equal(body, trained) == (done == 0 and strategy != "fft-fft")


def without_repetition(record):
    """The record as text, where each phase's mechanism names the network only once."""
    return str(record).replace(" of Network; then", "; then")


def test_an_arm_that_goes_on_from_another_is_the_arm_trained_alone(
    whole, given, tmp_path, monkeypatch
):
    """To the bit on the same records; LP-FFT trains its head on features, and but for rounding."""
    monkeypatch.setattr(lpfft_strategies.StrategyTrainings, "_branches", lambda self, one: False)
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies"), given, tmp_path)
    assert without_repetition(record) == without_repetition(whole[0])
    assert len(seen) == RUNS * len(ARMS)
    apart = dict(zip(product(range(RUNS), [arm[:2] for arm in ARMS]), seen, strict=True))
    for arm, number, each in by_arm(whole[1]):
        other = apart[number, arm[:2]]
        assert other.training.after is None and other.training.first_step == 0
        if arm[0] == "lp-fft":
            assert len(other.training.phases) == 2
            for name, value in each.iterates[-1].items():
                np.testing.assert_allclose(value, other.iterates[-1][name], rtol=1e-4, atol=1e-5)
        else:
            taken = len(other.iterates) - len(each.iterates)
            assert taken == (arm[2][0] if len(arm[2]) == 2 else 0)
            assert all(map(equal, each.iterates, other.iterates[taken:]))


def test_steps_in_common_are_taken_once_with_augmented_images_too(given, tmp_path, monkeypatch):
    spec = spec_of("strategies", augmentation=VIEWS)
    with watched_trainings() as seen:
        record = record_of(spec, given, tmp_path / "whole")
    # FFT and LP, 3 and 2 steps of FFT after LP, 2 of the second rate of FFT.
    steps = [len(each.iterates) - 1 for each in seen]
    assert steps == [4, 4, 3, 2, 2] * RUNS
    trained = body_of(backbone.load(given.backbone).network.state_dict())
    for lp in seen[1 :: len(TRAINED)]:
        assert lp.training.views == 2
        assert all(equal(body_of(weights), trained) for weights in lp.iterates)
    monkeypatch.setattr(lpfft_strategies.StrategyTrainings, "_branches", lambda self, one: False)
    with counted((PrivateTraining, "step")) as steps:
        other = record_of(spec, given, tmp_path / "apart")
    assert without_repetition(other) == without_repetition(record)
    assert len(steps) == RUNS * 4 * len(ARMS)


def test_arms_whose_first_rates_differ_have_no_steps_in_common(given, tmp_path):
    chosen = {**CHOSEN, "fft-fft, share 0.5": {"lrs": [0.5, 1.0]}}
    chosen["lp-lp, share 0.5"] = {"lrs": [0.3, 9.0]}
    with watched_trainings() as seen:
        record_of(spec_of("strategies", chosen=chosen, runs=1), given, tmp_path)
    fft, lp, *lp_fft, lp_lp, lp_lp_after, fft_fft = (each.training for each in seen)
    assert [each.first_step for each in (fft, lp, *lp_fft)] == [0, 0, 1, 2]
    assert (lp_lp.first_step, lp_lp_after.first_step, fft_fft.first_step) == (0, 2, 0)
    assert [phase.lr for phase in fft_fft.phases] == [0.5, 1.0]


def test_a_control_that_keeps_lp_s_rate_is_lp(whole):
    """Nothing is gained by a second rate then; a second rate of FFT makes another training."""
    rows = {row["strategy"]: row for row in rows_of(whole[0])}
    assert rows["lp-lp"]["lrs"] == [9.0, 9.0]
    assert rows["lp-lp"]["accuracy"] == rows["lp"]["accuracy"]
    last = {arm: each.iterates[-1] for (arm, _, _), number, each in by_arm(whole[1]) if not number}
    assert not equal(last["fft-fft"], last["fft"])
    arms = {arm["arm"]: arm for arm in whole[0]["ledger"]["arms"]}
    assert arms["lp-lp, share 0.5"]["steps"] == [2, 2]
    assert arms["lp-lp, share 0.5"]["mechanism"] == arms["lp"]["mechanism"]


def test_arms_of_a_run_share_its_head_batches_noise_and_records_and_runs_share_none(whole, given):
    plain = backbone.load(given.backbone)
    firsts = [whole[1][number * len(TRAINED)] for number in range(RUNS)]
    for _, number, each in by_arm(whole[1]):
        training = each.training
        assert (training.repetition, training.shared_noise) == (number, SHARED)
        assert torch.equal(training.labels, firsts[number].training.labels)
        if training.first_step == 0:
            fresh = plain.with_new_head(3, key="lp_fft", run=number, base_seed=0)
            assert torch.equal(each.iterates[0]["head.weight"], 2 * fresh.head.weight)
    labels = [each.training.labels for each in firsts]
    assert not torch.equal(*labels) and {len(each) for each in labels} == {TRAIN}
    assert not torch.equal(*(each.iterates[0]["head.weight"] for each in firsts))


@pytest.mark.parametrize(
    ("kind", "value", "parts"),
    [
        ("strategies", 3.0, {"validation": FIXED}),
        ("strategies_tuning", 0.0, {"train": TRAIN, "test": TEST}),
    ],
)
def test_a_tuning_sees_the_fixed_part_alone_and_reported_runs_never_do(
    whole, tuned, given, tmp_path, kind, value, parts
):
    """With other records in the other parts, and features of them, the metrics are the same."""
    data = prepared.load(given.data.parent)
    arrays = {
        f"{name}_{part}": getattr(data, f"{name}_{part}")
        for name, part in product("xy", ("train", "add", "test", "validation"))
    }
    arrays |= {f"x_{part}": np.full((n, 16), value, np.float32) for part, n in parts.items()}
    facts = ("name", "classes", "image_shape", "preprocessing")
    prepared.save(tmp_path / "data", arrays, {name: data.manifest[name] for name in facts})
    other = Given(tmp_path / "data/manifest.json", given.public, given.backbone)
    found = record_of(spec_of(kind), other, tmp_path)
    expected = {"strategies": whole[0], "strategies_tuning": tuned[1]}[kind]
    assert found["data"]["sha256"] != expected["data"]["sha256"]
    for name in ("arms", "runs", "rows"):
        assert found["metrics"].get(name) == expected["metrics"].get(name)


def test_a_first_phase_takes_the_rate_that_was_best_alone_and_all_try_as_many(tuned):
    rows = {row["arm"]: row for row in tuned[1]["metrics"]["rows"]}
    rates = {"full": [0.1, 1.0], "head": [0.3, 9.0]}
    for name, row in rows.items():
        strategy = name.partition(",")[0]
        last = rates["head" if strategy.endswith("lp") else "full"]
        first = {"fft-fft": rows["fft"], "lp-lp": rows["lp"], "lp-fft": rows["lp"]}.get(strategy)
        before = first["chosen"]["lrs"] if first else []
        assert [each["settings"]["lrs"] for each in row["tried"]] == [[*before, lr] for lr in last]
        assert row["trials"] == 2 * (1 + len(before)) and row["trials_epsilon"] > 0
    assert list(rows) == [name for name in CHOSEN if name in rows]
    assert tuned[1]["metrics"]["n_fixed"] == FIXED


def test_no_two_trials_share_noise_and_a_trial_of_two_phases_is_one_training(tuned):
    trainings = [each.training for each in tuned[2]]
    assert len({each.repetition for each in trainings}) == len(trainings) == 2 * len(ARMS)
    assert {(each.shared_noise, each.after, len(each.x)) for each in trainings} == {
        (None, None, TRIED)
    }
    assert {sum(phase.steps for phase in each.phases) for each in trainings} == {4}
    # The same noise on the mean of a batch.
    assert {phase.noise_multiplier for each in trainings for phase in each.phases} == {2.0}


def test_runs_take_what_the_tuning_that_they_wait_for_chose(tuned, given, tmp_path):
    path, record, _ = tuned
    spec = spec_of("strategies", tuning=record["id"], chosen=None)
    rows = rows_of(record_of(spec, given, tmp_path, tuning=path))
    chosen = [row["chosen"]["lrs"] for row in record["metrics"]["rows"]]
    assert [row["lrs"] for row in rows] == chosen
    with pytest.raises(InputError, match="no settings of lp-fft, share 0"):
        lacking = {name: CHOSEN[name] for name in ("lp", "fft")}
        run(spec_of("strategies", chosen=lacking), given, tmp_path)


# Every strategy of a job that may be killed, and the steps that it takes: FFT-FFT goes on from FFT.
BRANCHED = {"strategies": ["fft", "lp", "lp-fft", "fft-fft"], "control_shares": [0.5]}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 5),
        ({"augmentation": VIEWS, "ema_decay": 0.5}, 6),
        ({**BRANCHED, "augmentation": VIEWS}, 6),
        ({**BRANCHED, "noise_source": "os"}, 6),
    ],
)
def test_a_job_killed_anywhere_resumes_to_the_same_bytes_and_takes_no_step_again(
    given, tmp_path, changes, count
):
    spec = spec_of("strategies", **{**SHORT, **changes})
    step, save = (PrivateTraining, "step"), (Checkpoints, "save")
    with pytest.MonkeyPatch.context() as patch, saved_at_every_step():
        # The system gives the first attempt its secret, and another one to whoever asks again.
        patch.setattr("os.urandom", lambda size: b"\0" * size)
        with counted(step) as steps, counted(save) as saves:
            expected = run(spec, given, tmp_path / "whole")
        assert len(steps) == count
        kills = [*product(range(len(steps)), [step]), *product(range(len(saves)), [save])]
        for kill_at, place in kills:
            folder = tmp_path / f"{place[1]}-{kill_at}"
            with killed_at(kill_at, place):
                run(spec, given, folder)
            if kill_at:
                patch.setattr("os.urandom", lambda size: b"\1" * size)
            with counted(step) as left:
                assert run(spec, given, folder) == expected
            patch.setattr("os.urandom", lambda size: b"\0" * size)
            assert place == save or len(left) == len(steps) - kill_at


def test_results_without_a_checkpoint_keep_the_secret_that_a_stem_was_made_with(given, tmp_path):
    """FFT is finished and LP's stem in its file before the first checkpoint is due."""
    spec = spec_of("strategies", **{**SHORT, "strategies": ["fft", "lp"], "noise_source": "os"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.urandom", lambda size: b"\0" * size)
        expected = run(spec, given, tmp_path / "whole")
        with killed_at(0, (lpfft_strategies.Stem, "ran_in")):
            run(spec, given, tmp_path / "killed")
        patch.setattr("os.urandom", lambda size: b"\1" * size)
        assert run(spec, given, tmp_path / "killed") == expected


def test_without_privacy_gradients_have_no_effective_bound_and_no_guarantee(given, tmp_path):
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies", level={"noise_multiplier": 0.0}), given, tmp_path)
    phases = [phase for each in seen for phase in each.training.phases]
    assert {phase.max_grad_norm for phase in phases} == {NO_CLIP}
    assert {phase.noise_multiplier for phase in phases} == {0.0}
    for row in rows_of(record):
        assert [row[name] for name in ("epsilon", "relation", "max_grad_norm")] == [None] * 3
    ledger = record["ledger"]
    for arm in ledger["arms"]:
        assert arm["epsilon"] is None and arm["guaranteed"] == "nothing: no noise"


def test_noise_is_calibrated_to_an_epsilon_and_said_aloud(given, tmp_path, capsys):
    spec = spec_of("strategies", **SHORT, level={"epsilon": 8.0}, accountant="pld")
    rows = rows_of(record_of(spec, given, tmp_path))
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
        spec = spec_of("strategies", level={"noise_multiplier": noise}, strategies=["lp"])
        record_of(spec, given, tmp_path / f"{noise}")
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
        record = record_of(spec_of("strategies", **SHORT, **averaged), given, tmp_path)
    for ledger in (record["ledger"], *record["ledger"]["arms"]):
        assert "average of the iterates" in str(ledger) and "last iterate" not in str(ledger)
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
    rows = rows_of(record)
    assert [row["trained_parameters"] for row in rows] == [21, 21 + branches, 21 + branches]
    whole_networks = [each for each in seen if body_of(each.iterates[0])]
    assert len(whole_networks) == 4
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
        ({"shares": [0.05]}, "share: found 0.05; "),
        ({"shares": [0.95]}, "share: found 0.95; "),
        ({"shares": [0.5], "steps": 1}, "one of the 1 steps"),
        ({"relation": "replace_one", "accountant": "rdp"}, "accountant: found rdp for poisson"),
        ({"level": {"noise_multiplier": 1e-6}}, "noise_multiplier: found 1e-06"),
        ({"augmentation": {**VIEWS, "padding": 4}}, "padding: found 4; allowed: less than 4"),
        ({**LORA, "lora_rank": 7}, "layer linear2"),
        ({"backbone": "another"}, "--backbone: found small-backbone; allowed: another"),
    ],
)
def test_bad_settings_are_refused_by_name_before_any_training(given, tmp_path, changes, words):
    with watched_trainings() as seen, pytest.raises(InputError, match=re.escape(words)):
        run(spec_of("strategies", **changes), given, tmp_path)
    assert not seen and not (tmp_path / "record.json").exists()


STANDARDISED = {**SHORT, "public_data": {"name": "public"}}


def test_standardised_features_have_the_public_images_moments_in_the_head_and_in_the_network(
    given, tmp_path
):
    with watched_trainings() as seen:
        record = record_of(spec_of("strategies", **STANDARDISED), given, tmp_path)
    inside = {"standardise.mean" in each.iterates[0]: each.training for each in seen}
    head, network = inside[False], inside[True]
    mean, factor = (
        network.model.state_dict()[f"standardise.{name}"] for name in ("mean", "factor")
    )
    public = prepared.load(given.public.parent).x_train
    frozen = backbone.features(backbone.load(given.backbone).network, public)
    moved = (torch.from_numpy(frozen) - mean) * factor
    torch.testing.assert_close(moved.mean(0), torch.zeros(len(mean)), atol=1e-5, rtol=0)
    alive = frozen.std(0) > 0
    assert moved.std(0, correction=0)[alive].numpy() == pytest.approx(1, rel=1e-4)
    assert not any("standardise" in name for name in dict(network.model.named_parameters()))
    # A head that is trained on features is given what it is given inside the network.
    body = backbone.load(given.backbone).network
    expected = (torch.from_numpy(backbone.features(body, network.x.numpy())) - mean) * factor
    torch.testing.assert_close(head.x, expected)
    for arm in record["ledger"]["arms"]:
        assert arm["public_constants"] == ["feature means and deviations", "max_grad_norm"]


def test_features_are_standardised_on_the_backbone_s_public_images_alone(given, tmp_path):
    for public, message in ((given.data, "content with sha256"), (None, "no --public-data")):
        other = Given(given.data, public, given.backbone, given.features)
        with pytest.raises(InputError, match=f"--public-data: found {message}"):
            run(spec_of("strategies", **STANDARDISED), other, tmp_path)
