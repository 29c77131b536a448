"""The audit's larger networks: every way to a clipped gradient is attacked, by the exact score."""

import numpy as np
import pytest
import torch
from small_audits import audited
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import dpatlas.privacy.per_record
import dpatlas.privacy.training
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.vit import ClassToken, Offset
from dpatlas.privacy.convolution import Convolution, Shape
from dpatlas.privacy.factors import Factored
from dpatlas.privacy.matrix import Matrix
from dpatlas.privacy.noise import LARGE
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas_workflow.checks.audit.jobs import mechanisms as audit_mechanisms
from dpatlas_workflow.checks.audit.jobs.kernels import ATTACKED_NETWORKS, CANARY, OFFSET
from dpatlas_workflow.checks.audit.jobs.mechanisms import MECHANISMS

pytestmark = pytest.mark.usefixtures("one_thread_without_gradients")

OFFSETS = [name for name, attacked in ATTACKED_NETWORKS.items() if attacked.offset]


def gradients_of(attacked):
    """(module, its factored gradients) of every parameter, in every phase."""
    (x, labels), _ = attacked.neighbours()
    model = attacked.network()
    views = 1
    if attacked.augmentation:
        views = attacked.augmentation.views
        moves = attacked.augmentation.draw(np.random.default_rng(0), len(x))
        x, labels = attacked.augmentation.apply(x, moves), labels.repeat_interleave(views)
    for phase in attacked.phases:
        trained = [
            name
            for name, _ in model.named_parameters()
            if any(dpatlas.privacy.training.belongs(name, prefix) for prefix in phase.trainable)
        ]
        kernel = NetworkGradients(model, views=views, trained=trained)
        record = kernel.trace(x, labels)
        data = [x.unsqueeze(1), labels.unsqueeze(1)]
        found = kernel._graph.gradients(record.state(), data, len(x) // views)
        for name, gradient in found.items():
            module = model.get_submodule(name.rpartition(".")[0])
            yield from ((module, part) for _, part in gradient.parts)


def way(part: Factored) -> str:
    """How the norms of a weight's gradients come about."""
    if part.stored is not None:
        return "gradients"
    return "one position" if part.positions() == 1 else "gram"


def test_rows_reach_every_kind_of_layer_and_every_way_to_a_norm():
    found = [each for attacked in ATTACKED_NETWORKS.values() for each in gradients_of(attacked)]
    layers = [layer for layer, _ in found]
    assert set(map(type, layers)) >= {
        *(nn.Linear, nn.Conv2d, nn.GroupNorm, nn.LayerNorm, Offset, ClassToken)
    }
    weights = [each for each in found if isinstance(each[1], Matrix | Convolution)]
    assert {(type(part), way(part)) for _, part in weights} >= {
        (Matrix, "one position"),
        (Matrix, "gram"),
        (Matrix, "gradients"),
        (Convolution, "gram"),
        (Convolution, "gradients"),
    }
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    assert any(layer.groups > 1 for layer in convolutions)
    assert any(layer.stride != (1, 1) for layer in convolutions)
    assert any(layer.dilation != (1, 1) for layer in convolutions)


@pytest.mark.parametrize(
    ("name", "expected"), [("convolution-large", {1}), ("convolution-views", {6})]
)
def test_gradients_of_convolutions_take_one_call_or_one_a_record(name, expected, monkeypatch):
    calls = set()
    honest = Shape.gradients

    def watch(self, delta, x, weight, of, records=1):
        # Not those of the check when a graph is built.
        if of == "weight" and not isinstance(delta, FakeTensor):
            calls.add(records)
        return honest(self, delta, x, weight, of, records)

    monkeypatch.setattr(dpatlas.privacy.per_record, "_graphs", {})
    monkeypatch.setattr(dpatlas.privacy.per_record, "check_rules", lambda *_: None)
    monkeypatch.setattr(Shape, "gradients", watch)
    list(gradients_of(ATTACKED_NETWORKS[name]))
    assert calls == expected


def test_phases_have_views_chunks_two_clippings_adam_and_large_noise():
    phases = [phase for attacked in ATTACKED_NETWORKS.values() for phase in attacked.phases]
    assert {phase.clipping for phase in phases} == {"flat", "per-layer"}
    assert "adam" in {phase.optimizer for phase in phases}
    views = ATTACKED_NETWORKS["convolution-views"]
    assert views.augmentation.views > 1
    assert views.phases[0].max_physical_batch < views.phases[0].sampler.batch
    sizes = [
        value.numel() for value in ATTACKED_NETWORKS["convolution-large"].network().parameters()
    ]
    assert max(sizes) >= LARGE


@pytest.mark.parametrize("name", ATTACKED_NETWORKS)
def test_neighbours_differ_in_the_label_of_the_first_record(name):
    (x, labels), (other, other_labels) = ATTACKED_NETWORKS[name].neighbours()
    assert torch.equal(x, other)
    assert (labels != other_labels).nonzero().flatten().tolist() == [CANARY]


@pytest.mark.parametrize("name", OFFSETS)
def test_the_canary_s_offset_moves_no_output(name):
    attacked = ATTACKED_NETWORKS[name]
    (x, _), _ = attacked.neighbours()
    network = attacked.network()
    near = network(x[:1])
    assert x[CANARY].mean() == pytest.approx(OFFSET, rel=1e-3)
    assert not torch.allclose(near, network(x[1:2]), atol=1e-3)
    exact = network.double()
    x = x[:1].double()
    torch.testing.assert_close(exact(x), exact(x - OFFSET), rtol=0, atol=1e-6)
    assert exact(x).abs().max() < 20


@pytest.fixture
def steps(monkeypatch):
    """(t, share) of every scored step."""
    scored = []
    honest = audit_mechanisms.log_likelihood_ratio

    def keep(t, share, *rest):
        scored.append((t, share))
        return honest(t, share, *rest)

    monkeypatch.setattr(audit_mechanisms, "log_likelihood_ratio", keep)
    return scored


@pytest.mark.parametrize("name", ATTACKED_NETWORKS)
def test_without_noise_the_attacker_knows_the_sum_and_neighbours_are_a_sensitivity_apart(
    name, monkeypatch, steps
):
    """Of offset records in the phase that trains the head: its gradient is no difference."""
    monkeypatch.setattr(dpatlas.privacy.noise, "add_noise", lambda *given, **named: None)
    MECHANISMS[name].scores(2, Noise(f"silent {name}"), lambda: None)
    checked = steps[1::2] if name in OFFSETS else steps
    half = len(checked) // 2
    assert half
    for sign, of_neighbour in ((1, checked[:half]), (-1, checked[half:])):
        for t, share in of_neighbour:
            assert share == pytest.approx(1, rel=1e-4)
            assert t == pytest.approx(sign * share, abs=2e-3)


@pytest.mark.parametrize("name", OFFSETS)
def test_an_offset_record_contributes_no_more_than_the_clip_bound(name, steps):
    MECHANISMS[name].scores(1, Noise(f"offset {name}"), lambda: None)
    assert all(share <= 1 + 1e-4 for _, share in steps)


@pytest.mark.parametrize("name", OFFSETS)
def test_a_record_that_contributes_more_only_where_it_is_offset_is_caught(name, monkeypatch):
    """A norm that reads too small in one layer, as a rounded Gram form does."""
    kind = Matrix if "linear" in name else Convolution
    honest = kind.norms2

    def small(self, *arguments):
        norms2 = honest(self, *arguments)
        return norms2 if way(self) == "one position" else torch.zeros_like(norms2)

    # Graphs are checked once in a process.
    monkeypatch.setattr(dpatlas.privacy.per_record, "_graphs", {})
    monkeypatch.setattr(kind, "norms2", small)
    with pytest.raises(InputError, match="a gradient by rules that differs"):
        list(gradients_of(ATTACKED_NETWORKS[name]))
    monkeypatch.setattr(dpatlas.privacy.per_record, "check_rules", lambda *_: None)
    assert audited(name, runs=100)["contradicted"]


def test_twice_the_bound_is_scored_as_what_it_is_and_caught(monkeypatch, steps):
    """The attack takes the contribution from the engine, and the guarantee does not."""
    honest = dpatlas.privacy.per_record.clip_factors

    def twice(norms2, bound):
        return 2 * honest(norms2, bound)

    monkeypatch.setattr(dpatlas.privacy.per_record, "clip_factors", twice)
    assert audited("convolution-large", runs=300)["contradicted"]
    assert all(share == pytest.approx(2, rel=1e-4) for _, share in steps)
