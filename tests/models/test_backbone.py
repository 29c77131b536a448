import json

import numpy as np
import pytest
import torch

from dpatlas.errors import InputError
from dpatlas.models.backbone import features, load, save
from dpatlas.models.build import build

CLASSES = ("a", "b", "c")
RECORDS = np.random.default_rng(0).random((7, 64), dtype=np.float32)


def store(folder, architecture="small-cnn-t", run=0, into=None, **options):
    network = build(architecture, (1, 8, 8), 3, key="test", run=run, base_seed=1, **options)
    facts = {"architecture": architecture, "options": options, "image_shape": (1, 8, 8)}
    save(folder, network, **facts, classes=CLASSES, training={"spec_id": "x"})
    if into:
        (folder / "weights.npz").replace(into / "weights.npz")
    return network


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("small-cnn-t", {"affine": True}), ("small-cnn-s", {}), ("mlp", {"widths": [5, 4]})],
)
def test_a_loaded_backbone_gives_the_same_bits(tmp_path, architecture, options):
    network = store(tmp_path, architecture, **options)
    found = load(tmp_path)
    x = torch.from_numpy(RECORDS)
    assert torch.equal(found.network(x), network(x))
    again = tmp_path / "again"
    store(again, architecture, **options)
    for name in ("weights.npz", "manifest.json"):
        assert (tmp_path / name).read_bytes() == (again / name).read_bytes()
    assert found.classes == CLASSES and found.manifest["training"] == {"spec_id": "x"}
    assert found.manifest["features"] == network.head.in_features


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: flip_a_byte(folder / "weights.npz"), r"weights\.npz"),
        (lambda folder: store(folder.parent / "two", run=1, into=folder), "sha256"),
        (lambda folder: (folder / "weights.npz").unlink(), r"weights\.npz"),
        (lambda folder: say(folder, classes=["a", "b"]), "weights of another network"),
    ],
    ids=["damaged", "of another run", "no weights", "manifest of another"],
)
def test_weights_other_than_those_of_the_manifest_are_refused(tmp_path, change, words):
    store(tmp_path / "one")
    change(tmp_path / "one")
    with pytest.raises(InputError, match=words):
        load(tmp_path / "one")


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def say(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_new_head_leaves_the_body_bit_identical(tmp_path):
    trained = store(tmp_path).state_dict()
    backbone = load(tmp_path)
    one, two, same = (
        backbone.with_new_head(10, key="lp_fft", run=run, base_seed=0) for run in (0, 1, 0)
    )
    for name, value in one.state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(value, trained[name])
    assert one.head.out_features == 10
    assert torch.equal(one.head.weight, same.head.weight)
    assert not torch.equal(one.head.weight, two.head.weight)


def test_features_are_the_input_of_the_head(tmp_path):
    network = store(tmp_path)
    taken = features(network, RECORDS, chunk=3)
    assert taken.shape == (7, 32) and taken.dtype == np.float32
    logits = network.head(torch.from_numpy(taken)).detach()
    np.testing.assert_allclose(logits, network(torch.from_numpy(RECORDS)).detach(), atol=1e-6)
    assert features(network, RECORDS[:0]).shape == (0, 32)
