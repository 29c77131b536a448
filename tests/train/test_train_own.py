"""`dpatlas train FILE.yaml`: one's own network on one's own records, by command and from Python."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from own_trainings import SETTINGS, run, write
from small_jobs import killed_at

from dpatlas.base import seeds
from dpatlas.base.rounding import upward
from dpatlas.base.scripts import named_function
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.privacy import Poisson, PrivateTraining, TrainingPhase, load_weights
from dpatlas.privacy.saved import CARD
from dpatlas.privacy.training import PrivateTraining as Trained
from dpatlas.train import train
from dpatlas.train.inputs import _converted
from dpatlas_workflow.report.lineage import trace
from dpatlas_workflow.report.text import describe

SELECT = {
    "law": "geometric",
    "expected_trials": 3.0,
    "validation": "mine.py:held_out",
    "lr": [0.1, 2.0],
    "public_validation": True,
}

PRIVATE = {"public_validation": False, "score_noise": 4.0}
# A network with one output for numbers, which has no classes.
OF_NUMBERS = {
    "data": "mine.py:numbers",
    "test": None,
    "model": "mine.py:one_output",
    "loss": "squared_error",
}


def selecting(**changes):
    """Settings of a training whose rate is selected, by SELECT with these changes."""
    return {"lr": None, "select": {**SELECT, **changes}}


def of_numbers(**changes):
    return selecting(validation="mine.py:other_numbers", **changes)


def record_of(folder, **changes):
    path = write(folder, **changes)
    assert run(path) == 0
    (record,) = (folder / "trained").glob("mine-*/record.json")
    return json.loads(record.read_text()), record.parent


def weights_in(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def test_the_command_trains_measures_and_saves(tmp_path, capsys):
    record, folder = record_of(tmp_path, epochs=3.0, steps=None, epsilon=2.0, noise_multiplier=None)
    said = capsys.readouterr().out
    metrics, ledger = record["metrics"], record["ledger"]
    assert metrics["steps"] == 12 and metrics["n"] == 40 and metrics["n_test"] == 20
    assert 1.9 < ledger["epsilon"] <= 2 and f"epsilon {ledger['epsilon']:g}" in said
    assert "secret seeds" in said
    assert f"accuracy: {metrics['accuracy']:.4g} on 20 test records" in said
    make, module, _ = named_function(f"{tmp_path / 'mine.py'}:network", "")
    model = make()
    assert load_weights(folder / "model", model) == ledger
    x, y = module.held_out()
    assert float((model(x).argmax(1) == y).float().mean()) == pytest.approx(metrics["accuracy"])
    assert str(folder / "model") in said
    card = (folder / "model" / CARD).read_text()
    assert f"{metrics['accuracy']:.4f} on 20 test records" in card


def test_its_record_is_traced_without_a_tier(tmp_path):
    record, folder = record_of(tmp_path)
    found = trace(folder / "record.json")
    assert found["module"] == "dpatlas.train.run" and found["code_unchanged"]
    assert found["tier"] is None and found["command"] is None
    said = describe(found)
    assert said.startswith(f"{folder.name}  (record of train)")
    digest = record["spec"]["records"]["data"]
    assert f"data      {SETTINGS['data']}, digest {digest[:12]}\n" in said
    # A dataset is named with its own fingerprint.
    items = {"data": "mine.py:items", "model": "mine.py:named", "test": None}
    _, folder = record_of(tmp_path / "items", **items)
    said = describe(trace(folder / "record.json"))
    assert "data      mine.py:items, fingerprint items of the test\n" in said


def test_python_the_command_and_the_engine_give_the_same_bits(tmp_path):
    record, folder = record_of(tmp_path / "command")
    base = write(tmp_path / "python").parent
    again = train(SETTINGS, output=tmp_path / "python" / "out", base=base, name="mine")
    assert again == record
    assert weights_in(tmp_path / "python" / "out" / record["id"]) == weights_in(folder)
    make, module, _ = named_function(f"{base / 'mine.py'}:network", "")
    torch.manual_seed(0)
    model = make()
    phase = TrainingPhase(Poisson(40, 10), 1.0, max_grad_norm=1.0, steps=6, lr=0.5)
    noise = Noise(record["spec_digest"], "keyed")
    training = PrivateTraining(model, [phase], *module.records(), noise=noise)
    training.run()
    saved = make()
    load_weights(folder / "model", saved)
    for mine, theirs in zip(model.parameters(), saved.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert training.guarantee(1e-3).epsilon == record["ledger"]["epsilon"]


CASES = {
    "adamw, schedules, groups of parameters": {
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "lr_schedule": {"name": "warmup-cosine", "warmup": 2},
        "noise_schedule": {"name": "step-decay", "every": 3, "factor": 0.9},
        "parameter_groups": [{"prefix": "2", "lr": 0.1}],
    },
    "adaptive clip": {"adaptive_clip": {"quantile": 0.5, "count_noise": 5.0}},
    "bounds by layer, inverse time": {
        "layer_bounds": {"0": 0.5, "2": 0.5},
        "max_grad_norm": None,
        "lr_schedule": {"name": "inverse-time", "decay": 0.1},
    },
    "persons": {"data": "mine.py:persons", "batch": 3},
    "persons in a file": {"data": "persons.npz", "batch": 2},
    "arrays in a file, secret noise": {"data": "mine.npz", "batch": 4, "noise_source": "os"},
    "a dataset of dicts": {"data": "mine.py:items", "model": "mine.py:named", "test": None},
    "a loss of one's own": {
        **OF_NUMBERS,
        "test": "mine.py:other_numbers",
        "loss": "mine.py:squares",
    },
    "averaged weights of the head": {"ema_decay": 0.9, "trainable": ["2"], "clipping": "per-layer"},
    "views of images": {
        "augmentation": {"image_shape": [1, 2, 2], "views": 2, "padding": 1},
        "max_physical_batch": 4,
    },
    "a selection on public records": selecting(),
    "a selection by a score with noise": {
        "test": None,
        "max_grad_norm": None,
        **selecting(max_grad_norm=[0.5, 2.0], **PRIVATE),
    },
    "a selection by a score of one's own": {
        **OF_NUMBERS,
        **of_numbers(right="mine.py:near"),
    },
}


# One dataset's network has no rule.
@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_killed_training_goes_on_to_the_same_bits(case, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    changes = CASES[case]
    secret = changes.get("noise_source") == "os"
    if secret:
        monkeypatch.setattr("os.urandom", lambda count: b"7" * count)
    record, whole = record_of(tmp_path / "whole", **changes)
    # The other one stands for a process of its own.
    monkeypatch.setattr(seeds, "_claims", {})
    path = write(tmp_path / "killed", **changes)
    with killed_at(3, (Trained, "step")):
        run(path)
    assert not list((tmp_path / "killed" / "trained").glob("mine-*/record.json"))
    if secret:
        monkeypatch.setattr("os.urandom", lambda count: b"8" * count)
    assert run(path, "--resume") == 0
    killed = tmp_path / "killed" / "trained" / record["id"]
    assert json.loads((killed / "record.json").read_text()) == record
    assert weights_in(killed) == weights_in(whole)
    assert not (tmp_path / "killed" / "trained" / "checkpoints" / record["id"]).exists()


@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
@pytest.mark.parametrize("case", CASES)
def test_every_setting_reaches_the_ledger_or_the_record(case, tmp_path):
    changes = CASES[case]
    record, _ = record_of(tmp_path, **changes)
    ledger, metrics = record["ledger"], record["metrics"]
    assert 0 < ledger["epsilon"] < 200
    if "persons" in case:
        assert "unit" in ledger and metrics["n"] == (10 if "file" not in case else 4)
    if "select" in changes:
        assert ledger["epsilon"] > ledger["single_trial"]["epsilon"]
        low, high = changes["select"]["lr"]
        assert low <= metrics["selected"]["lr"] <= high
        private = not changes["select"]["public_validation"]
        assert isinstance(ledger["epsilon_by_part"]["validation"], float) == private
    if "adaptive_clip" in changes:
        assert "adaptive" in json.dumps(ledger["clip"])
    if "noise_schedule" in changes:
        assert ledger["noise_multiplier"] == [1.0, 0.9]
    if metrics["n_test"]:
        assert np.isfinite(metrics["loss"])
    measured = changes.get("loss") is None and metrics["n_test"] > 0
    assert (metrics["accuracy"] is not None) == measured


@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
def test_workers_change_no_bit_and_no_name(tmp_path, monkeypatch):
    case = CASES["a dataset of dicts"]
    alone, folder = record_of(tmp_path / "alone", **case)
    # The other one stands for a process of its own.
    monkeypatch.setattr(seeds, "_claims", {})
    together, other = record_of(tmp_path / "together", workers=3, **case)
    assert together == alone and weights_in(other) == weights_in(folder)


# Every key of a training that is not a selection, with what it changes.
KEYS = {
    "optimizer": {"optimizer": "adam"},
    "momentum": {"momentum": 0.9},
    "weight_decay": {"weight_decay": 0.5},
    "lr": {"lr": 0.1},
    "lr_schedule": {"lr_schedule": {"name": "inverse-time", "decay": 1.0}},
    "noise_schedule": {"noise_schedule": {"name": "step-decay", "every": 1, "factor": 0.5}},
    "parameter_groups": {"parameter_groups": [{"prefix": "0", "lr": 0.01}]},
    "trainable": {"trainable": ["2"]},
    "clipping": {"clipping": "per-layer"},
    "max_grad_norm": {"max_grad_norm": 0.1},
    "layer_bounds": {"layer_bounds": {"0": 0.1, "2": 0.2}, "max_grad_norm": None},
    "adaptive_clip": {"adaptive_clip": {"quantile": 0.9, "count_noise": 1.0}},
    "sampler": {"sampler": "shuffled", "relation": "replace_one"},
    "full batch": {"sampler": "full-batch", "batch": None},
    "batch": {"batch": 20},
    "steps": {"steps": 5},
    "epochs": {"steps": None, "epochs": 1.0},
    "ema_decay": {"ema_decay": 0.9},
    "augmentation": {"augmentation": {"image_shape": [1, 2, 2], "views": 2, "padding": 1}},
    "seed": {"seed": 1},
    "epsilon": {"epsilon": 5.0, "noise_multiplier": None},
}


def with_one_noise(folder, **changes):
    """The weights of a training whose noise is keyed as all others' is: it makes no difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "_claims", {})
        keyed = lambda root, source: Noise("all alike", "keyed")  # noqa: E731
        patch.setattr("dpatlas.train.training.Noise", keyed)
        return weights_in(record_of(folder, **changes)[1])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    found = [with_one_noise(tmp_path_factory.mktemp(name)) for name in ("one", "other")]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_changes_what_is_trained(key, plain, tmp_path):
    assert with_one_noise(tmp_path, **KEYS[key]) != plain


