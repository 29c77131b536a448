"""A published weight file becomes a backbone like a trained one: here torchvision's, untrained."""

import hashlib
from contextlib import contextmanager
from dataclasses import asdict

import pytest
import torch
from published_weights import (
    FILES,
    arguments,
    check_features,
    import_spec,
    read,
    refused,
    untrained,
)
from torch import nn

from dpatlas.data.sets.pneumonia import PNEUMONIA, PNEUMONIA_224, PNEUMONIA_CAUSES
from dpatlas.data.sets.stl10 import STL10
from dpatlas.errors import InputError, RunError
from dpatlas.models import backbone
from dpatlas.models.build import build
from dpatlas_workflow.checks.pretrain.jobs import imported as module
from dpatlas_workflow.run.command import main

SHAPE = [1, 28, 28]
CLASSES = ["a", "b", "c", "d"]


class Published:
    """A state of weights in a folder, under the name that its checksum gives it."""

    def __init__(self, folder, state, name="resnet18"):
        torch.save(state, folder / "new")
        self.sha256 = hashlib.sha256((folder / "new").read_bytes()).hexdigest()
        self.path = (folder / "new").rename(folder / f"{name}-{self.sha256[:8]}.pth")
        self.address = f"https://example.org/models/{self.path.name}"

    @contextmanager
    def listed(self):
        """Within, it is what torchvision lists."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "listed", lambda model: (self.address, CLASSES))
            yield

    def become(self, folder, spec):
        with self.listed():
            main(arguments(folder, spec, self.path))
        return folder

    def refused(self, capsys, folder, spec, path=None):
        with self.listed():
            return refused(capsys, folder, spec, path or self.path)


@pytest.fixture(scope="module")
def net():
    return untrained("resnet18", len(CLASSES))


@pytest.fixture(scope="module")
def published(net, tmp_path_factory):
    return Published(tmp_path_factory.mktemp("published"), net.state_dict())


@pytest.fixture(scope="module")
def made(published, tmp_path_factory):
    return published.become(tmp_path_factory.mktemp("made"), spec_of())


def spec_of(**changes):
    fields = {"source": "imagenet", "model": "imagenet-resnet18", "image_shape": SHAPE}
    return import_spec("imagenet", {**fields, **changes})


def test_the_backbone_s_features_are_the_published_network_s(made, net):
    headless = nn.Sequential(*list(net.children())[:-1], nn.Flatten())
    check_features(backbone.load(made / "backbone"), headless, SHAPE)


def test_the_record_says_which_file_it_was_and_that_nothing_private_was_read(made, published):
    record, manifest = read(made / "record.json"), read(made / "backbone/manifest.json")
    metrics, ledger = record["metrics"], record["ledger"]
    assert metrics["weights"] == {
        "file": published.path.name,
        "address": published.address,
        "sha256": published.sha256,
    }
    assert 0 < metrics["difference"] < 1e-4 and metrics["features"] == 512
    assert record["data"] is None and record["device"] == "cpu"
    assert ledger["epsilon"] == 0 and "no private record was read" in ledger["guaranteed"]
    assert metrics["backbone_sha256"] == manifest["sha256"]
    assert manifest["classes"] == CLASSES and manifest["image_shape"] == SHAPE
    assert manifest["training"]["spec_id"] == record["id"] == spec_of().id
    assert manifest["training"]["weights"] == metrics["weights"]


def deit_file():
    """Initial weights under the names of the published file, in the entry that holds them."""
    axes = {"key": "test", "run": 0, "base_seed": 0}
    state = build("imagenet-deit-tiny", [3, 32, 32], len(CLASSES), **axes).state_dict()
    theirs = {
        "body.class_token.value": "cls_token",
        "body.position.value": "pos_embed",
        "body.patches": "patch_embed.proj",
        "body.": "",
        "attention.qkv": "attn.qkv",
        "attention.out": "attn.proj",
        "linear": "mlp.fc",
    }
    renamed = {}
    for name, value in state.items():
        for ours, other in theirs.items():
            name = name.replace(ours, other)
        renamed[name] = value
    # With a dimension of records.
    renamed["cls_token"] = renamed["cls_token"][None, None]
    renamed["pos_embed"] = renamed["pos_embed"][None]
    return {"model": renamed}


def test_deit_s_weights_with_their_own_names_become_a_backbone_too(tmp_path):
    spec = spec_of(model="imagenet-deit-tiny", image_shape=[3, 32, 32])
    Published(tmp_path, deit_file(), "deit").become(tmp_path, spec)
    imported = backbone.load(tmp_path / "backbone")
    assert imported.manifest["features"] == imported.network.head.in_features == 192
    assert read(tmp_path / "record.json")["metrics"]["difference"] < 1e-4


def test_it_takes_x_rays_and_photographs_as_they_are_prepared(made):
    preprocessing = backbone.load(made / "backbone").manifest["training"]["data"]["preprocessing"]
    for entry in (PNEUMONIA, PNEUMONIA_CAUSES, PNEUMONIA_224, STL10):
        assert preprocessing == {**asdict(entry.scaling), "norm": None}


def test_two_imports_give_the_same_bytes_and_leave_torch_s_generator(made, published, tmp_path):
    before = torch.get_rng_state()
    published.become(tmp_path, spec_of())
    assert torch.equal(torch.get_rng_state(), before)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


def test_a_damaged_file_is_refused_before_it_is_opened_whatever_lies_beside_it(
    published, tmp_path, capsys, monkeypatch
):
    content = published.path.read_bytes()
    (tmp_path / published.path.name).write_bytes(content)
    damaged = tmp_path / "damaged.pth"
    damaged.write_bytes(content[:-1])
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    line = published.refused(capsys, tmp_path, spec_of(), damaged)
    assert "damaged.pth: found sha256" in line and published.sha256[:8] in line
    gone = published.refused(capsys, tmp_path, spec_of(), tmp_path / "gone.pth")
    assert "gone.pth: found No such file" in gone


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer2.0.downsample.0.weight": None}, "weights of another network"),
        ({"layer5.0.conv1.weight": torch.zeros(1)}, "weights of another network"),
        ({"fc.weight": torch.zeros(2, 512)}, "weights of another network"),
        ({"bn1.running_var": torch.full((64,), torch.inf)}, "no numbers in bn1.running_var"),
    ],
    ids=["missing", "extra", "shape", "infinite"],
)
def test_weights_of_another_network_and_infinite_ones_are_refused(
    net, tmp_path, capsys, change, words
):
    state = {**net.state_dict(), **change}
    other = Published(tmp_path, {name: value for name, value in state.items() if value is not None})
    assert words in other.refused(capsys, tmp_path, spec_of())


def test_a_network_that_computes_something_else_is_not_written(published, tmp_path, monkeypatch):
    def without_a_shift(model, state):
        weights = real(model, state)
        weights["body.layer3.1.conv2.bias"].zero_()
        return weights

    real = module.folded
    monkeypatch.setattr(module, "folded", without_a_shift)
    with pytest.raises(RunError, match="differ from the published network's"):
        published.become(tmp_path, spec_of())
    assert not (tmp_path / "backbone").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "openimages"}, "source: found 'openimages'; allowed: one of imagenet"),
        ({"model": "resnet18"}, "model: found 'resnet18'; allowed: one of imagenet-resnet18"),
        ({"image_shape": [2, 28, 28]}, "2 channels"),
        ({"options": {"widths": [3]}}, "options of imagenet-resnet18: found widths"),
    ],
)
def test_bad_specs_are_one_line_and_exit_code_2(published, tmp_path, capsys, change, message):
    assert message in published.refused(capsys, tmp_path, spec_of(**change))


def test_the_classes_are_imagenet_s_and_moco_s_weights_have_no_address():
    for model in ("imagenet-resnet18", "imagenet-deit-tiny"):
        _, classes = module.listed(model)
        assert len(classes) == 1000 and classes[0] == "tench"
    with pytest.raises(InputError, match="moco-v2"):
        module.listed("moco-v2-resnet50")
