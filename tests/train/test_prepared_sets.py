"""`dpatlas train` on prepared data sets, by networks that have names; and its example."""

import json
import re

import pytest
import torch
from prepared_trainings import SETTINGS, record_in, save_data, trained, words
from small_jobs import counted, killed_at

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import Poisson
from dpatlas.base import progress
from dpatlas.base.networks import NETWORKS
from dpatlas.commands.train import main
from dpatlas.data.prepared import load
from dpatlas.errors import run_command
from dpatlas.jobs import job as job_module
from dpatlas.models.build import build
from dpatlas.privacy.saved import CARD, load_model
from dpatlas.privacy.training import PrivateTraining

STEP = (PrivateTraining, "step")


@pytest.mark.parametrize("decay", [None, 0.9], ids=["last", "averaged"])
def test_the_saved_network_has_the_accuracy_and_the_guarantee_of_the_record(data, tmp_path, decay):
    record = trained(tmp_path, ema_decay=decay)
    folder = tmp_path / "out" / record["id"] / "model"
    held_out, model = load(data.parent), load_model(folder)
    right = model(torch.from_numpy(held_out.x_test)).argmax(1).numpy() == held_out.y_test
    assert record["metrics"]["accuracy"] == right.mean()
    card = (folder / CARD).read_text()
    assert record["ledger"]["guaranteed"] in card and "6 test records" in card
    # A training of before runs and canaries keeps its id.
    written = record["spec"]["settings"]
    assert not {"runs", "canaries"} & set(written)
    assert written.items() >= SETTINGS.items()


def test_several_runs_compose_have_rows_and_are_saved(data, tmp_path, capsys):
    given = {"epsilon": 2.0, "noise_multiplier": None, "runs": 3, "settings_tried": 4}
    record = trained(tmp_path, **given)
    metrics, ledger = record["metrics"], record["ledger"]
    assert 1.99 < ledger["one_run"]["epsilon"] <= 2
    phase = Phase(Poisson(12, 8), ledger["noise_multiplier"], 3 * ledger["steps"])
    assert ledger["epsilon"] == pytest.approx(guarantee([phase], 1e-5, "add_remove").epsilon)
    assert (ledger["tuning"]["trials"], ledger["tuning"]["reported_runs"]) == (4, 3)
    rows = metrics["runs"]
    assert len({row["loss"] for row in rows}) == 3
    assert metrics["loss"] == pytest.approx(sum(row["loss"] for row in rows) / 3)
    said = capsys.readouterr().out
    assert "the mean of 3 networks, on 6 test records" in said
    assert [line.rsplit("/", 1)[1] for line in said.splitlines() if "model: " in line] == [
        f"model-{run}" for run in range(3)
    ]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_killed_training_goes_on_to_the_same_bits(data, tmp_path, monkeypatch, runs):
    whole = trained(tmp_path, output="whole", runs=runs, ema_decay=0.5)
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    given = words(tmp_path, "--resume", runs=runs, ema_decay=0.5)
    with counted(STEP) as steps:
        assert run_command(main, given) == 2
        with killed_at(runs * 3 - 1, STEP):
            main(given[:-1])
    assert len(steps) == runs * 3 - 1
    with counted(STEP) as steps:
        assert main(given) == 0
    assert len(steps) == 1 and record_in(tmp_path / "out") == whole


def test_a_record_that_is_not_finite_is_counted_and_the_weights_stay_numbers(tmp_path):
    save_data(tmp_path / "data", x_train=float("nan"))
    metrics = trained(tmp_path, batch=12, runs=2)["metrics"]
    # At sample rate 1 the record is in every batch of every run.
    assert [row["skipped_records"] for row in metrics["runs"]] == [3, 3]
    assert metrics["skipped_records"] == 6 and metrics["loss"] is not None