def test_arrays_in_numpys_own_types_are_trained_on_as_tensors_are(plain, tmp_path):
    assert with_one_noise(tmp_path, data="mine.py:arrays", test="mine.py:test_arrays") == plain


def test_files_that_are_mapped_are_not_read_whole(tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (3, 2))
    assert _converted((mapped,), "f")[0] is mapped


def test_a_selection_releases_the_buffers_of_its_best_trial(tmp_path):
    select = selecting(expected_trials=8.0)
    record, _ = record_of(tmp_path, model="mine.py:with_buffer", **select)
    # Scored on the same records without noise: the released network is the one that was scored.
    assert record["metrics"]["accuracy"] == record["metrics"]["score"]


def test_killed_before_the_record_a_training_is_not_made_anew(tmp_path, monkeypatch):
    path = write(tmp_path, noise_source="os")
    with killed_at(0, (job_module, "write_record")):
        run(path)
    (model,) = (tmp_path / "trained").glob("mine-*/model/model.safetensors")
    weights = model.read_bytes()
    monkeypatch.setattr(seeds, "_claims", {})
    assert run(path) == 0 and model.read_bytes() == weights


def test_a_finished_training_is_not_trained_again_unless_something_differs(tmp_path, capsys):
    files = {"data": "mine.npz", "test": None, "batch": 4, "noise_source": "os"}
    record, folder = record_of(tmp_path, **files)
    weights, path = weights_in(folder), tmp_path / "mine.yaml"
    assert run(path) == 0
    # Under another name, with a default written down, it is the same.
    assert run(write(tmp_path, **files, seed=0).rename(tmp_path / "renamed.yaml")) == 0
    assert capsys.readouterr().err.count(f"{record['id']}: trained before") == 2
    assert weights_in(folder) == weights
    assert run(write(tmp_path, **files, lr=0.1)) == 0
    assert "their epsilons add up" in capsys.readouterr().err
    # Other code, and other records in the same file.
    path, text = write(tmp_path, **files), (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace("manual_seed(3)", "manual_seed(4)"))
    assert run(path) == 0
    path, arrays = write(tmp_path, **files), dict(np.load(tmp_path / "mine.npz"))
    arrays["x"][0] += 1
    np.savez(tmp_path / "mine.npz", **arrays)
    assert run(path) == 0
    assert len(list((tmp_path / "trained").glob("*/record.json"))) == 4


