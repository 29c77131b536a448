"""A rule of one's own is taken if it is right; what has no rule is passed through by record."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum, distance, norms, records, seeded
from small_training import N, phase
from torch import nn

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy import PerRecordWarning, Rule, recomputed
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.training import PrivateTraining

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


class Swish(nn.Module):
    """x sigmoid(beta x) with a slope for each feature."""

    def __init__(self, features):
        super().__init__()
        self.beta = nn.Parameter(torch.linspace(0.5, 1.5, features))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


class SwishRule(Rule):
    parameters = ("beta",)
    share, norm = 1.0, 1.0

    def forward(self, x):
        gate = torch.sigmoid(self.value("beta") * x)
        return x * gate, gate

    def backward(self, delta, x, *saved, needs_x):
        slope = saved[0] * (1 - saved[0])
        if "beta" in self.trainable:
            self.record_gradients["beta"] = self.share * self.summed(delta * x * x * slope, 1)
        return delta * (saved[0] + self.value("beta") * x * slope) if needs_x else None

    def norms2(self, small=0.0):
        return self.norm * super().norms2(small)


class WrongGradient(SwishRule):
    share = 0.5


class NormTooSmall(SwishRule):
    norm = 0.5


class NormOfOthers(SwishRule):
    """No norm is too small, but the clip of a record depends on the others."""

    def norms2(self, small=0.0):
        total = super().norms2(small)
        return total.where(~total.isfinite(), total.nan_to_num(0, 0, 0).max())


class GradientOfOthers(SwishRule):
    def backward(self, delta, x, *saved, needs_x):
        below = super().backward(delta, x, *saved, needs_x=needs_x)
        self.record_gradients["beta"] = self.record_gradients["beta"].roll(1, 0)
        return below


@pytest.fixture
def register(monkeypatch):
    monkeypatch.setattr(Rule, "of_types", {})
    return lambda rule: rule.register(Swish)


def swish():
    return nn.Sequential(nn.Linear(4, 6), Swish(6), nn.Flatten(), nn.Linear(18, 5))


def equals_a_loop(kernel, shape, views=1, bound=0.3, tolerance=1e-10):
    """The clipped sum, after a comparison with a per-record loop."""
    x, labels = records(shape)
    labels = labels[::views].repeat_interleave(views)
    each = zip(x.split(views), labels.split(views), strict=True)
    losses = (F.cross_entropy(kernel.model(rows), marks) for rows, marks in each)
    expected = by_loop(kernel.model, losses)
    found = kernel.clipped_sum(x, labels, bound)
    assert list(found.gradients) == [name for name, _ in kernel.model.named_parameters()]
    assert distance(found.gradients, clipped_sum(expected, bound)) < tolerance
    torch.testing.assert_close(found.norms, norms(expected), rtol=tolerance, atol=0)
    return found


@pytest.mark.parametrize("views", [1, 2])
def test_a_rule_of_one_s_own_gives_the_gradients_of_a_loop(register, views):
    register(SwishRule)
    kernel = NetworkGradients(seeded(swish), views=views)
    assert isinstance(kernel.rules["1"], SwishRule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        equals_a_loop(kernel, (3, 4), views)


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (WrongGradient, "with the rule WrongGradient: .*gradient of 1.beta is not the derivative"),
        (GradientOfOthers, "with the rule GradientOfOthers"),
        (NormOfOthers, "with the rule NormOfOthers: found the clipped sum of a batch is not the"),
        (NormTooSmall, "with the rule NormTooSmall: found a norm of .* for a record that adds"),
    ],
)
def test_a_wrong_rule_is_refused_before_the_first_noisy_sum(register, rule, match):
    register(rule)
    x, labels = torch.randn(N, 3, 4), torch.zeros(N, dtype=torch.int64)
    seen = []
    with pytest.raises(InputError, match=match):
        PrivateTraining(
            seeded(swish, dtype=torch.float32),
            [phase()],
            x,
            labels,
            noise=Noise("wrong"),
            on_update=lambda *update: seen.append(update),
        )
    assert seen == []


def test_a_network_that_passed_is_probed_again_with_another_rule(register):
    model, (x, labels) = seeded(swish), records((3, 4))
    register(SwishRule)
    NetworkGradients(model).clipped_sum(x, labels, 1.0)
    register(WrongGradient)
    with pytest.raises(InputError, match="WrongGradient"):
        NetworkGradients(model).clipped_sum(x, labels, 1.0)


def test_a_rule_is_registered_for_types_of_modules_alone():
    with pytest.raises(InputError, match="layer type of SwishRule"):
        SwishRule.register(Swish(3))


class Last(nn.Module):
    """The hidden states of the last moment and the final state, which has the records second."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 3, 2, batch_first=True), nn.Linear(6, 5)

    def forward(self, x):
        output, (hidden, _) = self.lstm(x)
        return self.head(torch.cat([output[:, -1] ** 2, hidden[-2]], 1))


class Branching(nn.Module):
    """A layer whose way depends on the record, which vmap cannot follow."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 5))

    def forward(self, x):
        ways = [int(row.sum() > 0) for row in x.detach()]
        return torch.stack([row @ self.weight[way] for row, way in zip(x, ways, strict=True)])


class Tied(nn.Module):
    """An output layer with the weights of the embedding."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(4, 5), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(F.softplus(self.embed(x) @ self.embed.weight))


