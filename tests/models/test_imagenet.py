import pytest
import torch
from torch import nn
from torch.nn import functional

from dpatlas.base.networks import PUBLISHED
from dpatlas.errors import InputError
from dpatlas.models.backbone import features
from dpatlas.models.build import build, builder
from dpatlas.models.imagenet import SLICE, folded

SMALL = (1, 20, 24)
# MoCo's networks are ResNet50s.
MODELS = [f"imagenet-{each}" for each in ("resnet18", "resnet50", "mobilenet-v3", "alexnet")]


@pytest.fixture(scope="module")
def origins():
    """torchvision's networks with statistics that are far from the identity."""
    from torchvision.models import get_model

    found = {}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for model in MODELS:
            found[model] = get_model(PUBLISHED[model].name).eval()
            for part in found[model].modules():
                if isinstance(part, nn.BatchNorm2d):
                    nn.init.normal_(part.running_mean, std=0.2)
                    nn.init.uniform_(part.running_var, 0.5, 2.0)
                    nn.init.uniform_(part.weight, 0.5, 1.0)
                    nn.init.normal_(part.bias, std=0.2)
    return found


@pytest.fixture
def published(origins):
    return origins["imagenet-resnet18"]


def built(shape, published, model="imagenet-resnet18"):
    net = build(model, shape, 1000, key="test", run=0, base_seed=0)
    net.load_state_dict(folded(model, published))
    return net


def grey(shape, records=2):
    return torch.rand(records, *shape, generator=torch.Generator().manual_seed(1))


def head_inputs(published, head, x):
    seen = []
    hook = published.get_submodule(head).register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    scores = published(x)
    hook.remove()
    return scores, seen[0]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("imagenet-resnet18", (1, 28, 28)),
        ("imagenet-resnet18", (3, 300, 200)),
        ("imagenet-resnet50", (3, 96, 96)),
        ("imagenet-mobilenet-v3", (3, 96, 96)),
        ("imagenet-alexnet", (1, 224, 224)),
    ],
)
def test_it_computes_what_torchvisions_network_computes(origins, model, shape):
    x = grey(shape, 1)
    colour = x.expand(-1, 3, -1, -1)
    if shape[1:] != (224, 224):
        colour = functional.interpolate(colour, (224, 224), mode="bilinear", antialias=True)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    net = built(shape, origins[model], model)
    with torch.no_grad():
        head = PUBLISHED[model].head
        expected, before_head = head_inputs(origins[model], head, (colour - mean) / deviation)
        found = net(x.flatten(1))
    scale = expected.abs().max()
    torch.testing.assert_close(found / scale, expected / scale, atol=1e-5, rtol=0)
    taken = torch.from_numpy(features(net, x.flatten(1).numpy()))
    scale = before_head.abs().max()
    torch.testing.assert_close(taken / scale, before_head / scale, atol=1e-5, rtol=0)


def test_many_records_pass_a_few_at_a_time_without_autograd(published, monkeypatch):
    net = built(SMALL, published)
    seen = []
    net.body.conv1.register_forward_hook(lambda part, given, output: seen.append(len(output)))
    x = grey(SMALL, 5).flatten(1)
    monkeypatch.setattr("dpatlas.models.imagenet.SLICE", 2)
    with torch.no_grad():
        sliced = net(x)
        empty = net.features(x[:0])
    assert seen == [2, 2, 1, 0] and empty.shape == (0, 512)
    whole = net(x)
    assert seen[4:] == [5]
    torch.testing.assert_close(sliced, whole.detach(), atol=1e-4, rtol=1e-4)
    assert SLICE > 1


def test_images_of_two_channels_are_refused():
    with pytest.raises(InputError, match="2 channels; allowed: 1 or 3"):
        builder("imagenet-resnet18")((2, 224, 224))
