"""MoCo's checkpoints, as their authors publish them, become backbones: here untrained ResNet50s."""

import json

import numpy as np
import pytest
import torch
from published_weights import arguments, import_spec, records_and_input, refused, untrained
from torch import nn

from dpatlas.checks.pretrain.jobs import imported as module
from dpatlas.errors import InputError
from dpatlas.jobs.run import main
from dpatlas.models import backbone

V2, V3 = "moco-v2-resnet50", "moco-v3-resnet50"
SHAPE = [3, 32, 32]


@pytest.fixture(scope="module")
def net():
    """torchvision's network without its head."""
    net = untrained("resnet50", 1)
    net.fc = nn.Identity()
    return net


def v2(state):
    theirs = {f"module.encoder_q.{name}": value for name, value in state.items()}
    theirs |= {f"module.encoder_q.fc.{i}.bias": torch.ones(128) for i in (0, 2)}
    theirs |= {"module.encoder_k.conv1.weight": torch.zeros(64, 3, 7, 7)}
    theirs |= {"module.queue": torch.zeros(128, 64), "module.queue_ptr": torch.zeros(1)}
    return {"epoch": 200, "arch": "resnet50", "state_dict": theirs}


def v3(state):
    theirs = {f"module.base_encoder.{name}": value for name, value in state.items()}
    theirs |= {"module.base_encoder.fc.0.weight": torch.ones(4, 2048)}
    theirs |= {"module.momentum_encoder.conv1.weight": torch.zeros(64, 3, 7, 7)}
    theirs |= {"module.predictor.0.weight": torch.ones(4, 4)}
    return {"epoch": 300, "arch": "resnet50", "state_dict": theirs, "optimizer": {"state": {}}}


def spec_of(**changes):
    fields = {"source": "moco", "model": V2, "image_shape": SHAPE}
    return import_spec("mine", {**fields, **changes})


def refused_file(capsys, folder, file, **changes):
    return refused(capsys, folder, spec_of(**changes), f"--weights-file={file}")


@pytest.fixture(scope="module")
def made(net, tmp_path_factory):
    folder = tmp_path_factory.mktemp("moco")
    file = folder / "a b'.pth.tar"
    # As torch 1 wrote files.
    torch.save(v2(net.state_dict()), file, _use_new_zipfile_serialization=False)
    main(arguments(folder, spec_of(), f"--weights-file={file}"))
    yield folder
    file.unlink()
    (folder / "backbone/weights.npz").unlink()


def test_its_features_are_those_of_torchvision_s_network_with_these_weights(made, net):
    imported = backbone.load(made / "backbone", V2)
    x, inputs = records_and_input(SHAPE)
    with torch.no_grad():
        expected = net(inputs).numpy()
    found = backbone.features(imported.network, x)
    assert found.shape == (2, 2048)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_it_has_no_classes_and_a_head_of_zeros_that_gives_way_to_a_new_one(made):
    imported = backbone.load(made / "backbone")
    assert imported.classes == ("none",)
    assert not any(bool(value.any()) for value in imported.network.head.parameters())
    fresh = imported.with_new_head(10, key="test", run=0, base_seed=0)
    assert fresh.head.out_features == 10 and bool(fresh.head.weight.any())
    assert torch.equal(fresh.body.conv1.weight, imported.network.body.conv1.weight)


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
    main(arguments(tmp_path, spec_of(model=V3, sha256=digits), f"--weights-file={file}"))
    third, second = (
        json.loads((folder / "backbone/manifest.json").read_text()) for folder in (tmp_path, made)
    )
    assert third["sha256"] == second["sha256"] and third["architecture"] == V3
    assert third["training"]["weights"]["sha256"].startswith(digits)
    file.unlink()
    (tmp_path / "backbone/weights.npz").unlink()


class Hostile:
    def __reduce__(self):
        return (exec, ("open('proof', 'w').close()",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"state_dict": {"module.base_encoder.x": torch.zeros(1)}}, f"a checkpoint of {V3}"),
        ({"state_dict": {}}, "weights of another network; allowed: those of resnet50"),
        ({"state_dict": {}, "args": Hostile()}, "can run code"),
    ],
    ids=["v3", "empty", "code"],
)
def test_other_checkpoints_are_refused(tmp_path, capsys, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "net.pth")
    assert words in refused_file(capsys, tmp_path, "net.pth")
    assert not (tmp_path / "proof").exists()


def test_weights_of_a_resnet18_and_infinite_ones_are_refused(net, tmp_path):
    state = untrained("resnet18", 1).state_dict()
    with pytest.raises(InputError, match=r"net\.pth: found weights of another network"):
        module.published_network(V2, tmp_path / "net.pth", state, 1)
    state = net.state_dict()
    state["layer3.1.bn2.running_var"] = torch.full((256,), torch.inf)
    with pytest.raises(InputError, match=r"numbers in layer3\.1\.bn2\.running_var; allowed: fin"):
        module.published_network(V3, tmp_path / "net.pth", state, 1)


def test_files_that_cannot_be_taken_are_refused_before_they_are_opened(
    tmp_path, capsys, monkeypatch
):
    torch.save({}, tmp_path / "net.pth")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    line = refused_file(capsys, tmp_path, tmp_path / "net.pth", sha256="0" * 8)
    assert "00000000, as the config says" in line
    line = refused_file(capsys, tmp_path, tmp_path / "gone.pth")
    assert "pretrain.backbones.mine.file: found no file" in line and "gone.pth" in line
    assert "the path under pretrain.backbones.mine.file" in refused_file(capsys, tmp_path, "")


def test_moco_s_weights_have_no_address_and_those_with_one_take_no_file(tmp_path, capsys):
    with pytest.raises(InputError, match=V2):
        module.listed(V2)
    other = {"source": "imagenet", "model": "imagenet-resnet50"}
    line = refused_file(capsys, tmp_path, "net.pth", **other)
    assert "--weights-file: found net.pth" in line
