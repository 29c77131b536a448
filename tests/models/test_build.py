import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional

from dpatlas.base.networks import NETWORKS
from dpatlas.errors import InputError
from dpatlas.models.build import NAMES, build, initialise

SMALL = {"vit-tiny": {"depth": 2}}
FLAT = {name for name, entry in NETWORKS.items() if entry.flat}
RECORDS = 4


def shape_of(name):
    return (1, 8, 8) if name.startswith("small") or name in FLAT else (3, 32, 32)


def make(name, *, key="test", run=0, base_seed=1, outputs=10, **options):
    options = SMALL.get(name, {}) | options
    return build(name, shape_of(name), outputs, key=key, run=run, base_seed=base_seed, **options)


def records(name):
    draws = np.random.default_rng(3).standard_normal((RECORDS, int(np.prod(shape_of(name)))))
    return torch.from_numpy(draws.astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_a_network_scores_every_record_alone_and_trains_all_its_parameters(name):
    net, x = make(name, outputs=7).train(), records(name)
    scores = net(x)
    assert scores.shape == (RECORDS, 7) and scores.dtype == torch.float32
    assert torch.equal(net.head(net.features(x)), scores)
    assert 0.1 < scores.std() < 10
    functional.cross_entropy(scores, torch.arange(RECORDS)).backward()
    assert not list(net.buffers())
    for path, parameter in net.named_parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), path
    x[1] = torch.nan
    after, others = net(x), [0, 2, 3]
    assert torch.equal(after[others], scores[others]) and after[1].isnan().all()


@pytest.mark.parametrize("name", NAMES)
def test_equal_axes_give_equal_weights_whatever_torchs_generator_holds(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = make(name).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    two = make(name).state_dict()
    assert all(torch.equal(one[path], two[path]) for path in one)


@pytest.mark.parametrize("change", [{"run": 1}, {"base_seed": 2}, {"key": "other"}])
def test_other_runs_seeds_and_papers_draw_other_weights(change):
    one, two = make("small-cnn-s"), make("small-cnn-s", **change)
    for path, weight in one.named_parameters():
        if path.endswith("weight"):
            assert not torch.isclose(weight, two.get_parameter(path), rtol=1e-6).any()


def test_weights_do_not_depend_on_the_layers_around_them():
    shallow, deep = make("vit-tiny", depth=1), make("vit-tiny", depth=3)
    assert set(dict(shallow.named_parameters())) < set(dict(deep.named_parameters()))
    for path, weight in shallow.named_parameters():
        assert torch.equal(weight, deep.get_parameter(path))


@pytest.mark.parametrize(
    ("name", "path", "variance"),
    [
        ("small-cnn-s", "conv3", 2 / (9 * 32)),
        ("wrn16-4", "stage2.0.shortcut", 2 / 64),
        ("mlp", "head", 1 / 128),
        ("small-cnn-s", "head", 1 / 256),
    ],
)
def test_weights_are_gaussian_with_variance_gain_over_fan_in(name, path, variance):
    layer = make(name).get_submodule(path)
    values = layer.weight.detach().double().flatten().numpy()
    assert 1e-4 < stats.chi2.cdf((values**2).sum() / variance, values.size) < 1 - 1e-4
    assert stats.kstest(values, "norm", args=(0, variance**0.5)).pvalue > 1e-4


def test_tokens_are_small_norms_are_the_identity_and_biases_zero():
    net = make("vit-tiny")
    assert net.position.value.std().item() == pytest.approx(0.02, rel=0.05)
    assert net.class_token.value.std().item() == pytest.approx(0.02, rel=0.3)
    assert (net.norm.weight == 1).all() and (net.norm.bias == 0).all()
    biases = [p for path, p in net.named_parameters() if path.endswith("bias")]
    assert not any(bias.any() for bias in biases)


def test_unknown_names_and_options_are_refused_with_what_there_is():
    with pytest.raises(InputError, match="linear, mlp, small-cnn-s"):
        make("resnet19")
    with pytest.raises(InputError, match="options of mlp: found depth; allowed: widths"):
        make("mlp", depth=3)
    with pytest.raises(InputError, match="options of linear: found width; allowed: none"):
        make("linear", width=3)


def test_a_parameter_that_no_rule_covers_is_refused_by_name():
    net = nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2))
    with pytest.raises(InputError, match=r"1\.in_proj_weight.*MultiheadAttention"):
        initialise(net, key="test", run=0, base_seed=0)