def test_while_one_process_trains_another_one_does_not_train_the_same(tmp_path, monkeypatch):
    path = write(tmp_path, noise_source="os")
    seen = []

    def saved(*given, **named):
        # Another process has the same lock.
        words = [sys.executable, "-m", "dpatlas", "train", path, "--output", tmp_path / "trained"]
        seen.append(subprocess.run(words, capture_output=True, text=True))
        return real(*given, **named)

    real = job_module.write_record
    monkeypatch.setattr(job_module, "write_record", saved)
    assert run(path) == 0
    assert seen[0].returncode == 2
    assert "trained: found another process that trains mine-" in seen[0].stderr


def test_what_the_user_s_functions_print_does_not_spoil_the_json(tmp_path, capfd):
    path = write(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text(
        mine.read_text() + "\n\nprint('hello')\nimport os\nos.system('echo from a child')\n"
    )
    assert run(path, "--json") == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["key"] and "hello" in said.err and "from a child" in said.err


def test_a_record_of_another_version_in_the_folder_is_told_and_left_alone(tmp_path, capsys):
    other = tmp_path / "trained" / "other" / "record.json"
    other.parent.mkdir(parents=True)
    other.write_text("{")
    assert run(write(tmp_path)) == 0
    assert f"{other}: found text that is not JSON" in capsys.readouterr().err
    assert other.read_text() == "{"
    # Of the same settings: to train again would be another release.
    (mine,) = other.parents[1].glob("mine-*/record.json")
    mine.write_text("{")
    with pytest.raises(InputError, match="text that is not JSON"):
        run(tmp_path / "mine.yaml")


@pytest.mark.slow
def test_a_module_that_the_file_imports_counts_too(tmp_path):
    path = write(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text(mine.read_text() + "\n\nimport own_helper_of_the_test\n")
    output = tmp_path / "trained"
    words = [sys.executable, "-m", "dpatlas", "train", str(path), "--output", str(output)]
    for text in ("WIDTH = 8\n", "WIDTH = 9\n"):
        (tmp_path / "own_helper_of_the_test.py").write_text(text)
        subprocess.run(words, check=True, capture_output=True)
    assert len(list((tmp_path / "trained").glob("*/record.json"))) == 2


def test_settings_that_were_tried_are_charged(tmp_path, capsys):
    once, _ = record_of(tmp_path / "one")
    assert "unknown" in once["ledger"]["chosen_on_private_data"][0]["what"]
    assert "trainings that chose" not in capsys.readouterr().out
    tried, _ = record_of(tmp_path / "tried", settings_tried=5)
    total = tried["ledger"]["tuning"]["epsilon"]
    assert total > 2 * tried["ledger"]["epsilon"] == 2 * once["ledger"]["epsilon"]
    assert f"chose the settings: epsilon {upward(total)}" in capsys.readouterr().out


def test_gradients_that_were_not_finite_are_told(tmp_path, capsys):
    path = write(tmp_path, data="records.npz", test=None, sampler="full-batch", batch=None)
    told = f"gradients that were not finite, taken as zero: {SETTINGS['steps']} (a private count)"
    # The last one is beyond float32: numpy's warning said nothing more.
    for number in (0.0, np.nan, 1e300):
        x = np.zeros((40, 4))
        x[7] = number
        np.savez(tmp_path / "records.npz", x=x, y=np.arange(40) % 2)
        assert run(path) == 0 and (told in capsys.readouterr().out) == (number != 0)


@pytest.mark.parametrize(
    "arrays, said",
    [
        ({"x": np.array([[1], [1, 2]], dtype=object)}, "a damaged file, or arrays of objects"),
        ({"X": np.zeros((40, 4))}, "with X; allowed: an npz file with arrays x, y and perhaps"),
    ],
)
def test_an_npz_file_without_the_arrays_is_named_once(tmp_path, arrays, said):
    path = write(tmp_path, data="records.npz")
    np.savez(tmp_path / "records.npz", **arrays)
    with pytest.raises(InputError) as error:
        run(path)
    assert said in str(error.value) and str(error.value).count("records.npz") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"test": "mine.py:held_out_in_part"}, "test: 10 of its records equal records of data"),
        (selecting(validation="mine.py:held_out_in_part"), "select.validation: 10 of its records"),
    ],
)
def test_records_that_are_private_and_measured_are_counted(tmp_path, capsys, changes, said):
    assert run(write(tmp_path, **changes)) == 0
    told = capsys.readouterr().err
    assert said in told and ("equal records" in told) == bool(said)


