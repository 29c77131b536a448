"""Training of a public backbone, and what its features are worth on private data."""

import json
from dataclasses import replace

import numpy as np
import pytest
import small_jobs
import torch
from published_weights import import_spec

from dpatlas.base.specs import Spec
from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.errors import InputError, run_command
from dpatlas.models import backbone
from dpatlas_workflow.checks.pretrain.block import BLOCK
from dpatlas_workflow.checks.pretrain.jobs import transfer
from dpatlas_workflow.checks.pretrain.jobs.backbone import one_cycle
from dpatlas_workflow.checks.pretrain.jobs.examples import examples
from dpatlas_workflow.run.command import main


@pytest.fixture(scope="module")
def strokes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strokes")
    prepare("strokes", {"n_train": 600, "n_test": 200}, folder)
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    prepare("digits", {"classes": list(range(10)), "n_train": 1797, "n_add": 0}, folder)
    return folder


def spec_of(**changes):
    own = {"options": {"widths": [32, 16]}, "epochs": 3, "batch": 100}
    return Spec.of({**small_jobs.PRETRAIN, **own, **changes}, "small")


def transfer_spec(**changes):
    fields = {"key": "pretrain", "kind": "transfer", "seed": 0, "data": {"name": "digits"}}
    fields |= {"backbones": [], "n_test": 500, "splits": 2, "neighbours": 20}
    return Spec.of({**fields, **changes}, "transfer")


def arguments(spec, data, folder, backbones):
    return small_jobs.arguments(spec, data / "manifest.json", folder, backbones)


def run_main(spec, data, folder):
    """Train into `folder`."""
    main(arguments(spec, data, folder, [folder / "backbone"]))


def test_pretraining_on_moved_images_takes_other_steps_that_can_be_repeated(strokes, tmp_path):
    moved = spec_of(augmentation={"padding": 1, "flip": False})
    for name, spec in (("plain", spec_of()), ("moved", moved), ("again", moved)):
        run_main(spec, strokes, tmp_path / name)
    plain, first, again = (
        backbone.load(tmp_path / name / "backbone").sha256 for name in ("plain", "moved", "again")
    )
    assert first == again != plain


def test_pretraining_learns_and_the_record_says_what_it_made_and_read(strokes, tmp_path):
    run_main(spec_of(), strokes, tmp_path)
    metrics = json.loads((tmp_path / "record.json").read_text())["metrics"]
    trained = backbone.load(tmp_path / "backbone")
    assert metrics["backbone_sha256"] == trained.sha256
    data = load(strokes)
    predicted = trained.network(torch.from_numpy(data.x_test)).argmax(1).numpy()
    assert metrics["accuracy"] == (predicted == data.y_test).mean() > 0.5
    assert metrics["epochs"][0]["loss"] > metrics["epochs"][-1]["loss"] > 0
    assert trained.manifest["training"]["data"]["sha256"] == data.sha256
    ledger = json.loads((tmp_path / "record.json").read_text())["ledger"]
    assert ledger["guaranteed"] == "epsilon 0: no private record was read"
    assert ledger["public_data"] == "strokes: generated, public by construction"
    assert "one look at handwritten digits" in ledger["chosen_on_private_data"]


def test_private_data_are_refused_unless_declared_public(digits, tmp_path):
    with pytest.raises(InputError, match="'digits'; allowed: a generated set"):
        run_main(spec_of(data={"name": "digits"}), digits, tmp_path)
    # Declared public, they only lack test records.
    with pytest.raises(InputError, match="n_test"):
        declared = spec_of(data={"name": "digits"}, declared_public="for this test")
        run_main(declared, digits, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"), [({"model": "lenet"}, "model: found 'lenet'"), ({"batch": 601}, "batch")]
)
def test_bad_settings_are_one_line_and_exit_code_2(strokes, tmp_path, capsys, change, message):
    given = arguments(spec_of(**change), strokes, tmp_path, [tmp_path / "backbone"])
    assert run_command(main, given) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "backbone").exists()


@pytest.mark.parametrize("kind", BLOCK.kinds)
def test_kinds_that_write_weights_say_so_to_the_workflow(kind, strokes, tmp_path, capsys):
    """The others ask for no folder of their own, and stop at something else."""
    fields = {"backbone": spec_of().fields, "transfer": transfer_spec(n_test=600).fields}
    fields["imported"] = import_spec(
        "x", {"source": "imagenet", "model": "imagenet-resnet18", "image_shape": [1, 8, 8]}
    ).fields
    spec = Spec.of(fields[kind], "x")
    words = arguments(spec, strokes, tmp_path, [])
    if kind == "imported":
        place = words.index("--data")
        words[place : place + 2] = ["--weights-file", "nowhere.pth"]
    assert run_command(main, words) == 2
    wants_a_folder = "--backbone: found 0 folders; allowed: one, to write to"
    assert (wants_a_folder in capsys.readouterr().err) == (kind in BLOCK.writes_weights)


