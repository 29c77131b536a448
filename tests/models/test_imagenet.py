import pytest
import torch
from torch import nn
from torch.nn import functional

from dpatlas.errors import InputError
from dpatlas.models.backbone import features, load, save
from dpatlas.models.build import IMPORTED, NAMES, build
from dpatlas.models.imagenet import SLICE, ImageNetInput, folded, imagenet_resnet18

SMALL = (1, 20, 24)


@pytest.fixture(scope="module")
def published():
    """torchvision's network with statistics that are far from the identity."""
    from torchvision.models import resnet18

    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = resnet18().eval()
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, std=0.2)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
                nn.init.uniform_(part.weight, 0.5, 1.0)
                nn.init.normal_(part.bias, std=0.2)
    return net


def built(shape, published):
    net = build("imagenet-resnet18", shape, 1000, key="test", run=0, base_seed=0)
    net.load_state_dict(folded(published.state_dict()))
    return net


def grey(shape, records=2):
    return torch.rand(records, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(1, 224, 224), (1, 28, 28), (3, 300, 200)])
def test_it_computes_what_torchvisions_network_computes(published, shape):
    x = grey(shape)
    colour = x.expand(-1, 3, -1, -1)
    if shape[1:] != (224, 224):
        colour = functional.interpolate(colour, (224, 224), mode="bilinear", antialias=True)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    net = built(shape, published)
    with torch.no_grad():
        expected = published((colour - mean) / deviation)
        before_head = nn.Sequential(*list(published.children())[:-1])((colour - mean) / deviation)
        found = net(x.flatten(1))
    scale = expected.abs().max()
    torch.testing.assert_close(found / scale, expected / scale, atol=1e-5, rtol=0)
    taken = torch.from_numpy(features(net, x.flatten(1).numpy()))
    torch.testing.assert_close(taken, before_head.flatten(1), atol=1e-4, rtol=1e-4)


def test_the_input_is_standardised_by_the_published_constants():
    from torchvision.models import ResNet18_Weights

    preset = ResNet18_Weights.IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (preset.mean, preset.std))
    x = grey((3, 224, 224))
    torch.testing.assert_close(ImageNetInput()(x), (x - mean) / deviation)
    assert preset.crop_size == [224]


def test_every_weight_of_the_published_file_is_used(published):
    net = imagenet_resnet18()
    weights = folded(published.state_dict())
    assert {name: value.shape for name, value in weights.items()} == {
        name: value.shape for name, value in net.state_dict().items()
    }
    # A BatchNorm's two vectors become the one bias of its convolution.
    norms = sum(
        part.num_features for part in published.modules() if isinstance(part, nn.BatchNorm2d)
    )
    count = sum(value.numel() for value in published.parameters())
    assert count == 11_689_512
    assert sum(value.numel() for value in net.parameters()) == count - norms == 11_684_712


def test_it_keeps_no_statistics_and_mixes_no_records(published):
    net = built(SMALL, published).train()
    assert not list(net.buffers())
    x = grey(SMALL, 3).flatten(1)
    before = net(x)
    x[1] = torch.nan
    after = net(x)
    assert torch.equal(after[[0, 2]], before[[0, 2]]) and after[1].isnan().all()


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


def test_the_last_stage_takes_gradients_of_single_records(published):
    from dpatlas.privacy.per_record import NetworkGradients

    net = built(SMALL, published)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith(("body.layer4.1", "head")))
    x, labels = grey(SMALL, 2).flatten(1), torch.tensor([3, 5])
    clipped = NetworkGradients(net).clipped_sum(x, labels, 1e9)
    functional.cross_entropy(net(x), labels, reduction="sum").backward()
    for name, gradient in clipped.gradients.items():
        torch.testing.assert_close(gradient, net.get_parameter(name).grad, atol=1e-4, rtol=1e-3)


def test_it_is_saved_and_loaded_as_any_other_backbone(published, tmp_path):
    net = built(SMALL, published)
    save(
        tmp_path,
        net,
        architecture="imagenet-resnet18",
        options={},
        image_shape=SMALL,
        classes=[str(number) for number in range(1000)],
        training={"spec_id": "x"},
    )
    found = load(tmp_path, "imagenet-resnet18")
    assert found.manifest["features"] == 512
    x = grey(SMALL).flatten(1)
    with torch.no_grad():
        assert torch.equal(found.network(x), net(x))


def test_it_is_built_but_not_among_the_networks_to_train():
    assert set(IMPORTED) == {"imagenet-resnet18"} and not set(IMPORTED) & set(NAMES)


def test_images_of_two_channels_are_refused():
    with pytest.raises(InputError, match="2 channels; allowed: 1 or 3"):
        imagenet_resnet18((2, 224, 224))
