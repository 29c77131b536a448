"""MoCo's checkpoints, as their authors publish them, become backbones: here untrained ResNet50s."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from dpatlas.checks.pretrain.jobs import imported as module
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError, run_command
from dpatlas.jobs.run import main
from dpatlas.models import backbone

V2, V3 = "moco-v2-resnet50", "moco-v3-resnet50"
FILES = ("record.json", "backbone/weights.npz", "backbone/manifest.json")


@pytest.fixture(scope="module")
def net():
    """torchvision's network with statistics that are far from the identity, without its head."""
    from torchvision.models import get_model

    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = get_model("resnet50", num_classes=1).eval()
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, std=0.2)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
    net.fc = nn.Identity()
    return net


def v2(state):
    found = {f"module.encoder_q.{name}": value for name, value in state.items()}
    found |= {f"module.encoder_q.fc.{i}.bias": torch.ones(128) for i in (0, 2)}
    found |= {"module.encoder_k.conv1.weight": torch.zeros(64, 3, 7, 7)}
    found |= {"module.queue": torch.zeros(128, 64), "module.queue_ptr": torch.zeros(1)}
    return {"epoch": 200, "arch": "resnet50", "state_dict": found}


def v3(state):
    found = {f"module.base_encoder.{name}": value for name, value in state.items()}
    found |= {"module.base_encoder.fc.0.weight": torch.ones(4, 2048)}
    found |= {"module.momentum_encoder.conv1.weight": torch.zeros(64, 3, 7, 7)}
    found |= {"module.predictor.0.weight": torch.ones(4, 4)}
    return {"epoch": 300, "arch": "resnet50", "state_dict": found, "optimizer": {"state": {}}}


def arguments(folder, file, model=V2, **changes):
    fields = {
        "key": "pretrain",
        "kind": "imported",
        "source": "moco",
        "model": model,
        "options": {},
        "image_shape": [3, 32, 32],
    }
    return [
        "--spec", Spec.of({**fields, **changes}, "mine").argument,
        "--backbone", str(folder / "backbone"),
        "--record", str(folder / "record.json"),
        "--checkpoints", str(folder / "checkpoints"),
        "--download-folder", str(folder / "cache"),
        f"--weights-file={file}",
    ]  # fmt: skip


