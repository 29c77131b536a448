import pytest
import torch
from archives import deit_shapes
from torch import nn

from dpatlas.models.build import build
from dpatlas.models.deit import LAYOUT, imagenet_deit_tiny, to_ours, to_torchvision
from dpatlas.models.imagenet import ImageNetInput


@pytest.fixture(scope="module")
def published():
    """Random tensors, of which none is like another."""
    draws = torch.Generator().manual_seed(2)
    return {
        name: float("norm" in name and name.endswith("weight"))
        + torch.randn(shape, generator=draws) / (shape[-1] if len(shape) == 2 else 50) ** 0.5
        for name, shape in deit_shapes().items()
    }


def built(shape, published):
    net = build("imagenet-deit-tiny", shape, 1000, key="test", run=0, base_seed=0)
    net.load_state_dict(to_ours(published))
    return net


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 32, 32)])
def test_it_computes_what_torchvisions_transformer_computes(published, shape):
    from torchvision.models import VisionTransformer

    with torch.random.fork_rng():
        theirs = VisionTransformer(**LAYOUT).eval()
    theirs.load_state_dict(to_torchvision(published))
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(ImageNetInput()(x))
        found = built(shape, published)(x.flatten(1))
    assert expected.std() > 0.05
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_norms_have_the_published_epsilon():
    net = imagenet_deit_tiny()
    assert sum(value.numel() for value in net.parameters()) == 5_717_416
    norms = [part for part in net.modules() if isinstance(part, nn.LayerNorm)]
    assert len(norms) == 25 and {part.eps for part in norms} == {1e-6}