def test_a_training_that_diverges_is_a_failed_run(strokes, tmp_path, capsys):
    given = arguments(spec_of(lr=1e30), strokes, tmp_path, [tmp_path / "backbone"])
    assert run_command(main, given) == 1
    assert "loss" in capsys.readouterr().err and not (tmp_path / "record.json").exists()


@pytest.mark.parametrize("steps", [10, 57])
def test_the_learning_rate_is_torch_s_one_cycle(steps):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=3e-3, total_steps=steps, cycle_momentum=False
    )
    for step in range(steps):
        assert one_cycle(step, steps, 3e-3) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        if step < steps - 1:
            schedule.step()


def test_the_shortest_runs_have_a_learning_rate():
    rates = [one_cycle(step, steps, 1.0) for steps in (1, 2, 3) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)


def test_examples_are_the_first_images_of_each_class(strokes):
    data = load(strokes)
    shown = examples(data)
    places = [(row["class"], row["number"]) for row in shown]
    assert places == [(name, number) for name in data.classes for number in range(10)]
    images = [row["image"] for row in shown if row["class"] == "3"]
    levels = np.array([[int(character, 17) for character in image] for image in images])
    np.testing.assert_array_equal(levels / 16, data.x_train[data.y_train == 3][:10])


def test_transfer_compares_backbones_with_raw_pixels(strokes, digits, tmp_path):
    specs = [spec_of(), spec_of(model="small-cnn-t", options={})]
    folders = [tmp_path / spec.id for spec in specs]
    for spec, folder in zip(specs, folders, strict=True):
        run_main(spec, strokes, folder)
    spec = transfer_spec(backbones=[each.id for each in specs])
    backbones = [folder / "backbone" for folder in folders]
    main(arguments(spec, digits, tmp_path, backbones))
    record = json.loads((tmp_path / "record.json").read_text())
    rows = record["metrics"]["rows"]
    raw, mlp, cnn = rows[:2], rows[2:4], rows[4:]
    for row in raw:
        assert row["backbone"] == "raw pixels" and row["zero_shot"] is None
        assert min(row["knn"], row["logistic"]) > 0.94
    assert {row["architecture"] for row in mlp} == {"mlp"}
    places = [(row["architecture"], row["split"]) for row in cnn]
    assert places == [("small-cnn-t", 0), ("small-cnn-t", 1)]
    assert min(row["zero_shot"] for row in mlp) > 0.3
    assert record["ledger"]["epsilon"] is None and "reader only" in record["ledger"]["guaranteed"]
    with pytest.raises(InputError, match="in this order"):
        main(arguments(spec, digits, tmp_path, backbones[::-1]))


def test_a_head_without_the_data_s_classes_has_no_zero_shot_accuracy(digits, tmp_path):
    prepare("letters", {"n_train": 100, "n_test": 10}, tmp_path / "letters")
    run_main(spec_of(data={"name": "letters"}), tmp_path / "letters", tmp_path)
    splits = transfer.draw_splits(1797, 500, 1, 0)
    (row,) = transfer.measure(load(digits), backbone.load(tmp_path / "backbone"), splits, 20)
    assert row["zero_shot"] is None and row["features"] == 16


def test_data_of_another_scale_are_refused(strokes, tmp_path):
    run_main(spec_of(), strokes, tmp_path)
    options = {"classes": [3, 8], "n_train": 300, "norm": 8}
    prepare("digits", options, tmp_path / "digits")
    trained = backbone.load(tmp_path / "backbone")
    with pytest.raises(InputError, match="preprocessing"):
        transfer.measure(load(tmp_path / "digits"), trained, [], 20)


def test_no_test_record_is_trained_on(digits):
    """With random labels a nearest neighbour is right by chance, or because it is the record."""
    data = load(digits)
    labels = np.random.default_rng(0).permutation(data.y_train)
    splits = transfer.draw_splits(1797, 500, 1, 0)
    (row,) = transfer.measure(replace(data, y_train=labels), None, splits, neighbours=1)
    assert row["knn"] < 0.2
