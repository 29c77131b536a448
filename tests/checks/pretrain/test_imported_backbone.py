"""Published weight files become backbones like trained ones: here those of untrained networks."""

import hashlib
import json
from dataclasses import asdict

import archives
import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import get_model

from dpatlas.base.specs import Spec
from dpatlas.data.sets.pneumonia import PNEUMONIA, PNEUMONIA_224, PNEUMONIA_CAUSES
from dpatlas.data.sets.stl10 import STL10
from dpatlas.errors import InputError, run_command
from dpatlas.models import backbone
from dpatlas_workflow.checks.pretrain.jobs import imported as module
from dpatlas_workflow.run.command import main

RESNET, DEIT, MOCO = "imagenet-resnet18", "imagenet-deit-tiny", "moco-v2-resnet50"
FEATURES = {RESNET: 512, DEIT: 192, MOCO: 2048}
CLASSES = [f"class {number}" for number in range(archives.OUTPUTS)]
SHAPE = [3, 32, 32]
FILES = ("record.json", "backbone/weights.npz", "backbone/manifest.json")


def untrained(name):
    """torchvision's network with statistics that are far from the identity."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = get_model(name, num_classes=len(CLASSES)).eval()
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, std=0.2)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
    return net


def moco_checkpoint(net):
    theirs = {
        f"module.encoder_q.{name}": value
        for name, value in net.state_dict().items()
        if not name.startswith("fc.")
    }
    theirs |= {f"module.encoder_q.fc.{layer}.bias": torch.ones(128) for layer in (0, 2)}
    theirs |= {"module.encoder_k.conv1.weight": torch.zeros(64, 3, 7, 7)}
    return {"epoch": 200, "arch": "resnet50", "state_dict": theirs}


def save(folder, content, **options):
    """A file whose name ends in the first digits of its checksum."""
    new = folder / "a b'"
    torch.save(content, new, **options)
    digest = hashlib.sha256(new.read_bytes()).hexdigest()
    return new.rename(folder / f"a b'-{digest[:8]}.pth")


def spec_of(model=RESNET, **changes):
    source = "moco" if model == MOCO else "imagenet"
    fields = {"key": "pretrain", "kind": "imported", "source": source, "model": model}
    return Spec.of({**fields, "options": {}, "image_shape": SHAPE, **changes}, "published")


def become(file, spec, folder):
    """The exit code of the import into `folder` of `file`, which is what torchvision lists."""
    words = [
        "--spec", spec.argument,
        "--backbone", str(folder / "backbone"),
        "--record", str(folder / "record.json"),
        "--checkpoints", str(folder / "checkpoints"),
        f"--weights-file={file}",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        address = f"https://example.org/{file.name}"
        patch.setattr(module, "listed", lambda model: (address, CLASSES))
        return run_command(main, words)


@pytest.fixture(scope="module")
def resnet():
    return untrained("resnet18")


@pytest.fixture(scope="module", params=FEATURES)
def made(request, resnet, tmp_path_factory):
    """(model, published network if torchvision has it, its file, the folder of the backbone)."""
    folder, model = tmp_path_factory.mktemp("made"), request.param
    if model == MOCO:
        net = untrained("resnet50")
        # As torch 1 wrote files.
        file = save(folder, moco_checkpoint(net), _use_new_zipfile_serialization=False)
    elif model == DEIT:
        net, file = None, save(folder, archives.published(DEIT))
    else:
        net, file = resnet, save(folder, resnet.state_dict())
    assert become(file, spec_of(model), folder) == 0
    yield model, net, file, folder
    for large in (file, folder / "backbone/weights.npz"):
        large.unlink()


def test_the_backbone_s_features_are_the_published_network_s(made):
    model, net, _, folder = made
    imported = backbone.load(folder / "backbone")
    x = np.random.default_rng(1).random((2, int(np.prod(SHAPE))), dtype=np.float32)
    found = backbone.features(imported.network, x)
    assert found.shape == (2, FEATURES[model]) and imported.manifest["features"] == FEATURES[model]
    if net is None:
        return
    images = torch.from_numpy(x).view(2, *SHAPE)
    large = nn.functional.interpolate(images, (224, 224), mode="bilinear", antialias=True)
    mean, deviation = (
        torch.tensor(values)[:, None, None]
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    headless = nn.Sequential(*list(net.children())[:-1], nn.Flatten())
    with torch.no_grad():
        expected = headless((large - mean) / deviation).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_record_says_which_file_it_was_and_that_nothing_private_was_read(made):
    model, _, file, folder = made
    record, manifest = (json.loads((folder / name).read_text()) for name in (FILES[0], FILES[2]))
    metrics, ledger = record["metrics"], record["ledger"]
    assert metrics["weights"] == {
        "file": file.name,
        "address": None if model == MOCO else f"https://example.org/{file.name}",
        "sha256": module.file_digest(file, "sha256"),
    }
    # Folded batch norms round otherwise; DeiT has none.
    assert metrics["difference"] < 1e-4 and (metrics["difference"] > 0 or model == DEIT)
    assert record["data"] is None and record["device"] == "cpu"
    assert ledger["epsilon"] == 0 and "no private record was read" in ledger["guaranteed"]
    assert metrics["backbone_sha256"] == manifest["sha256"]
    assert manifest["training"]["spec_id"] == record["id"] == spec_of(model).id
    assert manifest["training"]["weights"] == metrics["weights"]
    for text in (ledger["public_data"], manifest["training"]["public_data"]):
        assert "imagenet" in text and ("CC BY-NC 4.0" in text) == (model == MOCO)
    # A head that the file lacks is one of zeros.
    head = backbone.load(folder / "backbone").network.head.parameters()
    assert any(bool(value.any()) for value in head) == (model != MOCO)
    assert manifest["classes"] == (["none"] if model == MOCO else CLASSES)
    assert metrics["classes"] == (0 if model == MOCO else len(CLASSES))
    scaling = manifest["training"]["data"]["preprocessing"]
    for entry in (PNEUMONIA, PNEUMONIA_CAUSES, PNEUMONIA_224, STL10):
        assert scaling == {**asdict(entry.scaling), "norm": None}


@pytest.mark.parametrize("made", [RESNET], indirect=True)
def test_two_imports_give_the_same_bytes_and_leave_torch_s_generator(made, tmp_path):
    _, _, file, folder = made
    before = torch.get_rng_state()
    assert become(file, spec_of(), tmp_path) == 0
    assert torch.equal(torch.get_rng_state(), before)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def without_a_weight(state):
    return {name: value for name, value in state.items() if name != "layer4.1.bn2.weight"}


def infinite(state):
    return {**state, "bn1.running_var": torch.full((64,), torch.inf)}


@pytest.mark.parametrize(
    ("change", "changes", "words"),
    [
        (without_a_weight, {}, "weights of another network"),
        (infinite, {}, "no numbers in bn1.running_var"),
        (dict, {"source": "openimages"}, "source: found 'openimages'; allowed: one of imagenet"),
        (dict, {"model": "resnet18"}, "model: found 'resnet18'; allowed: one of imagenet-resnet18"),
        (dict, {"image_shape": [2, 28, 28]}, "2 channels"),
        (dict, {"options": {"widths": [3]}}, "options of imagenet-resnet18: found widths"),
        (dict, {"source": "moco", "model": MOCO, "sha256": "0" * 8}, "00000000, as the config"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_a_line(
    resnet, tmp_path, capsys, change, changes, words
):
    file = save(tmp_path, change(resnet.state_dict()))
    assert become(file, spec_of(**changes), tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not any((tmp_path / name).exists() for name in FILES)


def test_a_damaged_file_is_refused_before_it_is_opened(tmp_path, capsys, monkeypatch):
    file = save(tmp_path, {})
    file.write_bytes(file.read_bytes()[:-1])
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    assert become(file, spec_of(), tmp_path) == 2
    assert f"{file.name}: found sha256" in capsys.readouterr().err
    assert become(tmp_path / "gone.pth", spec_of(), tmp_path) == 2
    assert "gone.pth: found No such file" in capsys.readouterr().err


def test_a_network_that_computes_something_else_is_not_written(
    resnet, tmp_path, capsys, monkeypatch
):
    def without_a_shift(model, state):
        weights = real(model, state)
        weights["body.layer3.1.conv2.bias"].zero_()
        return weights

    real = module.folded
    monkeypatch.setattr(module, "folded", without_a_shift)
    assert become(save(tmp_path, resnet.state_dict()), spec_of(), tmp_path) == 1
    assert "differ from the published network's" in capsys.readouterr().err
    assert not (tmp_path / "backbone").exists()


def test_the_classes_are_imagenet_s_and_moco_s_weights_have_no_address():
    for model in (RESNET, DEIT):
        _, classes = module.listed(model)
        assert len(classes) == 1000 and classes[0] == "tench"
    with pytest.raises(InputError, match="moco-v2"):
        module.listed(MOCO)
