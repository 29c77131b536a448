"""`python -m dpatlas train`, with and without the private selection of settings."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from small_classifier import read, save_data
from small_jobs import counted, killed_at

from dpatlas.checks.audit.jobs.classifier import accuracy
from dpatlas.commands import train as command
from dpatlas.core import progress
from dpatlas.core.rounding import upward
from dpatlas.data.prepared import load
from dpatlas.errors import run_command
from dpatlas.jobs import job as job_module
from dpatlas.privacy.saved import CARD, CONFIG, LEDGER, WEIGHTS, load_model
from dpatlas.privacy.training import PrivateTraining

QUICK = ("--model", "linear", "--batch", "8", "--steps", "4")
NOISY = (*QUICK, "--noise-multiplier", "1")
LAW = ("--select", "geometric", "--expected-trials", "3")
FROM = ("--lr-from", "0.01,3")
SCORE = ("--score-noise", "2")
SELECT = (*NOISY, *LAW, *FROM, *SCORE)
STEP = (PrivateTraining, "step")


def words_of(data, *arguments, output="out"):
    return ["--data", str(data), *map(str, arguments), "--output", str(data.parents[1] / output)]


def train(data, *arguments, output="out"):
    return run_command(command.main, words_of(data, *arguments, output=output))


def test_a_manifest_is_trained_on_and_the_guarantee_is_one_line(data, capsys):
    assert train(data, *QUICK, "--epsilon", "3", "--runs", "2") == 0
    first, second, *models, third = capsys.readouterr().out.splitlines()
    stated = r"guaranteed: epsilon (4\.\d+) at delta 1e-05 of all 2 runs together \(one alone: "
    numbers = re.match(stated + r"epsilon (2\.9\d+|3\.000)\), add_remove, poisson", first)
    assert second.startswith("accuracy: ") and "6 held-out records" in second
    record = read(Path(third.removeprefix("record: ")))
    ledger = record["ledger"]
    assert ledger["one_run"]["epsilon"] <= 3
    assert numbers.groups() == (upward(ledger["epsilon"]), upward(ledger["one_run"]["epsilon"]))
    assert [Path(line.removeprefix("model: ")).name for line in models] == ["model-0", "model-1"]
    assert record["spec"]["data"]["sha256"] == record["data"]["sha256"]


def test_the_error_of_a_mean_of_two_runs_is_half_their_distance():
    said = command._accuracy("accuracy", [0.5, 0.7], 6)
    assert said == "accuracy: 0.600 ± 0.1 (standard error of 2 runs) on 6 held-out records"


def test_both_guarantees_and_the_best_trial_of_a_selection_are_printed(data, capsys):
    assert train(data, *SELECT) == 0
    selected, alone, best, right, model, record = capsys.readouterr().out.splitlines()
    assert load_model(model.removeprefix("model: ")).training is False
    pattern = r"(?:guaranteed|one trial alone): epsilon ([\d.]+) at delta 1e-05 \(add_remove\)"
    assert float(re.match(pattern, selected)[1]) > float(re.match(pattern, alone)[1])
    assert re.match(r"selected: lr [\d.]+; score .* on 8 validation records, noise of", best)
    assert "6 held-out records" in right
    assert record.startswith("record: ")


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.9), ("adam", 0.0)])
def test_an_optimizer_is_all_that_has_to_be_named(data, capsys, optimizer, momentum):
    assert train(data, *NOISY, "--optimizer", optimizer, "--json") == 0
    assert json.loads(capsys.readouterr().out)["spec"]["momentum"] == momentum


def test_other_trainings_on_the_same_records_are_announced_before_their_epsilons_add_up(
    data, capsys
):
    assert train(data, *NOISY) == 0
    assert "add up" not in capsys.readouterr().err
    # The same again is the same release.
    assert train(data, *NOISY) == 0
    assert "add up" not in capsys.readouterr().err
    assert train(data, *NOISY, "--lr", "0.3") == 0
    (line,) = capsys.readouterr().err.strip().splitlines()[:1]
    assert "trained on the same records with other settings: their epsilons add up" in line
    other = data.parent.parent / "other" / "manifest.json"
    shutil.copytree(data.parent, other.parent)
    content = json.loads(other.read_text())
    other.write_text(json.dumps({**content, "sha256": "0" * 64}))
    train(other, *NOISY)
    assert "add up" not in capsys.readouterr().err


def test_the_digits_need_no_file_and_are_the_same_records_in_every_training(tmp_path, capsys):
    for lr in ("0.3", "0.1"):
        words = [*NOISY, "--lr", lr, "--output", str(tmp_path / "out")]
        assert run_command(command.main, words) == 0
    assert "trained on the same records" in capsys.readouterr().err


@pytest.mark.parametrize("words", [NOISY, SELECT], ids=["training", "selection"])
def test_a_killed_command_goes_on_and_a_finished_one_releases_nothing_new(
    data, capsys, monkeypatch, draws, words
):
    draws(1)
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with killed_at(2, STEP):
        train(data, *words)
    with counted(STEP) as steps:
        assert train(data, *words) == 0
    assert len(steps) == 2
    first = capsys.readouterr().out
    path = Path(first.splitlines()[-1].removeprefix("record: "))
    content = path.read_bytes()
    assert read(path)["spec"]["noise_source"] == "os"
    assert {"batch", "noise"} <= set(read(path)["seeds"]["os"])
    with counted(STEP) as steps:
        assert train(data, *words) == 0
    again = capsys.readouterr()
    assert not steps and again.out == first and "nothing is trained again" in again.err
    assert path.read_bytes() == content
    assert train(data, *words, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    (folder,) = printed.pop("models")
    assert Path(folder) == path.parent / "model"
    assert read(Path(printed.pop("record"))) == printed


@pytest.mark.parametrize("averaged", [(), ("--ema-decay", "0.9")], ids=["last", "averaged"])
def test_the_saved_network_has_the_accuracy_and_the_guarantee_of_the_record(data, capsys, averaged):
    assert train(data, *NOISY, *averaged) == 0
    *_, model, record = capsys.readouterr().out.splitlines()
    folder = Path(model.removeprefix("model: "))
    record = read(Path(record.removeprefix("record: ")))
    assert {each.name for each in folder.iterdir()} == {CARD, CONFIG, LEDGER, WEIGHTS}
    assert read(folder / LEDGER) == record["ledger"]
    held_out = load(data.parent)
    right = accuracy(
        load_model(folder), torch.from_numpy(held_out.x_test), torch.from_numpy(held_out.y_test)
    )
    assert right[0] == record["metrics"]["runs"][0]["ema_accuracy" if averaged else "accuracy"]
    card = (folder / CARD).read_text()
    assert record["ledger"]["guaranteed"] in card and "6 held-out records" in card


def test_resume_goes_on_or_says_that_there_is_nothing_to_go_on_from(data, capsys, monkeypatch):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with counted(STEP) as steps:
        assert train(data, *NOISY, "--resume") == 2
    assert not steps and "--resume: found no checkpoint of these in" in capsys.readouterr().err
    with killed_at(3, STEP):
        train(data, *NOISY)
    assert not list((data.parent.parent / "out").glob("*/model"))
    with counted(STEP) as steps:
        assert train(data, *NOISY, "--resume", "--lr", "0.7") == 2
        assert train(data, *NOISY, "--resume") == 0
    assert len(steps) == 1
    # A finished one has nothing left to do.
    assert train(data, *NOISY, "--resume") == 0


def test_progress_shows_epsilon_and_on_request_alone_the_private_loss(data, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert train(data, *NOISY) == 0
    shown = capsys.readouterr().err
    assert re.search(r"2/4 \(50%, .* left\) epsilon \d", shown) and "loss" not in shown
    words = (*NOISY, "--show-private-loss")
    assert train(data, *words, output="again") == 0
    captured = capsys.readouterr()
    assert re.search(r"epsilon \S+ so far, loss \S+ of training records \(private\)", captured.err)
    folder = data.parent.parent / "again"
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert "private)" not in captured.out and not any(b"private_loss" in each for each in kept)


@pytest.mark.parametrize(("source", "same"), [("os", False), ("keyed", True)])
def test_noise_of_the_operating_system_is_new_in_every_folder_and_keyed_noise_is_not(
    data, source, same
):
    metrics = []
    for folder in ("one", "two"):
        assert train(data, *NOISY, "--noise-source", source, output=folder) == 0
        (path,) = (data.parent.parent / folder).glob("*/record.json")
        metrics.append(read(path)["metrics"])
    assert (metrics[0] == metrics[1]) == same


def test_no_noise_is_said_aloud(data, capsys):
    assert train(data, *QUICK, "--noise-multiplier", "0") == 0
    captured = capsys.readouterr()
    assert "NOT private" in captured.err
    assert "guaranteed: nothing: no noise" in captured.out


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("--sampler", "shuffled", "--batch", "4"), "replace_one, shuffled batches"),
        (("--sampler", "full-batch", "--epochs", "2"), "add_remove, full-batch batches"),
    ],
)
def test_the_relation_follows_the_sampler(data, capsys, words, stated):
    assert train(data, "--model", "linear", "--noise-multiplier", "2", *words) == 0
    assert stated in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--delta", "1"], "--delta: found 1.0; allowed: a number > 0 and < 1"),
        # With noise multiplier 1 it said: guaranteed, epsilon 0.
        (["--delta", "0.5", "--noise-multiplier", "1"], "--delta: found 0.5; allowed: at most 1 /"),
        (["--optimizer", "adam", "--momentum", "0.9"], "momentum: found 0.9; allowed: 0 with adam"),
        (["--runs", "0"], "--runs: found 0; allowed: a whole number >= 1"),
        (["--steps", "0"], "--steps: found 0; allowed: a whole number >= 1"),
        (["--steps", "0", "--noise-multiplier", "1"], "--steps: found 0"),
        (["--epsilon", "3", "--noise-multiplier", "0"], "epsilon and noise_multiplier"),
        (["--batch", "13"], "batch"),
        (["--sampler", "shuffled", "--relation", "add_remove"], "replace_one"),
        (["--steps", "3", "--epochs", "1"], "--epochs"),
        (["--epochs", "1e308"], "--epochs: found 1e+308; allowed: a number > 0 and <= 1e+06"),
        (["--data", "nowhere/manifest.json"], "nowhere"),
        (["--device", "cuda"], "device"),
        ([*LAW, *SCORE, "--lr-from", "0.1,0.3,1"], "--lr-from: found '0.1,0.3,1'"),
        # Beyond what a training takes, which only a trial that draws it would notice.
        ([*LAW, *SCORE, "--lr-from", "1,1e300"], "--lr-from: found '1,1e300'"),
        ([*LAW, *SCORE, *FROM, "--lr", "0.1"], "--lr"),
        ([*LAW, *SCORE], "no range"),
        ([*LAW, *FROM], "neither"),
        ([*LAW, *FROM, *SCORE, "--public-validation"], "both"),
        ([*FROM, *SCORE, "--select", "geometric"], "--expected-trials"),
        ([*LAW, *FROM, *SCORE, "--runs", "3"], "--runs"),
        ([*LAW, *FROM, *SCORE, "--noise-multiplier", "0"], "--noise-multiplier"),
        (FROM, "--select"),
        ([*LAW, *FROM, *SCORE, "--show-private-loss"], "--show-private-loss"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_trained(
    data, refusal_of, monkeypatch, arguments, named
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = words_of(data, "--model", "linear", "--batch", "8", *arguments)
    with counted(STEP) as steps:
        assert named in refusal_of(command.main, *words)
    assert not steps


@pytest.mark.parametrize("shapes", [{}, [], {"x_train": []}, {"x_train": 5}], ids=str)
def test_a_manifest_that_does_not_count_its_records_is_one_line_and_exit_2(
    tmp_path, refusal_of, shapes
):
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"sha256": "a", "name": "x", "shapes": shapes}))
    error = refusal_of(command.main, *words_of(manifest, *QUICK, "--epsilon", "3"))
    assert "allowed: the manifest of a prepared data set" in error


@pytest.mark.parametrize("count", ["a", 0, None, 1.5])
def test_a_manifest_with_another_count_than_a_whole_number_is_one_line(tmp_path, refusal_of, count):
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"sha256": "a", "name": "x", "shapes": {"x_train": [count, 4]}}))
    error = refusal_of(command.main, *words_of(manifest, "--batch", "8", "--epochs", "1"))
    assert "manifest.json: shapes.x_train: found" in error


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_test": 0}, "n_test"),
        ({"y_train": 3}, "y_train"),
    ],
    ids=["no test records", "label too large"],
)
def test_unusable_data_are_one_line_and_exit_2(tmp_path, refusal_of, changes, named):
    manifest = save_data(tmp_path / "bad", **changes)
    assert named in refusal_of(command.main, *words_of(manifest, *QUICK, "--epsilon", "3"))
