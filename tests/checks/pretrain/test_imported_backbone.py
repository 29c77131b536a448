"""A published weight file becomes a backbone like a trained one: here torchvision's, untrained."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from published_weights import FILES, arguments, import_spec, records_and_input, refused, untrained
from torch import nn

from dpatlas.checks.pretrain.jobs import imported as module
from dpatlas.data.sets.pneumonia import PNEUMONIA, PNEUMONIA_224, PNEUMONIA_CAUSES
from dpatlas.data.sets.stl10 import STL10
from dpatlas.errors import InputError, RunError
from dpatlas.jobs.run import main
from dpatlas.models import backbone
from dpatlas.models.build import build

SHAPE = [1, 28, 28]
CLASSES = ["a", "b", "c", "d"]


class Published:
    """A state of weights in a folder, under the name that its checksum gives it."""

    def __init__(self, folder, state, name="resnet18"):
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / "new")
        self.sha256 = hashlib.sha256((folder / "new").read_bytes()).hexdigest()
        self.folder = folder
        self.path = (folder / "new").rename(folder / f"{name}-{self.sha256[:8]}.pth")
        self.address = f"https://example.org/models/{self.path.name}"


@pytest.fixture(scope="module")
def net():
    return untrained("resnet18", len(CLASSES))


@pytest.fixture(scope="module")
def stored(net, tmp_path_factory):
    return Published(tmp_path_factory.mktemp("published"), net.state_dict())


@pytest.fixture
def list_address(monkeypatch):
    """A function that lists weights at an address."""

    def listed(address):
        monkeypatch.setattr(module, "listed", lambda model: (address, CLASSES))

    return listed


@pytest.fixture
def published(stored, list_address):
    list_address(stored.address)
    return stored


def spec_of(**changes):
    fields = {"source": "imagenet", "model": "imagenet-resnet18", "image_shape": SHAPE}
    return import_spec("imagenet", {**fields, **changes})


@pytest.fixture
def made(published, tmp_path):
    main(arguments(tmp_path, spec_of(), "--data-root", published.folder))
    return tmp_path


def test_the_backbone_s_features_are_the_published_network_s(made, net):
    imported = backbone.load(made / "backbone", "imagenet-resnet18")
    x, inputs = records_and_input(SHAPE)
    with torch.no_grad():
        expected = nn.Sequential(*list(net.children())[:-1], nn.Flatten())(inputs).numpy()
    found = backbone.features(imported.network, x)
    assert found.shape == (2, 512)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_record_says_which_file_it_was_and_that_nothing_private_was_read(made, published):
    record = json.loads((made / "record.json").read_text())
    metrics, ledger = record["metrics"], record["ledger"]
    assert metrics["weights"] == {
        "file": published.path.name,
        "address": published.address,
        "sha256": published.sha256,
    }
    assert 0 < metrics["difference"] < 1e-4 and metrics["features"] == 512
    assert record["data"] is None and record["device"] == "cpu"
    assert ledger["epsilon"] == 0 and "no private record was read" in ledger["guaranteed"]
    manifest = json.loads((made / "backbone/manifest.json").read_text())
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


def test_deit_s_weights_with_their_own_names_become_a_backbone_too(tmp_path, list_address):
    published = Published(tmp_path / "root", deit_file(), "deit")
    list_address(published.address)
    spec = spec_of(model="imagenet-deit-tiny", image_shape=[3, 32, 32])
    main(arguments(tmp_path, spec, "--data-root", published.folder))
    imported = backbone.load(tmp_path / "backbone", "imagenet-deit-tiny")
    assert imported.manifest["features"] == imported.network.head.in_features == 192
    assert imported.manifest["training"]["weights"]["sha256"] == published.sha256
    metrics = json.loads((tmp_path / "record.json").read_text())["metrics"]
    assert metrics["difference"] < 1e-4


def test_it_takes_x_rays_and_photographs_as_they_are_prepared(made):
    preprocessing = backbone.load(made / "backbone").manifest["training"]["data"]["preprocessing"]
    for entry in (PNEUMONIA, PNEUMONIA_CAUSES, PNEUMONIA_224, STL10):
        assert preprocessing == {**asdict(entry.scaling), "norm": None}


def test_two_imports_give_the_same_bytes_and_leave_torch_s_generator(made, published, tmp_path):
    before = torch.get_rng_state()
    again = tmp_path / "again"
    main(arguments(again, spec_of(), "--data-root", published.folder))
    assert torch.equal(torch.get_rng_state(), before)
    for name in FILES:
        assert (again / name).read_bytes() == (made / name).read_bytes()


def test_a_damaged_file_is_refused_before_it_is_opened(published, tmp_path, capsys, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    (root / published.path.name).write_bytes(published.path.read_bytes()[:-1])
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    line = refused(capsys, tmp_path, spec_of(), "--data-root", root)
    assert published.path.name in line and "as its name says" in line


def test_without_permission_nothing_is_fetched(published, tmp_path, capsys):
    line = refused(capsys, tmp_path, spec_of())
    assert published.address in line and "permission to download" in line


def test_the_command_line_says_where_weights_may_come_from():
    words = ["--data-root=a", "--allow-download", "--mirror", "m", "--mirror", "n"]
    expected = module.Sources(None, Path("a"), module.weights.CACHE, True, ("m", "n"))
    assert module.sources_of(words) == expected
    with pytest.raises(InputError, match="--data"):
        module.sources_of(["--data", "other parser's"])


@pytest.mark.parametrize(
    "change",
    [
        {"layer2.0.downsample.0.weight": None},
        {"layer5.0.conv1.weight": torch.zeros(1)},
        {"fc.weight": torch.zeros(2, 512)},
    ],
    ids=["missing", "extra", "shape"],
)
def test_weights_of_another_network_are_refused(net, tmp_path, capsys, list_address, change):
    state = {**net.state_dict(), **change}
    other = Published(tmp_path, {name: value for name, value in state.items() if value is not None})
    list_address(other.address)
    line = refused(capsys, tmp_path, spec_of(), "--data-root", other.folder)
    assert "weights of another network" in line


def test_a_network_that_computes_something_else_is_not_written(published, tmp_path, monkeypatch):
    def without_a_shift(model, state):
        weights = real(model, state)
        weights["body.layer3.1.conv2.bias"].zero_()
        return weights

    real = module.folded
    monkeypatch.setattr(module, "folded", without_a_shift)
    with pytest.raises(RunError, match="differ from the published network's"):
        main(arguments(tmp_path, spec_of(), "--data-root", published.folder))
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
    assert message in refused(capsys, tmp_path, spec_of(**change), "--data-root", published.folder)


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("imagenet-resnet18", "resnet18-f37072fd.pth"),
        ("imagenet-resnet50", "resnet50-0676ba61.pth"),
        ("imagenet-mobilenet-v3", "mobilenet_v3_large-8738ca79.pth"),
        ("imagenet-deit-tiny", "deit_tiny_patch16_224-a1311bcf.pth"),
        ("imagenet-alexnet", "alexnet-owt-7be5be79.pth"),
    ],
)
def test_the_file_is_the_one_that_the_project_names(model, file):
    address, classes = module.listed(model)
    assert address.endswith(f"/{file}") and address.startswith("https://")
    assert len(classes) == 1000 and classes[0] == "tench"