def test_progress_shows_epsilon_and_on_request_alone_the_private_loss(
    data, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    trained(tmp_path)
    shown = capsys.readouterr().err
    assert re.search(r"2/3 \(67%, .* left\) epsilon \d", shown) and "loss" not in shown
    assert main(words(tmp_path, "--show-private-loss", output="again")) == 0
    captured = capsys.readouterr()
    assert re.search(r"epsilon \S+ so far, loss \S+ of records \(private\)", captured.err)
    kept = [path.read_bytes() for path in (tmp_path / "again").rglob("*") if path.is_file()]
    assert "private)" not in captured.out and not any(b"private_loss" in each for each in kept)


def test_the_example_is_written_once_never_over_a_file_and_run(tmp_path, capsys, refusal_of):
    output = tmp_path / "out"
    with killed_at(0, STEP):
        main(["--output", str(output)])
    path = output / "example.yaml"
    assert f"{path}: an example of settings, written now" in capsys.readouterr().err
    assert not list(output.glob("*/record.json"))
    shorter = path.read_text().replace("steps: 60", "steps: 2").replace("small-cnn-s", "linear")
    path.write_text(shorter)
    assert f"{path}: found other settings" in refusal_of(main, "--output", output)
    assert path.read_text() == shorter
    assert main([str(path), "--output", str(output)]) == 0
    record = record_in(output)
    assert record["metrics"]["n"] == 1200 and record["metrics"]["n_test"] == 297
    assert record["ledger"]["epsilon"] <= 3
    # The digits are the same records in every training.
    path.write_text(shorter.replace("lr: 0.5", "lr: 0.1"))
    assert main([str(path), "--output", str(output)]) == 0
    assert "trained on these records" in capsys.readouterr().err


LAW = {"law": "geometric", "expected_trials": 3.0, "lr": [0.01, 3.0], "public_validation": True}
SIX = {"canaries": {"number": 6}}
BAD = [
    ({"data": "nowhere/manifest.json"}, "nowhere"),
    ({"data": "imagenet"}, "data: found 'imagenet'"),
    ({"model": "resnet-9"}, "model: found 'resnet-9'"),
    ({"data": "mine.npz"}, "model: found linear with records"),
    ({"lr": None, "select": LAW, "runs": 2}, "runs: found it beside select"),
    ({"lr": None, "select": LAW, "noise_multiplier": 0.0}, "noise_multiplier: found 0 with select"),
    ({"batch": 13}, "batch"),
    ({"canaries": {"number": 1}}, "canaries.number: found 1"),
    ({**SIX, "runs": 2}, "runs: found another"),
    ({"canaries": {"number": 20}, "delta": 0.03}, "delta beside canaries: found 0.03"),
    ({**SIX, "noise_multiplier": 0.0}, "noise_multiplier: found 0 with canaries"),
    ({**SIX, "sampler": "fixed-size"}, "sampler: found another value beside canaries; allowed: po"),
]


@pytest.mark.parametrize(("changes", "named"), BAD, ids=[named for _, named in BAD])
def test_bad_settings_are_one_line_exit_2_and_nothing_is_trained(
    changes, named, data, tmp_path, refusal_of
):
    with counted(STEP) as steps:
        assert named in refusal_of(main, *words(tmp_path, **changes))
    assert not steps


def test_a_set_without_validation_records_and_what_is_no_set_are_refused(tmp_path, refusal_of):
    save_data(tmp_path / "data", n_validation=0)
    named = "select.validation: found none in the data set"
    assert named in refusal_of(main, *words(tmp_path, lr=None, select=LAW))
    no_arrays = {"sha256": "a", "name": "x", "shapes": {"x_train": 5}, "schema_version": 1}
    for content in ({}, [], no_arrays):
        (tmp_path / "data" / "manifest.json").write_text(json.dumps(content))
        assert "data/" in refusal_of(main, *words(tmp_path))


def test_without_noise_nothing_is_guaranteed_of_several_runs(data, tmp_path, capsys):
    record = trained(tmp_path, noise_multiplier=0.0, runs=2)
    captured = capsys.readouterr()
    assert record["ledger"]["epsilon"] is None and "NOT private" in captured.err
    assert "guaranteed: nothing: no noise" in captured.out


@pytest.mark.parametrize("name", [name for name, each in NETWORKS.items() if each.inputs == 64])
def test_the_plan_counts_a_network_s_multiplications_and_activations(name):
    model = build(name, (1, 8, 8), 10, key="audit", run=0, base_seed=0)
    counts = [0, 0]

    def count(layer, inputs, output):
        counts[0] += output[0].numel() * layer.weight[0].numel()
        counts[1] += output[0].numel()

    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            layer.register_forward_hook(count)
    model(torch.zeros(1, 64))
    assert [NETWORKS[name].multiplications, NETWORKS[name].activations] == counts
