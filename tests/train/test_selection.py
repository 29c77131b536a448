"""Private selection of settings: what comes out, what stays secret, what is refused."""

import json

import numpy as np
import pytest
import torch
from prepared_trainings import record_in, trained, words
from small_jobs import counted, killed_at

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import Poisson
from dpatlas.accounting.selection import Score, selected_guarantee, trials_law
from dpatlas.base.rounding import rounded_up
from dpatlas.base.seeds import Noise
from dpatlas.commands.train import main
from dpatlas.data import prepared
from dpatlas.privacy.training import PrivateTraining
from dpatlas.train.inputs import Inputs
from dpatlas.train.training import TrainingBySettings

RANGES = {"lr": [0.001, 10.0], "max_grad_norm": [0.1, 2.0]}
SELECT = {"law": "geometric", "expected_trials": 4.0, **RANGES, "score_noise": 2.0}
PUBLIC = {"score_noise": None, "public_validation": True}
VALIDATION = 8
STEP = (PrivateTraining, "step")


def selecting(settings=None, **changes):
    """Settings of a training whose rate and clip bound are selected."""
    select = {key: each for key, each in {**SELECT, **changes}.items() if each is not None}
    return {"lr": None, "max_grad_norm": None, "select": select, **(settings or {})}


@pytest.fixture
def trials(monkeypatch):
    """Settings, model, right answers and initial weights of every trial, as they come."""
    seen = []
    real_training, real_right = TrainingBySettings._training, Inputs.right

    def training(self, model, noise, phase, trial):
        started = real_training(self, model, noise, phase, trial)
        settings = {name: getattr(phase, name) for name in RANGES}
        weights = torch.cat([value.flatten() for value in started.model.parameters()])
        seen.append({"settings": settings, "model": started.model, "init": weights.clone()})
        return started

    def right(self, *arguments):
        count = real_right(self, *arguments)
        if seen:
            seen[-1]["right"] = count
        return count

    monkeypatch.setattr(TrainingBySettings, "_training", training)
    monkeypatch.setattr(Inputs, "right", right)
    return seen


def z(record, trial):
    """The normal draw on the score of a trial."""
    noise = Noise(record["spec_digest"], "keyed")
    return noise.generator(repetition=trial, step=0, use="score").standard_normal()


def test_a_killed_selection_keeps_its_secret_number_of_trials(data, tmp_path):
    given = words(tmp_path, **selecting({"noise_source": "os"}, expected_trials=50.0))
    with killed_at(1, STEP):
        main(given)
    (path,) = tmp_path.glob("out/checkpoints/*/stages.npz")
    facts = json.loads(dict(np.load(path))["__header__"].tobytes())["facts"]
    with counted(STEP) as steps:
        assert main(given) == 0
    noise = Noise(record_in(tmp_path / "out")["spec_digest"], "os")
    noise.carry(facts["secret"])
    assert len(steps) == 3 * trials_law("geometric", 50.0).draw(noise)


def test_the_record_is_the_same_whatever_other_trials_there_were(
    data, tmp_path, draws, trials, capsys
):
    draws(9)
    many = trained(tmp_path, output="one/out", **selecting())
    said = capsys.readouterr()
    scores = [trial["right"] + 2 * z(many, number) for number, trial in enumerate(trials)]
    best = int(np.argmax(scores))
    assert 0 < best < 8
    draws(best + 1)
    few = trained(tmp_path, output="two/out", **selecting())
    assert few == many
    assert capsys.readouterr().err == said.err
    folder = tmp_path / "one" / "out"
    left = {path.name for path in folder.rglob("*") if path.is_file()} - {"record.json"}
    assert left >= {"cost.json"} and not any("stages" in name for name in left)


def test_the_private_score_is_noised_and_the_noised_one_selects(data, tmp_path, draws, trials):
    draws(6)
    record = trained(tmp_path, **selecting(score_noise=1e6))
    metrics = record["metrics"]
    noised = [trial["right"] + 1e6 * z(record, number) for number, trial in enumerate(trials)]
    best = int(np.argmax(noised))
    assert best == int(np.argmax([z(record, trial) for trial in range(6)]))
    assert metrics["score"] == pytest.approx(noised[best] / VALIDATION, rel=1e-12)
    assert metrics["score"] * VALIDATION != trials[best]["right"]
    assert metrics["selected"] == trials[best]["settings"]


def test_on_public_records_the_share_selects_and_accuracy_is_of_the_best_model(
    data, tmp_path, draws, trials, capsys
):
    draws(6)
    record = trained(tmp_path, **selecting(**PUBLIC))
    metrics, right = record["metrics"], [trial["right"] for trial in trials]
    assert len(set(right)) > 1
    best = trials[right.index(max(right))]
    assert metrics["score"] == max(right) / VALIDATION
    assert metrics["selected"] == best["settings"]
    assert record["ledger"]["epsilon_by_part"]["validation"] == "public"
    content = prepared.load(data.parent)
    with torch.no_grad():
        labels = best["model"](torch.from_numpy(content.x_test)).argmax(1).numpy()
    assert metrics["accuracy"] == (labels == content.y_test).mean()
    said = capsys.readouterr().out
    assert f"one trial alone: {record['ledger']['single_trial']['guaranteed']}" in said