SCORED = {"test": None, **selecting(**PRIVATE)}
FULL = {"sampler": "full-batch", "batch": 40, "test": None}
BAD = [
    ({"noise_multiplier": None}, "epsilon or noise_multiplier: found none"),
    ({"test": "mine.py:records"}, "test: found the records of data"),
    ({"test": "mine.py:records", "canaries": {"number": 4}}, "test: found the records of data"),
    (selecting(**PRIVATE), "test: found the records of select.validation; allowed: public records"),
    ({"test": "mine.py:of_other_width"}, "test: found RuntimeError"),
    ({"test": "mine.py:none_held_out"}, "test: data: found 0 records"),
    ({"test": "mine.py:other_labels"}, "test: labels: found 6"),
    ({"model": "mine.py:shared"}, "model: found weights that"),
    ({"model": "mine.py:other_each_time"}, "model: found two different networks for one seed"),
    ({"model": "mine.py:mixing"}, "BatchNorm1d"),
    ({"data": "mine.py:leaves"}, "data: found SystemExit: 3"),
    ({"steps": None, "epochs": 1e9}, "epochs: found 4e+09 steps"),
    ({"delta": 0.1}, "delta: found 0.1; allowed: at most 1 / 40"),
    ({"parameter_groups": [{"prefix": "0"}]}, "parameter_groups.0: found neither lr nor"),
    (selecting(validation="persons.npz", **PRIVATE), "select.score_noise: found it with groups"),
    ({"epsilon": 1.0}, "found epsilon and noise_multiplier"),
    ({"epochs": 1.0}, "steps or epochs: found steps and epochs"),
    ({"layer_bounds": {"0": 1.0}}, "found max_grad_norm and layer_bounds"),
    ({"data": "other.py:records"}, "data: script: found no file"),
    ({"data": "mine.py:broken"}, "KeyError: 'no such column' at mine.py:"),
    ({"data": "none.npz"}, "data: found"),
    (
        {"select": {name: value for name, value in SELECT.items() if name != "lr"}},
        "select: found no range; allowed: lr or max_grad_norm",
    ),
    (selecting(lr=[2.0, 1.0]), "select.lr: found 2 to 1"),
    ({"select": SELECT}, "found lr and select.lr"),
    (selecting(public_validation=False), "score_noise and public_validation: found neither"),
    ({**SCORED, "model": "mine.py:centred_in_evaluation"}, "found a batch whose records meet"),
    ({**SCORED, "model": "mine.py:keeps_in_evaluation"}, "found 0.kept, a buffer that a record"),
    ({**OF_NUMBERS, **of_numbers()}, "select.right: found nothing"),
    (
        {**OF_NUMBERS, **of_numbers(right="mine.py:not_one_for_each")},
        "select.right: found torch.bool of shape ()",
    ),
    # What a network raises on a record.
    (
        {**FULL, "data": "mine.py:words", "model": "mine.py:embedded"},
        "records: found an index out of range: index out of range",
    ),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_settings_are_named_before_anything_is_trained(changes, said, tmp_path, monkeypatch):
    def trained(*arguments):
        raise AssertionError("a noisy sum was made")

    monkeypatch.setattr("dpatlas.privacy.noise.add_noise", trained)
    path = write(tmp_path, **changes)
    with pytest.raises(InputError) as error:
        run(path)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("code_digest", lambda module: "of tomorrow"),
        ("versions", lambda *packages: {"torch": "0"}),
        ("resolve_device", lambda name: "cpu-tf32"),
    ],
)
def test_what_other_code_packages_or_devices_began_is_not_resumed(
    tmp_path, monkeypatch, name, function
):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    path = write(tmp_path)
    with killed_at(3, (Trained, "step")):
        run(path)
    monkeypatch.setattr(job_module, name, function)
    with pytest.raises(InputError, match="--resume: found no checkpoint of these"):
        run(path, "--resume")
