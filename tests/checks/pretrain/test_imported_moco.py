"""MoCo's checkpoints, as their authors publish them, become backbones: here untrained ResNet50s."""

import pytest
import torch
from miniatures import Hostile
from published_weights import arguments, check_features, import_spec, read, refused, untrained
from torch import nn

from dpatlas.models import backbone
from dpatlas_workflow.checks.pretrain.jobs import imported as module
from dpatlas_workflow.run.command import main

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
    return import_spec("mine", {"source": "moco", "model": V2, "image_shape": SHAPE, **changes})


@pytest.fixture(scope="module")
def made(net, tmp_path_factory):
    folder = tmp_path_factory.mktemp("moco")
    file = folder / "a b'.pth.tar"
    # As torch 1 wrote files.
    torch.save(v2(net.state_dict()), file, _use_new_zipfile_serialization=False)
    main(arguments(folder, spec_of(), file))
    yield folder
    file.unlink()
    (folder / "backbone/weights.npz").unlink()


def test_its_features_are_those_of_torchvision_s_network_with_these_weights(made, net):
    check_features(backbone.load(made / "backbone"), net, SHAPE)


def test_it_has_no_classes_and_a_head_of_zeros_that_gives_way_to_a_new_one(made):
    imported = backbone.load(made / "backbone")
    assert imported.classes == ("none",)
    assert not any(bool(value.any()) for value in imported.network.head.parameters())
    fresh = imported.with_new_head(10, key="test", run=0, base_seed=0)
    assert fresh.head.out_features == 10 and bool(fresh.head.weight.any())
    assert torch.equal(fresh.body.conv1.weight, imported.network.body.conv1.weight)


def test_record_and_manifest_say_which_file_it_was_and_under_which_licence(made):
    record, manifest = read(made / "record.json"), read(made / "backbone/manifest.json")
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
    main(arguments(tmp_path, spec_of(model=V3, sha256=digits), file))
    third, second = (read(folder / "backbone/manifest.json") for folder in (tmp_path, made))
    assert third["sha256"] == second["sha256"] and third["architecture"] == V3
    assert third["training"]["weights"]["sha256"].startswith(digits)
    file.unlink()
    (tmp_path / "backbone/weights.npz").unlink()


@pytest.mark.parametrize(
    ("content", "changes", "words"),
    [
        ({"state_dict": {"module.base_encoder.x": torch.zeros(1)}}, {}, f"a checkpoint of {V3}"),
        ({"state_dict": {}, "args": Hostile()}, {}, "can run code"),
        ({"args": Hostile()}, {"sha256": "0" * 8}, "00000000, as the config says"),
    ],
    ids=["v3", "code", "another file"],
)
def test_other_checkpoints_are_refused(tmp_path, capsys, monkeypatch, content, changes, words):
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "net.pth")
    assert words in refused(capsys, tmp_path, spec_of(**changes), "net.pth")
    assert not (tmp_path / "proof").exists()
