"""Private selection of settings: what comes out, what stays secret, what is refused."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import small_jobs
import torch
from small_jobs import Killed, counted, killed_at, labelled

from dpatlas.checks.audit.jobs import selection
from dpatlas.checks.audit.records.selection import Spec
from dpatlas.checks.audit.settings import selection_spec
from dpatlas.commands import train as command
from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError, run_command
from dpatlas.jobs import job as job_module
from dpatlas.jobs.run import main
from dpatlas.privacy.accounting import guarantee
from dpatlas.privacy.selection import (
    PoissonTrials,
    Score,
    TruncatedNegativeBinomial,
    selected_guarantee,
    trials_law,
)
from dpatlas.privacy.training import PrivateTraining

SETTINGS = small_jobs.TRAINING
SELECTION = {
    "law": "geometric",
    "expected_trials": 4.0,
    "ranges": {"lr": [0.001, 10.0], "max_grad_norm": [0.1, 2.0]},
    "score_noise": 2.0,
}
VALIDATION = 8

run_main = functools.partial(small_jobs.run_main, main)


def spec_of(settings=None, source="keyed", **changes):
    seeds = {"seed": 0, "noise_source": source}
    return selection_spec(seeds, {**SETTINGS, **(settings or {})}, {**SELECTION, **changes})


@pytest.fixture
def data(tmp_path):
    sizes = {"train": 12, "add": 0, "test": 6, "validation": VALIDATION}
    description = {"name": "small", "classes": [*"abc"], "image_shape": [1, 4, 4]}
    prepared.save(tmp_path / "data", labelled(sizes, margin=3), description)
    return tmp_path / "data" / "manifest.json"


@pytest.fixture
def draws(monkeypatch):
    """A function that fixes the number of trials."""

    def fix(trials):
        for law in (TruncatedNegativeBinomial, PoissonTrials):
            monkeypatch.setattr(law, "draw", lambda law, noise: trials)

    return fix


@pytest.fixture
def trials(monkeypatch):
    """Settings, right answers and initial weights of every trial, as they come."""
    seen = []
    real_training, real_count = selection.Selection._training, selection.right_answers

    def training(self, trial, settings):
        started = real_training(self, trial, settings)
        weights = torch.cat([each.flatten() for each in started.model.parameters()])
        seen.append({"settings": settings, "init": weights.clone()})
        return started

    def count(*given):
        seen[-1]["right"] = real_count(*given)
        return seen[-1]["right"]

    monkeypatch.setattr(selection.Selection, "_training", training)
    monkeypatch.setattr(selection, "right_answers", count)
    return seen


def z(spec, trial):
    """The normal draw on the score of a trial."""
    noise = Noise(spec.digest, "keyed")
    return noise.generator(repetition=trial, step=0, use="score").standard_normal()


def read(path):
    return json.loads(path.read_text())


def test_a_selection_killed_at_any_step_goes_on_to_the_same_bytes(
    data, tmp_path, monkeypatch, draws
):
    draws(4)
    # By hugely noised scores, so that one in the middle is the best.
    specs = (spec_of(score_noise=1e6 + number) for number in range(100))
    spec = next(each for each in specs if np.argmax([z(each, trial) for trial in range(4)]) == 1)
    whole = run_main(spec, data, tmp_path / "whole").read_bytes()
    for seconds, kills in ((0.0, (0, 4, 6, 11)), (1e9, (8,))):
        monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", seconds)
        for kill_at in kills:
            folder = tmp_path / f"killed-{kill_at}"
            with killed_at(kill_at, (PrivateTraining, "step")):
                run_main(spec, data, folder)
            assert not (folder / "record.json").exists()
            with counted((PrivateTraining, "step")) as steps:
                assert run_main(spec, data, folder).read_bytes() == whole
            # On from the last whole step, or from the start of the trial where it was.
            assert len(steps) == 12 - (kill_at if seconds == 0 else kill_at // 3 * 3)


def test_a_killed_selection_keeps_its_secret_number_of_trials(data, tmp_path):
    spec = spec_of(source="os", expected_trials=50.0)
    with killed_at(1, (PrivateTraining, "step")):
        run_main(spec, data, tmp_path)
    found = dict(np.load(tmp_path / "checkpoints" / spec.id / "stages.npz"))
    facts = json.loads(found["__header__"].tobytes())["facts"]
    noise = Noise(spec.digest, "os")
    noise.carry(facts["secret"])
    with counted((PrivateTraining, "step")) as steps:
        run_main(spec, data, tmp_path)
    assert len(steps) == 3 * trials_law("geometric", 50.0).draw(noise)


def test_the_record_is_the_same_whatever_other_trials_there_were(
    data, tmp_path, draws, trials, capsys
):
    spec = spec_of()
    draws(9)
    many = run_main(spec, data, tmp_path / "many")
    said = capsys.readouterr()
    scores = [each["right"] + 2 * z(spec, trial) for trial, each in enumerate(trials)]
    best = int(np.argmax(scores))
    assert 0 < best < 8
    draws(best + 1)
    few = run_main(spec, data, tmp_path / "few")
    assert few.read_bytes() == many.read_bytes()
    assert capsys.readouterr() == said
    assert {each.name for each in (tmp_path / "many").rglob("*") if each.is_file()} == {
        "record.json",
        "cost.json",
    }


def test_the_private_score_is_noised_and_the_noised_one_selects(data, tmp_path, draws, trials):
    draws(6)
    spec = spec_of(score_noise=1e6)
    metrics = read(run_main(spec, data, tmp_path))["metrics"]
    noised = [each["right"] + 1e6 * z(spec, trial) for trial, each in enumerate(trials)]
    best = int(np.argmax(noised))
    assert best == int(np.argmax([z(spec, trial) for trial in range(6)]))
    assert metrics["score"] == pytest.approx(noised[best] / VALIDATION, rel=1e-12)
    assert metrics["score"] * VALIDATION != trials[best]["right"]
    assert metrics["score_deviation"] == 1e6 / VALIDATION
    assert metrics["settings"] == trials[best]["settings"]


def test_the_score_on_public_records_is_their_share(data, tmp_path, draws, trials):
    draws(6)
    found = read(run_main(spec_of(score_noise=None), data, tmp_path))
    right = [each["right"] for each in trials]
    assert len(set(right)) > 1
    assert found["metrics"]["score"] == max(right) / VALIDATION
    assert found["metrics"]["settings"] == trials[right.index(max(right))]["settings"]
    assert found["ledger"]["epsilon_by_part"]["validation"] == "public"


def test_every_trial_has_settings_weights_batches_and_noise_of_its_own(
    data, tmp_path, draws, trials, monkeypatch
):
    used = []
    real = Noise.key

    def key(self, repetition, step, use):
        used.append((repetition, step, use))
        return real(self, repetition, step, use)

    monkeypatch.setattr(Noise, "key", key)
    draws(30)
    run_main(spec_of(), data, tmp_path)
    for name, (low, high) in SELECTION["ranges"].items():
        values = np.array([each["settings"][name] for each in trials])
        assert len(set(values)) == 30 and (values >= low).all() and (values <= high).all()
        # Log-uniform: half of them below the geometric mean.
        assert 7 <= (values < np.sqrt(low * high)).sum() <= 23
    assert len({tuple(each["init"].tolist()) for each in trials}) == 30
    for use in ("settings", "score"):
        assert sorted(each for each in used if each[2] == use) == [(j, 0, use) for j in range(30)]
    for use in ("batch", "noise"):
        steps = [each for each in used if each[2] == use]
        assert len(steps) == len(set(steps)) == 90


def test_initial_weights_and_settings_are_as_secret_as_the_noise(data, tmp_path, draws, trials):
    draws(1)
    for attempt in range(2):
        run_main(spec_of(source="os"), data, tmp_path / str(attempt))
    first, second = trials
    assert not torch.equal(first["init"], second["init"])
    assert first["settings"] != second["settings"]


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson"])
def test_the_ledger_states_both_guarantees(data, tmp_path, draws, law):
    draws(2)
    spec = spec_of(law=law)
    ledger = read(run_main(spec, data, tmp_path))["ledger"]
    phase = selection.Selection(job_of(spec, data)).phase.accounted
    score = Score(VALIDATION, 2.0)
    expected = selected_guarantee([phase], trials_law(law, 4.0), 1e-5, "add_remove", score)
    alone = guarantee([phase], 1e-5, "add_remove")
    assert ledger["epsilon"] == expected.selected.epsilon == expected.training
    assert ledger["single_trial"]["epsilon"] == alone.epsilon < ledger["epsilon"]
    assert ledger["epsilon_by_part"]["validation"] == expected.validation
    assert "best of K trials" in ledger["event"] and law in ledger["event"].lower()
    assert "number of trials" in ledger["secret"]
    assert "best" in ledger["holds_for"]
    (choice,) = ledger["chosen_on_private_data"]
    assert "lr from 0.001 to 10" in choice["what"]
    assert f"epsilon {ledger['epsilon']:.6g}" in choice["cost"]
    assert "of the best trial alone" in choice["cost"] and "together" not in choice["cost"]


def job_of(spec, data):
    return job_module.Job(
        spec,
        Spec(**spec.fields),
        prepared.load(data.parent),
        "cpu",
        Checkpoints(data.parent / "none", {}),
        job_module.Stopwatch(),
    )


def test_the_noise_is_calibrated_to_the_epsilon_of_the_selection(data, tmp_path, draws):
    draws(1)
    spec = spec_of({"epsilon": 3.0, "noise_multiplier": None}, score_noise=20.0)
    ledger = read(run_main(spec, data, tmp_path))["ledger"]
    assert 2.99 < ledger["epsilon"] <= 3.0
    assert ledger["single_trial"]["epsilon"] < 2.5


def test_accuracy_is_that_of_the_best_trial_s_model(data, tmp_path, draws, monkeypatch):
    draws(5)
    models = []
    real = selection.Selection._training

    def training(self, trial, settings):
        started = real(self, trial, settings)
        models.append((settings, started.model))
        return started

    monkeypatch.setattr(selection.Selection, "_training", training)
    metrics = read(run_main(spec_of(), data, tmp_path))["metrics"]
    (model,) = [model for settings, model in models if settings == metrics["settings"]]
    content = prepared.load(data.parent)
    with torch.no_grad():
        right = model(torch.from_numpy(content.x_test)).argmax(1).numpy() == content.y_test
    assert metrics["accuracy"] == right.mean()


def test_no_trial_at_all_is_said_and_nothing_else(data, tmp_path, draws):
    draws(0)
    found = read(run_main(spec_of(law="poisson"), data, tmp_path))
    assert found["metrics"]["settings"] is found["metrics"]["score"] is None
    assert found["metrics"]["accuracy"] is None
    assert found["ledger"]["epsilon"] > 0


@pytest.mark.parametrize(
    ("settings", "changes", "word"),
    [
        ({"noise_multiplier": 0.0}, {}, "noise_multiplier"),
        ({"epsilon": 3.0}, {}, "epsilon and noise_multiplier"),
        ({"relation": "replace_one"}, {}, "poisson with replace_one"),
        ({}, {"law": "grid"}, "geometric"),
        ({}, {"expected_trials": 1.0}, "expected number of trials"),
        ({}, {"score_noise": 0.0}, "noise of the score"),
        ({}, {"ranges": {"lr": [0.1, 0.3, 1.0]}}, "range of lr: found 3 values.*grid"),
        ({}, {"ranges": {"lr": [1.0, 1.0]}}, "range of lr"),
        ({}, {"ranges": {"lr": [0.0, 1.0]}}, "range of lr"),
        ({}, {"ranges": {"batch": [1, 8]}}, "lr, max_grad_norm"),
        ({}, {"ranges": {}}, "ranges"),
        ({"model": "resnet"}, {}, "'resnet'"),
    ],
)
def test_what_cannot_be_selected_privately_is_refused(data, tmp_path, settings, changes, word):
    with counted((PrivateTraining, "step")) as steps, pytest.raises(InputError, match=word):
        run_main(spec_of(settings, **changes), data, tmp_path)
    assert not steps and not (tmp_path / "record.json").exists()


def test_without_validation_records_there_is_no_score(tmp_path):
    sizes = {"train": 12, "add": 0, "test": 6, "validation": 0}
    description = {"name": "small", "classes": [*"abc"], "image_shape": [1, 4, 4]}
    prepared.save(tmp_path / "data", labelled(sizes, margin=3), description)
    with pytest.raises(InputError, match="n_validation"):
        run_main(spec_of(), tmp_path / "data" / "manifest.json", tmp_path)


class TestCommand:
    """`python -m dpatlas train --select`."""

    QUICK = ("--model", "linear", "--batch", "8", "--steps", "2", "--noise-multiplier", "1")
    LAW = ("--select", "geometric", "--expected-trials", "3")
    FROM = ("--lr-from", "0.01,3")
    NOISE = ("--score-noise", "2")

    def train(self, data, *arguments):
        output = data.parent.parent / "out"
        return run_command(
            command.main, ["--output", str(output), "--data", str(data), *self.QUICK, *arguments]
        )

    def test_both_guarantees_and_the_best_trial_are_printed(self, data, capsys):
        assert self.train(data, *self.LAW, *self.FROM, *self.NOISE) == 0
        selected, alone, best, accuracy, record = capsys.readouterr().out.splitlines()
        pattern = r"(?:guaranteed|one trial alone): epsilon ([\d.]+) at delta 1e-05 \(add_remove\)"
        assert float(re.match(pattern, selected)[1]) > float(re.match(pattern, alone)[1])
        assert re.match(r"selected: lr [\d.]+; score .* on 8 validation records, noise of", best)
        assert "6 held-out records" in accuracy
        assert record.startswith("record: ")

    def test_given_again_it_shows_its_record_and_trains_nothing(self, data, capsys):
        words = (*self.LAW, *self.FROM, *self.NOISE)
        assert self.train(data, *words) == 0
        first = capsys.readouterr().out
        with counted((PrivateTraining, "step")) as steps:
            assert self.train(data, *words) == 0
        assert not steps and capsys.readouterr().out == first

    def test_json_is_the_record(self, data, capsys):
        for words in ((*self.LAW, *self.FROM, *self.NOISE), ()):
            assert self.train(data, "--json", *words) == 0
            found = json.loads(capsys.readouterr().out)
            path = found.pop("record")
            assert read(Path(path)) == found

    def test_no_trial_is_said(self, data, capsys, draws):
        draws(0)
        words = ("--select", "poisson", "--expected-trials", "3", *self.FROM, "--public-validation")
        assert self.train(data, *words) == 0
        assert "selected: none" in capsys.readouterr().out

    def test_a_killed_selection_goes_on_when_called_again(self, data, capsys, draws):
        draws(3)
        words = (*self.LAW, *self.FROM, *self.NOISE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivateTraining, "step", self.killed_in_the_second_trial())
            with pytest.raises(Killed):
                self.train(data, *words)
        with counted((PrivateTraining, "step")) as steps:
            assert self.train(data, *words) == 0
        assert len(steps) == 4

    @staticmethod
    def killed_in_the_second_trial():
        real, calls = PrivateTraining.step, []

        def step(training):
            calls.append(training)
            if len(calls) == 4:
                raise Killed
            real(training)

        return step

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ((*LAW, *NOISE, "--lr-from", "0.1,0.3,1"), "--lr-from: found '0.1,0.3,1'"),
            ((*LAW, *NOISE, "--lr-from", "0.1"), "LOW,HIGH"),
            ((*LAW, *NOISE, "--lr-from", "3,0.1"), "LOW,HIGH"),
            ((*LAW, *NOISE, "--lr-from", "0,1"), "LOW,HIGH"),
            ((*LAW, *NOISE, "--lr-from", "nan,1"), "LOW,HIGH"),
            ((*LAW, *NOISE, "--max-grad-norm-from", "a,b"), "--max-grad-norm-from"),
            ((*LAW, *NOISE, "--lr", "0.1,0.3"), "--lr"),
            ((*LAW, *NOISE, *FROM, "--lr", "0.1"), "--lr"),
            ((*LAW, *NOISE), "no range"),
            ((*LAW, *FROM), "neither"),
            ((*LAW, *FROM, *NOISE, "--public-validation"), "both"),
            ((*FROM, *NOISE, "--select", "geometric"), "--expected-trials"),
            ((*FROM, *NOISE, "--select", "grid", "--expected-trials", "3"), "'grid'"),
            ((*FROM, *NOISE, "--select", "geometric", "--expected-trials", "1"), "trials"),
            ((*LAW, *FROM, "--score-noise", "0"), "noise of the score"),
            ((*LAW, *FROM, "--score-noise", "inf"), "--score-noise"),
            ((*LAW, *FROM, *NOISE, "--runs", "3"), "--runs"),
            ((*LAW, *FROM, *NOISE, "--ema-decay", "0.9"), "--ema-decay"),
            ((*LAW, *FROM, *NOISE, "--noise-multiplier", "0"), "--noise-multiplier"),
            ((*LAW, *FROM, *NOISE, "--relation", "replace_one"), "poisson with replace_one"),
            ((*LAW, *FROM, *NOISE, "--model", "resnet"), "'resnet'"),
            (FROM, "--select"),
            (NOISE, "--select"),
            (("--public-validation",), "--select"),
            (("--expected-trials", "3"), "--select"),
        ],
    )
    def test_bad_input_is_one_line_exit_2_and_nothing_trained(self, data, capsys, arguments, named):
        with counted((PrivateTraining, "step")) as steps:
            assert self.train(data, *arguments) == 2
        error = capsys.readouterr().err
        assert named in error
        assert len(error.splitlines()) == 1
        assert not steps
