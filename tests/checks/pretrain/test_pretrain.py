"""Training of a public backbone, and what its features are worth on private data."""

import importlib
import inspect
import json
from dataclasses import replace

import numpy as np
import pytest
import small_jobs
import torch

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


def arguments(spec, data, folder, backbones):
    return small_jobs.arguments(spec, data / "manifest.json", folder, backbones)


def train(spec, data, folder):
    """The backbone that is trained into `folder`."""
    main(arguments(spec, data, folder, [folder / "backbone"]))
    return backbone.load(folder / "backbone")


def record_in(folder):
    return json.loads((folder / "record.json").read_text())


@pytest.fixture(scope="module")
def trained(strokes, tmp_path_factory):
    """(backbone, its folder)."""
    folder = tmp_path_factory.mktemp("trained")
    return train(spec_of(), strokes, folder), folder


def test_pretraining_on_moved_images_takes_other_steps_that_can_be_repeated(
    trained, strokes, tmp_path
):
    moved = spec_of(augmentation={"padding": 1, "flip": False})
    first, again = (train(moved, strokes, tmp_path / name).sha256 for name in ("one", "two"))
    assert first == again != trained[0].sha256


def test_pretraining_learns_and_the_record_says_what_it_made_and_read(trained, strokes):
    made, folder = trained
    metrics, ledger = record_in(folder)["metrics"], record_in(folder)["ledger"]
    assert metrics["backbone_sha256"] == made.sha256
    data = load(strokes)
    predicted = made.network(torch.from_numpy(data.x_test)).argmax(1).numpy()
    assert metrics["accuracy"] == (predicted == data.y_test).mean() > 0.5
    assert metrics["epochs"][0]["loss"] > metrics["epochs"][-1]["loss"] > 0
    assert made.manifest["training"]["data"]["sha256"] == data.sha256
    assert ledger["guaranteed"] == "epsilon 0: no private record was read"
    assert ledger["public_data"] == "strokes: generated, public by construction"
    assert "one look at handwritten digits" in ledger["chosen_on_private_data"]


PRIVATE = {"data": {"name": "digits"}}


@pytest.mark.parametrize(
    ("data", "changes", "code", "words"),
    [
        ("strokes", {"model": "lenet"}, 2, "model: found 'lenet'"),
        ("strokes", {"batch": 601}, 2, "batch"),
        # A training that diverges is a failed run.
        ("strokes", {"lr": 1e30}, 1, "loss"),
        ("digits", PRIVATE, 2, "'digits'; allowed: a generated set"),
        # Declared public, they only lack test records.
        ("digits", {**PRIVATE, "declared_public": "for this test"}, 2, "n_test"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_leaves_nothing(
    request, tmp_path, capsys, data, changes, code, words
):
    folder = request.getfixturevalue(data)
    given = arguments(spec_of(**changes), folder, tmp_path, [tmp_path / "backbone"])
    assert run_command(main, given) == code
    assert words in capsys.readouterr().err
    assert not {"backbone", "record.json"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("kind", BLOCK.kinds)
def test_kinds_that_write_weights_say_so_to_the_workflow(kind):
    source = inspect.getsource(importlib.import_module(BLOCK.job_module(kind)))
    assert ("job.backbone_to_write()" in source) == (kind in BLOCK.writes_weights)


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


def test_transfer_compares_backbones_with_raw_pixels(trained, strokes, digits, tmp_path):
    convolutional = spec_of(model="small-cnn-t", options={})
    train(convolutional, strokes, tmp_path)
    fields = {"key": "pretrain", "kind": "transfer", "seed": 0, "data": {"name": "digits"}}
    fields |= {"backbones": [spec_of().id, convolutional.id]}
    spec = Spec.of({**fields, "n_test": 500, "splits": 2, "neighbours": 20}, "transfer")
    backbones = [trained[1] / "backbone", tmp_path / "backbone"]
    main(arguments(spec, digits, tmp_path / "measured", backbones))
    record = record_in(tmp_path / "measured")
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
        main(arguments(spec, digits, tmp_path / "turned", backbones[::-1]))


def measured(digits, made, neighbours=20, **changes):
    """The row of the digits with these changes, of one split."""
    data = replace(load(digits), **changes)
    (row,) = transfer.measure(data, made, transfer.draw_splits(1797, 500, 1, 0), neighbours)
    return row


def test_a_head_without_the_data_s_classes_has_no_zero_shot_accuracy(trained, digits):
    letters = {**load(digits).manifest, "classes": list("ABCDEFGHIJ")}
    row = measured(digits, trained[0], manifest=letters)
    assert row["zero_shot"] is None and row["features"] == 16


def test_no_test_record_is_trained_on(digits):
    """With random labels a nearest neighbour is right by chance, or because it is the record."""
    labels = np.random.default_rng(0).permutation(load(digits).y_train)
    assert measured(digits, None, neighbours=1, y_train=labels)["knn"] < 0.2


def test_data_of_another_scale_are_refused(trained, tmp_path):
    prepare("digits", {"classes": [3, 8], "n_train": 300, "norm": 8}, tmp_path)
    with pytest.raises(InputError, match="preprocessing"):
        transfer.measure(load(tmp_path), trained[0], [], 20)
