"""Private selection of settings: what comes out, what stays secret, what is refused."""

import json

import numpy as np
import pytest
import small_jobs
import torch
from small_classifier import record_of, run_main, save_data
from small_jobs import counted, killed_at

from dpatlas.accounting.guarantees import guarantee
from dpatlas.accounting.selection import (
    Score,
    selected_guarantee,
    trials_law,
)
from dpatlas.checks.audit.jobs import selection
from dpatlas.checks.audit.records.selection import SelectionSpec
from dpatlas.checks.audit.settings import selection_spec
from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.rounding import rounded_up
from dpatlas.core.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.privacy.training import PrivateTraining

SELECTION = {
    "law": "geometric",
    "expected_trials": 4.0,
    "ranges": {"lr": [0.001, 10.0], "max_grad_norm": [0.1, 2.0]},
    "score_noise": 2.0,
}
VALIDATION = 8
STEP = (PrivateTraining, "step")


def spec_of(settings=None, source="keyed", **changes):
    seeds = {"seed": 0, "noise_source": source}
    return selection_spec(
        seeds, {**small_jobs.TRAINING, **(settings or {})}, {**SELECTION, **changes}
    )


@pytest.fixture
def trials(monkeypatch):
    """Settings, model, right answers and initial weights of every trial, as they come."""
    seen = []
    real_training, real_count = selection.Selection._training, selection.right_answers

    def training(self, trial, phase):
        started = real_training(self, trial, phase)
        settings = {name: getattr(phase, name) for name in SELECTION["ranges"]}
        weights = torch.cat([value.flatten() for value in started.model.parameters()])
        seen.append({"settings": settings, "model": started.model, "init": weights.clone()})
        return started

    def count(*arguments):
        seen[-1]["right"] = real_count(*arguments)
        return seen[-1]["right"]

    monkeypatch.setattr(selection.Selection, "_training", training)
    monkeypatch.setattr(selection, "right_answers", count)
    return seen


def z(spec, trial):
    """The normal draw on the score of a trial."""
    noise = Noise(spec.digest, "keyed")
    return noise.generator(repetition=trial, step=0, use="score").standard_normal()


def test_a_killed_selection_keeps_its_secret_number_of_trials(data, tmp_path):
    spec = spec_of(source="os", expected_trials=50.0)
    with killed_at(1, STEP):
        run_main(spec, data, tmp_path)
    stored = dict(np.load(tmp_path / "checkpoints" / spec.id / "stages.npz"))
    facts = json.loads(stored["__header__"].tobytes())["facts"]
    noise = Noise(spec.digest, "os")
    noise.carry(facts["secret"])
    with counted(STEP) as steps:
        run_main(spec, data, tmp_path)
    assert len(steps) == 3 * trials_law("geometric", 50.0).draw(noise)


def test_the_record_is_the_same_whatever_other_trials_there_were(
    data, tmp_path, draws, trials, capsys
):
    spec = spec_of()
    draws(9)
    many = run_main(spec, data, tmp_path / "many")
    said = capsys.readouterr()
    scores = [trial["right"] + 2 * z(spec, number) for number, trial in enumerate(trials)]
    best = int(np.argmax(scores))
    assert 0 < best < 8
    draws(best + 1)
    few = run_main(spec, data, tmp_path / "few")
    assert few.read_bytes() == many.read_bytes()
    assert capsys.readouterr() == said
    left = {path.name for path in (tmp_path / "many").rglob("*") if path.is_file()}
    assert left == {"record.json", "cost.json"}


def test_the_private_score_is_noised_and_the_noised_one_selects(data, tmp_path, draws, trials):
    draws(6)
    spec = spec_of(score_noise=1e6)
    metrics = record_of(spec, data, tmp_path)["metrics"]
    noised = [trial["right"] + 1e6 * z(spec, number) for number, trial in enumerate(trials)]
    best = int(np.argmax(noised))
    assert best == int(np.argmax([z(spec, trial) for trial in range(6)]))
    assert metrics["score"] == pytest.approx(noised[best] / VALIDATION, rel=1e-12)
    assert metrics["score"] * VALIDATION != trials[best]["right"]
    assert metrics["score_deviation"] == 1e6 / VALIDATION
    assert metrics["settings"] == trials[best]["settings"]


