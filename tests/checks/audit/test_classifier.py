"""Private training of a classifier: resumed to the same bytes, honest about what it guarantees."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import small_jobs
import torch
from small_jobs import Killed, killed_at, labelled

from dpatlas.checks.audit.jobs import canaries
from dpatlas.checks.audit.jobs import training as classifier
from dpatlas.checks.audit.jobs.classifier import training_phase
from dpatlas.checks.audit.records.training import Spec
from dpatlas.checks.audit.settings import training_spec
from dpatlas.commands import train as command
from dpatlas.config.load import load_config, load_tier
from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.seeds import Noise
from dpatlas.cost.training import NETWORKS
from dpatlas.data import prepared
from dpatlas.errors import InputError, run_command
from dpatlas.jobs import job as job_module
from dpatlas.jobs.run import main
from dpatlas.models.build import build
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining

SETTINGS = {**small_jobs.TRAINING, "steps": 5, "runs": 2, "settings_tried": 3}
CANARIES = {"canaries": 6, "runs": 1, "level": 0.95, "verdict_level": 0.999}


def spec_of(**changes):
    return training_spec({"seed": 0, "noise_source": "keyed"}, {**SETTINGS, **changes})


def save_data(folder, n_train=12, n_test=6, **poison):
    sizes = {"train": n_train, "add": 0, "test": n_test, "validation": 8}
    arrays = labelled(sizes, margin=3)
    for name, value in poison.items():
        arrays[name].flat[0] = value
    prepared.save(folder, arrays, {"name": "small", "classes": [*"abc"], "image_shape": [1, 4, 4]})
    return folder / "manifest.json"


@pytest.fixture
def data(tmp_path):
    return save_data(tmp_path / "data")


run_main = functools.partial(small_jobs.run_main, main)


@pytest.mark.parametrize(
    "changes", [{"ema_decay": 0.5}, {**CANARIES, "model": "mlp"}], ids=["ema", "canaries"]
)
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(data, tmp_path, monkeypatch, changes):
    spec = spec_of(**changes)
    whole = run_main(spec, data, tmp_path / "whole").read_bytes()
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    total = spec.fields["steps"] * spec.fields["runs"]
    for kill_at in range(0, total, 3):
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, (PrivateTraining, "step")):
            run_main(spec, data, folder)
        assert not (folder / "record.json").exists()
        assert run_main(spec, data, folder).read_bytes() == whole


@pytest.mark.parametrize("damage", ["foreign", "truncated"])
def test_a_foreign_or_truncated_checkpoint_is_ignored(data, tmp_path, damage):
    spec = spec_of()
    alone = run_main(spec, data, tmp_path / "alone").read_bytes()
    folder = tmp_path / "beside"
    strange = Checkpoints(folder / "checkpoints" / spec.id, {"spec": "another"})
    strange.save("stages", {"weights/head.weight": np.ones((3, 16))}, {"repetition": 0})
    if damage == "truncated":
        path = folder / "checkpoints" / spec.id / "stages.npz"
        path.write_bytes(path.read_bytes()[:100])
    assert run_main(spec, data, folder).read_bytes() == alone


def test_a_poisoned_record_is_counted_and_the_weights_stay_numbers(tmp_path):
    manifest = save_data(tmp_path / "data", x_train=np.nan)
    record = json.loads(run_main(spec_of(batch=12), manifest, tmp_path).read_text())
    metrics = record["metrics"]
    # At sample rate 1 the record is in every batch of every run.
    assert metrics["skipped_records"] == [5, 5]
    assert all(point["loss"] is not None for curve in metrics["curves"] for point in curve)


def test_a_diverged_run_has_a_record(data, tmp_path):
    record = json.loads(run_main(spec_of(lr=1e38, runs=1), data, tmp_path).read_text())
    assert record["metrics"]["curves"][0][-1]["loss"] is None


def test_accuracy_is_of_the_last_iterate_on_the_test_records(data, tmp_path):
    spec = spec_of(noise_multiplier=0.0, batch=12, runs=1)
    record = json.loads(run_main(spec, data, tmp_path).read_text())
    data = prepared.load(data.parent)
    model = build("linear", (1, 4, 4), 3, key="audit", run=0, base_seed=0)
    phase = training_phase(Spec(**spec.fields), Poisson(12, 12))
    with torch.no_grad():
        training = PrivateTraining(
            model,
            [phase],
            torch.from_numpy(data.x_train),
            torch.from_numpy(data.y_train),
            noise=Noise(spec.digest, "keyed"),
        )
        training.run()
        right = model(torch.from_numpy(data.x_test)).argmax(1).numpy() == data.y_test
    assert record["metrics"]["accuracy"] == [right.mean()]


def test_the_ledger_says_what_is_guaranteed_and_how_settings_were_chosen(data, tmp_path):
    told = json.loads(run_main(spec_of(), data, tmp_path / "told").read_text())
    assert told["ledger"]["epsilon"] > 0
    tuning = told["ledger"]["tuning"]
    assert (tuning["trials"], tuning["reported_runs"]) == (3, spec_of().fields["runs"])
    (choice,) = told["ledger"]["chosen_on_private_data"]
    assert "3 trainings on the private records, as declared" in choice["what"]
    assert f"epsilon {tuning['epsilon']:.6g} at delta" in choice["cost"]
    assert "no finite epsilon for those records" in choice["cost"]
    assert "one of 3 settings" in told["metrics"]["selection"]
    spec = spec_of(settings_tried=None, noise_multiplier=0.0)
    untold = json.loads(run_main(spec, data, tmp_path / "untold").read_text())
    assert untold["ledger"]["epsilon"] is None
    assert untold["ledger"]["guaranteed"] == "nothing: no noise"
    assert "tuning" not in untold["ledger"]
    assert "unknown" in untold["ledger"]["chosen_on_private_data"][0]["what"]


def test_the_noise_is_calibrated_to_epsilon(data, tmp_path):
    spec = spec_of(epsilon=2.0, noise_multiplier=None, runs=1)
    ledger = json.loads(run_main(spec, data, tmp_path).read_text())["ledger"]
    assert 1.99 < ledger["epsilon"] <= 2.0


def test_several_runs_compose_and_one_alone_stands_beside_them(data, tmp_path):
    spec = spec_of(epsilon=2.0, noise_multiplier=None, runs=3, settings_tried=None)
    ledger = json.loads(run_main(spec, data, tmp_path).read_text())["ledger"]
    assert 1.99 < ledger["one_run"]["epsilon"] <= 2.0
    noise, steps = ledger["noise_multiplier"], 3 * ledger["steps"]
    phase = Phase(Poisson(ledger["sampler"]["n"], spec.fields["batch"]), noise, steps)
    delta, relation = spec.fields["delta"], spec.fields["relation"]
    assert ledger["epsilon"] == pytest.approx(guarantee([phase], delta, relation).epsilon)
    assert "all 3 runs together; one alone: epsilon" in ledger["guaranteed"]


def test_canaries_that_are_out_are_never_in_a_batch(data):
    fields = Spec(**spec_of(**CANARIES).fields)
    found = canaries.Canaries.of(prepared.load(data.parent), fields)
    sampler = classifier.batches_of(fields, 12, found)
    seen = np.concatenate(
        [sampler.batch_indices(Noise("x", "keyed"), 0, step) for step in range(200)]
    )
    assert set(range(18)) - set(seen.tolist()) == found.empty_slots
    assert (sampler.expected_batch, sampler.sample_rate) == (8, 8 / 18)
    wrong = found.labels != prepared.load(data.parent).y_validation[:6]
    assert wrong.all()


def test_the_attack_finds_canaries_when_hardly_any_noise_hides_them(data, tmp_path):
    spec = spec_of(**CANARIES, noise_multiplier=0.01, batch=18, steps=3)
    found = json.loads(run_main(spec, data, tmp_path).read_text())["metrics"]["audit"]
    assert found["auc"] == 1
    assert found["lower"]["epsilon"] == pytest.approx(found["lower"]["ceiling"])
    assert not found["contradicted"]


def test_a_bound_above_the_guarantee_is_a_contradiction():
    included = np.arange(40) % 2 == 0
    levels = (0.95, 0.99)
    found = canaries.Canaries(np.zeros((40, 1)), np.zeros(40), included, frozenset(), levels)
    assert canaries.verdict(included * 1.0, found, 1e-5, 0.5).contradicted
    assert not canaries.verdict(included * 1.0, found, 1e-5, 8.0).contradicted
    assert not canaries.verdict(included * 1.0, found, 1e-5, None).contradicted


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epsilon": 3.0}, "epsilon and noise_multiplier"),
        ({"noise_multiplier": None}, "neither"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"delta": 1.0}, "delta"),
        ({"batch": 13}, "batch"),
        ({"model": "resnet"}, "model"),
        ({**CANARIES, "canaries": 9}, "canaries"),
        ({**CANARIES, "runs": 2}, "canaries"),
        ({**CANARIES, "delta": 0.1}, "delta of a run with canaries"),
        ({**CANARIES, "noise_multiplier": 0.0}, "noise_multiplier"),
        ({**CANARIES, "sampler": "fixed-size", "relation": "replace_one"}, "canaries"),
    ],
)
def test_settings_that_cannot_run_are_refused_before_a_step(data, tmp_path, changes, word):
    with pytest.raises(InputError, match=word):
        run_main(spec_of(**changes), data, tmp_path)
    assert not (tmp_path / "record.json").exists()


@pytest.mark.parametrize("name", [name for name, counts in NETWORKS.items() if counts[0] == 64])
def test_the_plan_counts_a_network_s_multiplications_and_activations(name):
    model = build(name, (1, 8, 8), 10, key="audit", run=0, base_seed=0)
    counted = [0, 0]

    def count(layer, given, output):
        counted[0] += output[0].numel() * layer.weight[0].numel()
        counted[1] += output[0].numel()

    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            layer.register_forward_hook(count)
    model(torch.zeros(1, 64))
    assert NETWORKS[name] == (64, *counted)


def test_the_smoke_tier_trains_in_the_same_way():
    block = load_tier("smoke").audit.training.plain()
    assert set(block) == set(load_config().audit.training.plain())


class TestCommand:
    """`python -m dpatlas train`."""

    QUICK = ("--model", "linear", "--batch", "8", "--steps", "4")

    def train(self, tmp_path, *arguments):
        return run_command(command.main, ["--output", str(tmp_path / "out"), *arguments])

    def test_a_manifest_is_trained_on_and_the_guarantee_is_one_line(self, data, tmp_path, capsys):
        words = ("--data", str(data), *self.QUICK, "--epsilon", "3", "--runs", "2")
        assert self.train(tmp_path, *words) == 0
        first, second, third = capsys.readouterr().out.splitlines()
        stated = r"guaranteed: epsilon 4\.\d+ at delta 1e-05 of all 2 runs together \(one alone: "
        assert re.match(stated + r"epsilon 2\.9\d+\), add_remove, poisson", first)
        assert second.startswith("accuracy: ") and "6 held-out records" in second
        record = json.loads(Path(third.removeprefix("record: ")).read_text())
        assert record["ledger"]["one_run"]["epsilon"] <= 3
        assert record["spec"]["data"]["sha256"] == record["data"]["sha256"]

    def test_a_killed_run_goes_on_when_called_again(self, data, tmp_path, monkeypatch, capsys):
        words = ("--data", str(data), *self.QUICK, "--noise-multiplier", "1")
        monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        real_step, steps = PrivateTraining.step, []

        def step(training):
            if training.steps_done == 2 and len(steps) == 2:
                steps.append("killed")
                raise Killed
            steps.append(training.steps_done)
            real_step(training)

        monkeypatch.setattr(PrivateTraining, "step", step)
        with pytest.raises(Killed):
            self.train(tmp_path, *words)
        assert self.train(tmp_path, *words) == 0
        assert steps == [0, 1, "killed", 2, 3]

    def test_a_finished_command_shows_its_record_and_releases_nothing_new(
        self, data, tmp_path, monkeypatch, capsys
    ):
        words = ("--data", str(data), *self.QUICK, "--noise-multiplier", "1")
        assert self.train(tmp_path, *words) == 0
        first = capsys.readouterr().out
        path = Path(first.splitlines()[-1].removeprefix("record: "))
        before = path.read_bytes()
        record = json.loads(before)
        assert record["spec"]["noise_source"] == "os" and record["seeds"]["os"] == [
            "batch",
            "noise",
        ]
        monkeypatch.setattr(PrivateTraining, "step", None)
        assert self.train(tmp_path, *words) == 0
        again = capsys.readouterr()
        assert again.out == first and "nothing is trained again" in again.err
        assert path.read_bytes() == before

    def test_noise_of_the_operating_system_is_new_in_every_folder_and_keyed_noise_is_not(
        self, data, tmp_path
    ):
        words = ("--data", str(data), *self.QUICK, "--noise-multiplier", "1")
        for source, same in (("os", False), ("keyed", True)):
            found = []
            for folder in (tmp_path / f"{source} 1", tmp_path / f"{source} 2"):
                assert self.train(folder, *words, "--noise-source", source) == 0
                (path,) = (folder / "out").glob("*/record.json")
                found.append(json.loads(path.read_text())["metrics"])
            assert (found[0] == found[1]) == same

    def test_no_noise_is_said_aloud(self, data, tmp_path, capsys):
        assert (
            self.train(tmp_path, "--data", str(data), *self.QUICK, "--noise-multiplier", "0") == 0
        )
        captured = capsys.readouterr()
        assert "NOT private" in captured.err
        assert "guaranteed: nothing: no noise" in captured.out

    def test_the_relation_follows_the_sampler(self, data, tmp_path, capsys):
        words = ("--data", str(data), "--model", "linear", "--noise-multiplier", "2")
        assert self.train(tmp_path, *words, "--sampler", "shuffled", "--batch", "4") == 0
        assert "replace_one, shuffled batches" in capsys.readouterr().out
        assert self.train(tmp_path, *words, "--sampler", "full-batch", "--epochs", "2") == 0
        assert "add_remove, full-batch batches" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (["--epsilon", "0"], "epsilon"),
            (["--epsilon", "nan"], "--epsilon"),
            (["--delta", "1"], "delta"),
            (["--max-grad-norm", "0"], "max_grad_norm"),
            (["--epsilon", "3", "--noise-multiplier", "0"], "epsilon and noise_multiplier"),
            (["--batch", "13"], "batch"),
            (["--model", "resnet"], "'resnet'"),
            (["--sampler", "some"], "'some'"),
            (["--sampler", "shuffled", "--relation", "add_remove"], "replace_one"),
            (["--ema-decay", "1"], "ema_decay"),
            (["--epochs", "0"], "--epochs"),
            (["--steps", "3", "--epochs", "1"], "--epochs"),
            (["--data", "mnst"], "'mnst'"),
            (["--data", "nowhere/manifest.json"], "nowhere"),
            (["--output", "/dev/null"], "/dev/null"),
        ],
    )
    def test_bad_input_is_one_line_and_exit_2(self, data, tmp_path, capsys, arguments, named):
        words = [*("--data", str(data)), *("--model", "linear"), *("--batch", "8"), *arguments]
        assert self.train(tmp_path, *words) == 2
        error = capsys.readouterr().err
        assert named in error
        assert len(error.splitlines()) == 1

    def test_a_device_that_is_not_there_is_refused(self, data, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert self.train(tmp_path, "--data", str(data), *self.QUICK, "--device", "cuda") == 2
        assert "device" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"n_train": 0}, "records"),
            ({"n_test": 0}, "n_test"),
            ({"y_train": 3}, "y_train"),
            ({"y_train": -1}, "y_train"),
        ],
        ids=["empty", "no test records", "label too large", "label below zero"],
    )
    def test_unusable_data_are_one_line_and_exit_2(self, tmp_path, capsys, changes, named):
        manifest = save_data(tmp_path / "bad", **changes)
        assert self.train(tmp_path, "--data", str(manifest), *self.QUICK, "--epsilon", "3") == 2
        error = capsys.readouterr().err
        assert named in error
        assert len(error.splitlines()) == 1