def test_every_trial_has_settings_weights_batches_and_noise_of_its_own(
    data, tmp_path, draws, trials, monkeypatch
):
    used = []
    real = Noise.key

    def key(self, *axes):
        # The part of a draw, such as a parameter's name, is empty for a whole draw.
        used.append(tuple(axis for axis in axes if axis != ""))
        return real(self, *axes)

    monkeypatch.setattr(Noise, "key", key)
    draws(30)
    trained(tmp_path, **selecting())
    for name, (low, high) in RANGES.items():
        values = np.array([trial["settings"][name] for trial in trials])
        assert len(set(values)) == 30 and (values >= low).all() and (values <= high).all()
        # Log-uniform: half of them below the geometric mean.
        assert 7 <= (values < np.sqrt(low * high)).sum() <= 23
    assert len({tuple(trial["init"].tolist()) for trial in trials}) == 30
    keys = {name: [key for key in used if key[2] == name] for _, _, name, *_ in used}
    for name in ("settings", "score"):
        assert sorted(keys[name]) == [(trial, 0, name) for trial in range(30)]
    for name in ("batch", "noise"):
        assert len(keys[name]) == len(set(keys[name]))
        assert len({key[:3] for key in keys[name]}) == 90


def test_initial_weights_and_settings_are_as_secret_as_the_noise(data, tmp_path, draws, trials):
    draws(1)
    for attempt in range(2):
        trained(tmp_path, output=str(attempt), **selecting({"noise_source": "os"}))
    first, second = trials
    assert not torch.equal(first["init"], second["init"])
    assert first["settings"] != second["settings"]


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson"])
def test_the_ledger_states_both_guarantees(data, tmp_path, draws, law):
    draws(2)
    ledger = trained(tmp_path, **selecting(law=law))["ledger"]
    phase, score = Phase(Poisson(12, 8), 1.0, 3), Score(VALIDATION, 2.0)
    expected = selected_guarantee([phase], trials_law(law, 4.0), 1e-5, "add_remove", score)
    alone = guarantee([phase], 1e-5, "add_remove")
    assert ledger["epsilon"] == expected.selected.epsilon == expected.training
    assert ledger["single_trial"]["epsilon"] == alone.epsilon < ledger["epsilon"]
    assert ledger["epsilon_by_part"]["validation"] == expected.validation
    assert "best of K trials" in ledger["event"] and law in ledger["event"].lower()
    assert "number of trials" in ledger["secret"] and "best" in ledger["holds_for"]
    (choice,) = ledger["chosen_on_private_data"]
    assert "lr from 0.001 to 10" in choice["what"]
    assert f"epsilon {rounded_up(ledger['epsilon'])}" in choice["cost"]
    assert "of the best trial alone" in choice["cost"] and "together" not in choice["cost"]


def test_the_noise_is_calibrated_to_the_epsilon_of_the_selection(data, tmp_path, draws):
    draws(1)
    settings = {"epsilon": 3.0, "noise_multiplier": None}
    ledger = trained(tmp_path, **selecting(settings, score_noise=20.0))["ledger"]
    assert 2.99 < ledger["epsilon"] <= 3.0
    assert ledger["single_trial"]["epsilon"] < 2.5


def test_no_trial_at_all_is_said_and_nothing_else(data, tmp_path, draws, capsys):
    draws(0)
    record = trained(tmp_path, **selecting(law="poisson"))
    metrics = record["metrics"]
    assert metrics["selected"] is metrics["score"] is metrics["accuracy"] is None
    assert metrics["runs"] == [] and record["ledger"]["epsilon"] > 0
    assert "selected: none: the law drew no trial" in capsys.readouterr().out
    assert not (tmp_path / "out" / record["id"] / "model").exists()


@pytest.mark.parametrize(
    ("settings", "changes", "word"),
    [
        ({"relation": "replace_one"}, {}, "poisson with replace_one"),
        ({}, {"expected_trials": 1.0}, "expected number of trials"),
        ({}, {"score_noise": 0.0}, "select.score_noise: found 0"),
        ({}, {"lr": [0.0, 1.0]}, "select.lr"),
        ({}, {"batch": [1, 8]}, "select.batch: found a key that does not exist"),
        # Beyond what a training takes, which only a trial that draws it would notice.
        ({}, {"lr": [1.0, 1e300]}, "select.lr"),
    ],
)
def test_what_cannot_be_selected_privately_is_refused(
    data, tmp_path, refusal_of, settings, changes, word
):
    with counted(STEP) as steps:
        assert word in refusal_of(main, *words(tmp_path, **selecting(settings, **changes)))
    assert not steps


def test_a_selection_shows_no_private_loss(data, tmp_path, refusal_of):
    given = words(tmp_path, "--show-private-loss", **selecting())
    assert "--show-private-loss: found select" in refusal_of(main, *given)