def test_on_public_records_the_share_selects_and_accuracy_is_of_the_best_model(
    data, tmp_path, draws, trials
):
    draws(6)
    record = record_of(spec_of(score_noise=None), data, tmp_path)
    metrics, right = record["metrics"], [trial["right"] for trial in trials]
    assert len(set(right)) > 1
    best = trials[right.index(max(right))]
    assert metrics["score"] == max(right) / VALIDATION
    assert metrics["settings"] == best["settings"]
    assert record["ledger"]["epsilon_by_part"]["validation"] == "public"
    content = prepared.load(data.parent)
    with torch.no_grad():
        labels = best["model"](torch.from_numpy(content.x_test)).argmax(1).numpy()
    assert metrics["accuracy"] == (labels == content.y_test).mean()


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
    run_main(spec_of(), data, tmp_path)
    for name, (low, high) in SELECTION["ranges"].items():
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
        run_main(spec_of(source="os"), data, tmp_path / str(attempt))
    first, second = trials
    assert not torch.equal(first["init"], second["init"])
    assert first["settings"] != second["settings"]


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson"])
def test_the_ledger_states_both_guarantees(data, tmp_path, draws, law):
    draws(2)
    spec = spec_of(law=law)
    ledger = record_of(spec, data, tmp_path)["ledger"]
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
    assert f"epsilon {rounded_up(ledger['epsilon'])}" in choice["cost"]
    assert "of the best trial alone" in choice["cost"] and "together" not in choice["cost"]


def job_of(spec, data):
    return job_module.Job(
        spec,
        SelectionSpec(**spec.fields),
        prepared.load(data.parent),
        "cpu",
        Checkpoints(data.parent / "none", {}),
        job_module.Stopwatch(),
    )


def test_the_noise_is_calibrated_to_the_epsilon_of_the_selection(data, tmp_path, draws):
    draws(1)
    spec = spec_of({"epsilon": 3.0, "noise_multiplier": None}, score_noise=20.0)
    ledger = record_of(spec, data, tmp_path)["ledger"]
    assert 2.99 < ledger["epsilon"] <= 3.0
    assert ledger["single_trial"]["epsilon"] < 2.5


def test_no_trial_at_all_is_said_and_nothing_else(data, tmp_path, draws):
    draws(0)
    record = record_of(spec_of(law="poisson"), data, tmp_path)
    metrics = record["metrics"]
    assert metrics["settings"] is metrics["score"] is metrics["accuracy"] is None
    assert record["ledger"]["epsilon"] > 0


@pytest.mark.parametrize(
    ("settings", "changes", "word"),
    [
        ({"noise_multiplier": 0.0}, {}, "noise_multiplier"),
        ({"relation": "replace_one"}, {}, "poisson with replace_one"),
        ({}, {"expected_trials": 1.0}, "expected number of trials"),
        ({}, {"score_noise": 0.0}, "noise of the score"),
        ({}, {"ranges": {"lr": [0.1, 0.3, 1.0]}}, "range of lr: found 3 values.*grid"),
        ({}, {"ranges": {"lr": [0.0, 1.0]}}, "range of lr"),
        ({}, {"ranges": {"batch": [1, 8]}}, "lr, max_grad_norm"),
    ],
)
def test_what_cannot_be_selected_privately_is_refused(data, tmp_path, settings, changes, word):
    with counted(STEP) as steps, pytest.raises(InputError, match=word):
        run_main(spec_of(settings, **changes), data, tmp_path)
    assert not steps and not (tmp_path / "record.json").exists()


def test_without_validation_records_there_is_no_score(tmp_path):
    with pytest.raises(InputError, match="n_validation"):
        run_main(spec_of(), save_data(tmp_path / "data", n_validation=0), tmp_path)