class Twice(nn.Module):
    """One layer, twice, with its positions in front inside."""

    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 5)

    def forward(self, x):
        hidden = self.mix(torch.tanh(self.mix(x.transpose(0, 1)))).transpose(0, 1)
        return self.head(hidden.mean(1))


def two_names():
    """One layer that stands in two places, and one that shares its weights."""
    layer, other = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    other.weight = layer.weight
    return nn.Sequential(nn.Sequential(layer, nn.Tanh()), layer, other, nn.Linear(4, 5))


class ByWeight(nn.Module):
    """A product with a weight of its own, between layers that have rules."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(4, 6), ByWeight.Inner(), nn.Linear(6, 5)

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))

        def forward(self, x, *, scale):
            return {"product": x @ self.weight * scale, "unused": x}

    def forward(self, x):
        return self.head(self.inner(self.first(x).relu_(), scale=2.0)["product"])


# Name -> (network, a record's shape, what is passed through record by record, the warning).
FALLBACKS = {
    "recurrent": (Last, (5, 4), "lstm", r"layer lstm \(LSTM\) .*it has no rule.*numbers"),
    "branching": (lambda: nn.Sequential(Branching()), (4,), "0", r"layer 0 \(Branching\)"),
    "own product": (ByWeight, (4,), "inner", r"layer inner \(Inner\)"),
    "tied": (Tied, (4,), "", "the whole network"),
    "two names": (two_names, (4,), "", "the whole network"),
    "used twice": (Twice, (3, 4), "", "the whole network .*layer mix"),
    "parametrised": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))),
        (4,),
        "0",
        r"layer 0 \(ParametrizedLinear\)",
    ),
    "without a rule for bias_k": (
        lambda: nn.Sequential(Own(nn.MultiheadAttention(4, 2, add_bias_kv=True, batch_first=True))),
        (3, 4),
        "0.attention",
        r"layer 0.attention \(MultiheadAttention\)",
    ),
}


class Own(nn.Module):
    """Attention to itself, pooled."""

    def __init__(self, attention):
        super().__init__()
        self.attention, self.head = attention, nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


@pytest.mark.parametrize("held", [recomputed.HELD, 1, 300], ids=["at once", "one by one", "parts"])
@pytest.mark.parametrize("name", FALLBACKS)
def test_what_has_no_rule_gives_the_gradients_of_a_loop_and_says_what_it_costs(
    name, held, monkeypatch
):
    monkeypatch.setattr(recomputed, "HELD", held)
    make, shape, where, match = FALLBACKS[name]
    kernel = NetworkGradients(seeded(make))
    x, labels = records(shape)
    with pytest.warns(PerRecordWarning, match=match):
        kernel.probe(x, labels)
    assert list(kernel.recomputed) == [where]
    equals_a_loop(kernel, shape)


@pytest.mark.parametrize("held", [recomputed.HELD, 1], ids=["at once", "one by one"])
@pytest.mark.parametrize("name", FALLBACKS)
@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
def test_views_of_what_has_no_rule_are_averaged_before_the_clip(name, held, monkeypatch):
    monkeypatch.setattr(recomputed, "HELD", held)
    make, shape, *_ = FALLBACKS[name]
    equals_a_loop(NetworkGradients(seeded(make), views=2), shape, views=2)


@pytest.mark.parametrize("name", ["recurrent", "own product", "tied"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
def test_a_record_by_record_gradient_adds_at_most_the_bound_in_float32(name, scale):
    make, shape, *_ = FALLBACKS[name]
    kernel = NetworkGradients(seeded(make, dtype=torch.float32))
    x, labels = records(shape, dtype=torch.float32)
    for bound in (0.01, 1.0):
        for row in range(len(x)):
            rows = slice(row, row + 1)
            found = kernel.clipped_sum(scale * x[rows] + scale, labels[rows], bound)
            length = sum(v.double().square().sum() for v in found.gradients.values()).sqrt()
            assert length <= bound * (1 + 1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
def test_a_record_without_a_finite_gradient_counts_as_zero_without_a_rule_too(value):
    make, shape, *_ = FALLBACKS["recurrent"]
    kernel, (x, labels) = NetworkGradients(seeded(make)), records(shape)
    x[1] = value
    others = torch.arange(len(x)) != 1
    found = kernel.clipped_sum(x, labels, 0.3)
    rest = kernel.clipped_sum(x[others], labels[others], 0.3)
    assert found.skipped == 1
    assert distance(found.gradients, rest.gradients) < 1e-10


@pytest.mark.filterwarnings("ignore::dpatlas.privacy.PerRecordWarning")
def test_a_hook_or_a_forward_of_one_s_own_stays_and_is_called_once_a_pass():
    calls = []
    model = seeded(Last)
    model.lstm.register_forward_hook(lambda *given: calls.append(1))
    kernel, (x, labels) = NetworkGradients(model), records((5, 4))
    kernel.clipped_sum(x, labels, 0.3)
    calls.clear()
    kernel.clipped_sum(x, labels, 0.3)
    assert calls == [1]


def test_a_layer_whose_forward_was_replaced_is_refused_and_keeps_it():
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, 5)).double()
    own = model[1].forward
    model[1].forward = lambda x: own(x) ** 2
    x, labels = records((5, 4))
    before = model(x)
    with pytest.raises(InputError, match=r"layer 1 \(Linear\)"):
        NetworkGradients(model).clipped_sum(x, labels, 1.0)
    assert torch.equal(model(x), before)