def refused(capsys, folder, *given, **changes):
    """The one line on stderr, with exit code 2; nothing was written."""
    assert run_command(main, arguments(folder, *given, **changes)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not any((folder / name).exists() for name in FILES)
    return line


@pytest.fixture(scope="module")
def made(net, tmp_path_factory):
    folder = tmp_path_factory.mktemp("moco")
    file = folder / "a b'.pth.tar"
    # As torch 1 wrote files.
    torch.save(v2(net.state_dict()), file, _use_new_zipfile_serialization=False)
    main(arguments(folder, file))
    yield folder
    file.unlink()
    (folder / "backbone/weights.npz").unlink()


def test_its_features_are_those_of_torchvision_s_network_with_these_weights(made, net):
    found = backbone.load(made / "backbone", V2)
    x = np.random.default_rng(1).random((2, 3 * 32 * 32), dtype=np.float32)
    large = nn.functional.interpolate(
        torch.from_numpy(x).view(2, 3, 32, 32), (224, 224), mode="bilinear", antialias=True
    )
    mean, deviation = (
        torch.tensor(values)[:, None, None]
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    with torch.no_grad():
        expected = net((large - mean) / deviation).numpy()
    taken = backbone.features(found.network, x)
    assert taken.shape == (2, 2048)
    np.testing.assert_allclose(taken, expected, atol=1e-4 * np.abs(expected).max())


def test_it_has_no_classes_and_a_head_of_zeros_that_gives_way_to_a_new_one(made):
    found = backbone.load(made / "backbone")
    assert found.classes == ("none",)
    assert not any(bool(value.any()) for value in found.network.head.parameters())
    fresh = found.with_new_head(10, key="test", run=0, base_seed=0)
    assert fresh.head.out_features == 10 and bool(fresh.head.weight.any())
    assert torch.equal(fresh.body.conv1.weight, found.network.body.conv1.weight)


def test_record_and_manifest_say_which_file_it_was_and_under_which_licence(made):
    record = json.loads((made / "record.json").read_text())
    manifest = json.loads((made / "backbone/manifest.json").read_text())
    weights = record["metrics"]["weights"]
    assert weights["file"] == "a b'.pth.tar" and weights["address"] is None
    assert weights["sha256"] == module.file_digest(made / "a b'.pth.tar", "sha256")
    assert manifest["training"]["weights"] == weights
    for text in (record["ledger"]["public_data"], manifest["training"]["public_data"]):
        assert "CC BY-NC 4.0" in text and "imagenet" in text
    assert record["metrics"]["classes"] == 0 and 0 < record["metrics"]["difference"] < 1e-4
    assert record["ledger"]["epsilon"] == 0 and record["data"] is None


def test_a_checkpoint_of_v3_with_the_same_encoder_is_the_same_backbone(made, net, tmp_path):
    file = tmp_path / "v3.pth.tar"
    torch.save(v3(net.state_dict()), file)
    digits = module.file_digest(file, "sha256")[:8]
    main(arguments(tmp_path, file, V3, sha256=digits))
    found, other = (
        json.loads((folder / "backbone/manifest.json").read_text()) for folder in (tmp_path, made)
    )
    assert found["sha256"] == other["sha256"] and found["architecture"] == V3
    assert found["training"]["weights"]["sha256"].startswith(digits)
    file.unlink()
    (tmp_path / "backbone/weights.npz").unlink()


class Hostile:
    def __reduce__(self):
        return (exec, ("open('proof', 'w').close()",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"state_dict": {"fc.weight": torch.zeros(1000, 2)}}, "a single last layer (1000 x 2)"),
        ({"state_dict": {"module.base_encoder.x": torch.zeros(1)}}, f"a checkpoint of {V3}"),
        ({"state_dict": {"module.encoder_q.conv1.weight": torch.zeros(1)}}, "another network"),
        ({"state_dict": {}}, "weights of another network; allowed: those of resnet50"),
        ({"state_dict": {}, "args": Hostile()}, "can run code"),
    ],
    ids=["supervised", "v3", "shapes", "empty", "code"],
)
def test_other_checkpoints_are_refused(tmp_path, capsys, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "net.pth")
    assert words in refused(capsys, tmp_path, "net.pth")
    assert not (tmp_path / "proof").exists()


def test_a_resnet18_is_another_network(tmp_path):
    from torchvision.models import get_model

    state = get_model("resnet18").state_dict()
    with pytest.raises(InputError, match=r"net\.pth: found weights of another network"):
        module.published_network(V2, tmp_path / "net.pth", state, 1)


def test_weights_that_are_not_finite_are_refused(net, tmp_path):
    state = net.state_dict()
    state["layer3.1.bn2.running_var"] = torch.full((256,), torch.inf)
    with pytest.raises(InputError, match=r"numbers in layer3\.1\.bn2\.running_var; allowed: fin"):
        module.published_network(V3, tmp_path / "net.pth", state, 1)


def test_files_that_cannot_be_taken_are_refused_before_they_are_opened(
    tmp_path, capsys, monkeypatch
):
    torch.save({}, tmp_path / "net.pth")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    line = refused(capsys, tmp_path, tmp_path / "net.pth", sha256="0" * 8)
    assert "00000000, as the config says" in line
    line = refused(capsys, tmp_path, tmp_path / "gone.pth")
    assert "pretrain.backbones.mine.file: found no file" in line and "gone.pth" in line
    assert "the path under pretrain.backbones.mine.file" in refused(capsys, tmp_path, "")


@pytest.mark.parametrize("content", [pickle.dumps([1] * 500, 2)[:200], b"PK\3\4 torn", b""])
def test_a_truncated_file_is_one_line(tmp_path, capsys, content):
    (tmp_path / "net.pth").write_bytes(content)
    line = refused(capsys, tmp_path, tmp_path / "net.pth")
    assert "a file that cannot be read; allowed: tensors by name" in line


def test_an_address_is_known_for_no_moco_weights(tmp_path, capsys):
    with pytest.raises(InputError, match=V2):
        module.listed(V2)
    other = {"source": "imagenet", "model": "imagenet-resnet50"}
    line = refused(capsys, tmp_path, "net.pth", **other)
    assert "--weights-file: found net.pth" in line
    assert "model: found" in refused(capsys, tmp_path, "net.pth", source="imagenet")
