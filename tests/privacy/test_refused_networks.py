"""What would get round the graph of one record is refused, in a line that names it."""

import collections
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_networks import CLASSES, TIME, WIDTH, WORDS, Case, Net, before, behind, made, mlp
from small_training import phase
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.training import PrivateTraining

ROWS = 4
DRAWS = torch.Generator().manual_seed(5)
NUMBERS = torch.randn(ROWS, WIDTH, generator=DRAWS)
IDS = torch.randint(0, WORDS, (ROWS, TIME), generator=DRAWS)
LABELS = torch.arange(ROWS) % CLASSES


def of(make, x=NUMBERS, loss=cross_entropy):
    return Case(make, x, LABELS, loss)


def one_layer():
    return nn.Linear(WIDTH, CLASSES)


def of_two(function):
    """A function of the outputs of a linear layer and a parameter."""
    return lambda: Net(lambda s, x: function(s.l(x), s.w), l=nn.Linear(WIDTH, CLASSES), w=(3,))


class Backwards(torch.autograd.Function):
    """The values as they are, the gradients less their mean over the batch."""

    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, delta):
        return delta - delta.mean(0)


class Together(Backwards):
    """With a rule of its own for vmap, which sees all records."""

    @staticmethod
    def forward(h):
        return h.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, h):
        return h - h.mean(0), 0


@torch.library.custom_op("dpatlas_tests::mixed", mutates_args=())
def mixed(h: Tensor) -> Tensor:
    """Like h in all that made-up records show."""
    return h.clone()


mixed.register_fake(torch.empty_like)
mixed.register_autograd(lambda ctx, delta: delta)
mixed.register_vmap(lambda info, dims, h: (torch.where(h > 1e3, h - h.mean(0), h), dims[0]))


class Slots:
    """An object without a dict, that keeps what it gets."""

    __slots__ = ("kept",)

    def append(self, value):
        self.kept = value


class Sum:
    """A tensor that changes behind torch's back."""

    def __init__(self):
        self.total = torch.zeros(())

    def append(self, value):
        self.total.data.add_(value)

    def __call__(self, output, labels):
        self.append(output.detach().sum())
        return cross_entropy(output, labels)


class Keeps:
    """A loss that keeps what it sees, as its attribute."""

    kept = None

    def __call__(self, output, labels):
        self.kept = output.detach().mean(0)
        return cross_entropy(output, labels)


class Remembers(nn.Module):
    """A loss, or a layer, with a buffer that follows what it sees."""

    def __init__(self, change):
        super().__init__()
        self.register_buffer("centre", torch.zeros(()))
        self.change = change

    def forward(self, values, labels=None):
        self.change(self, values.detach().mean())
        return values - self.centre if labels is None else cross_entropy(values, labels)


MOVES = {
    "moved": lambda self, value: self.centre.lerp_(value, 0.1),
    "copied": lambda self, value: self.centre.copy_(value),
    "set": lambda self, value: setattr(self, "centre", value),
    "through .data": lambda self, value: self.centre.data.add_(value),
}
GLOBAL = collections.deque(maxlen=3)
GLOBAL_SUM = torch.zeros(())


def to_global(output, labels):
    GLOBAL.append(output.detach().sum())
    return cross_entropy(output, labels)


def global_sum(output, labels):
    GLOBAL_SUM.add_(output.detach().sum())
    return cross_entropy(output, labels)


def accumulated_hook():
    model = mlp()
    model[0].weight.register_post_accumulate_grad_hook(lambda value: None)
    return model


def remembering(kind):
    """A network that appends something of its input to what `kind` makes."""

    def make():
        model = Net(lambda s, x: (s.seen.append(x.detach().sum()), s.inner(x))[1], inner=mlp())
        model.seen = kind()
        return model

    return make


def reads(how):
    """A network that has a value of a record in Python."""
    return before(lambda x: x * (1 if how(x.detach().sum()) else 2))


def hooked():
    model, memory = mlp(), []
    model[0].register_forward_hook(lambda layer, given, output: memory.append(output.detach()))
    return model


def to_parameter(self, x):
    self.centre.data.add_(x.detach().mean(0))
    return self.inner(x)


def layers(*parts):
    return lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)), *parts, nn.Flatten(), nn.Linear(WIDTH, CLASSES)
    )


def unused():
    model = nn.Sequential(nn.Linear(WIDTH, CLASSES))
    model.spare = nn.Linear(2, 2)
    model.forward = lambda x: model[0](x)
    return model


def written_under_no_grad(h, w):
    with torch.no_grad():
        h.mul_(2)
    return h.tanh() * w


def with_grad_fn(h, w):
    h.grad_fn.register_prehook(lambda grads: (0 * grads[0],))
    return h.tanh() * w


def given_other_numbers(h, w):
    h.data = 2 * h
    return h.tanh() * w


def weight_hook():
    model = mlp()
    model[0].weight.register_hook(torch.zeros_like)
    return model


class OfMyOwn(torch.Tensor):
    pass


def of_a_class():
    return Net(lambda s, x: x @ s.w, w=nn.Parameter(torch.zeros(8, 3).as_subclass(OfMyOwn)))


def held_view():
    model = Net(lambda s, x: (x @ s.w).tanh() @ s.held[0], w=(8, 3))
    model.held = [model.w[:3]]
    return model


def packed(self, x):
    lengths = torch.full((len(x),), 2)
    rows = nn.utils.rnn.pack_padded_sequence(x.view(-1, 2, 4), lengths, batch_first=True)
    return self.head(self.layers(rows)[1][0][-1])


def alignments(output, labels):
    rows = output.view(1, 1, -1).expand(4, 1, -1).log_softmax(2)
    return F.ctc_loss(rows, labels[:, None], (4,), (1,))


READ, KEPT = "read into Python.*torch.where in place of a branch", "a tensor of a record is kept in"
NOWHERE = "into a tensor that is no part of the network"
BEHIND = "a write that autograd does not see"
RANDOM = "random numbers of Python"
# Refused whatever one says, by words that tell what, where, and what to write instead.
REFUSED = {
    "a backward of its own": (of(behind(lambda h: Backwards.apply(h))), "Backwards, .* of its own"),
    "a rule of its own for vmap": (of(behind(Together.apply)), "a backward of its own"),
    "an operator of one's own": (of(behind(lambda h: mixed(h))), "mixed.*sees the batch"),
    "autograd.grad": (
        of(of_two(lambda h, w: torch.autograd.grad((h * w).sum(), h, create_graph=True)[0])),
        r"torch\.func\.grad",
    ),
    "reentrant": (
        of(of_two(lambda h, w: checkpoint(torch.sin, h * w, use_reentrant=True))),
        r"checkpoint\(use_reentrant=False\)",
    ),
    "grad_fn": (of(of_two(with_grad_fn)), "grad_fn, which a hook could change"),
    "hook on a weight": (of(weight_hook), "a hook on a gradient"),
    "hook behind a weight's gradient": (of(accumulated_hook), "a hook on a gradient"),
    # Values in Python.
    "item": (of(reads(lambda s: s.item() > 0)), READ),
    "bool": (of(reads(lambda s: s > 0)), READ),
    "tolist": (of(reads(lambda s: s.tolist())), "numbers of a tensor read"),
    "numpy": (of(reads(lambda s: s.numpy().tobytes())), r"numbers of a tensor read by \.numpy\(\)"),
    "cond": (
        of(of_two(lambda h, w: torch.cond(h.sum() > 0, torch.sin, torch.cos, (h,)) * w)),
        r"torch\.cond",
    ),
    "as many as the values say": (
        of(before(lambda x: x[x != -1].mean() + x)),
        r"as large as a record's values say; .*torch\.where\(mask, x, 0\)",
    ),
    "one_hot": (
        of(of_two(lambda h, w: h * F.one_hot(h.argmax(1)).sum() * w)),
        r"F\.one_hot\(x, num_classes\)",
    ),
    "a packed sequence": (
        of(lambda: Net(packed, layers=nn.LSTM(4, 4, batch_first=True), head=nn.Linear(4, 3))),
        r"packed sequence.*mask = torch\.arange\(x\.shape\[1\], device=x\.device\) < lengths",
    ),
    "alignments": (of(mlp, loss=alignments), "ctc_loss"),
    # Random numbers.
    "python's random numbers": (of(before(lambda x: x * random.random())), RANDOM),
    "numpy's random numbers": (
        of(before(lambda x: x * np.random.rand())),  # noqa: NPY002
        RANDOM,
    ),
    "seed": (of(behind(lambda h: (torch.manual_seed(1), h)[1])), r"torch\.manual_seed"),
    "generator": (
        of(behind(lambda h: h * torch.rand(7, generator=torch.Generator()))),
        "Generator in the forward",
    ),
    "multinomial": (
        of(of_two(lambda h, w: h * w + torch.multinomial(h.softmax(1), 1))),
        "random numbers without a rule",
    ),
    # What is kept or written.
    "list": (of(remembering(list)), rf"{KEPT} .*seen"),
    "deque": (of(remembering(collections.deque)), KEPT),
    "slots": (of(remembering(Slots)), KEPT),
    "tensor of an object": (of(remembering(Sum)), BEHIND),
    "hook": (of(hooked), KEPT),
    "parameter": (
        of(
            lambda: Net(
                to_parameter, inner=mlp(), centre=nn.Parameter(torch.zeros(8), requires_grad=False)
            )
        ),
        BEHIND,
    ),
    **{
        f"buffer {how}": (
            of(layers(Remembers(move))),
            f"layer 1 .*{BEHIND if 'data' in how else 'a buffer that a record moves'}",
        )
        for how, move in MOVES.items()
    },
    "loss with a memory": (of(mlp, loss=Keeps()), KEPT),
    "loss with a buffer": (of(mlp, loss=Remembers(MOVES["moved"])), NOWHERE),
    "loss with a sum": (of(mlp, loss=Sum()), BEHIND),
    "loss with a global": (of(mlp, loss=to_global), KEPT),
    "loss with a global tensor": (of(mlp, loss=global_sum), NOWHERE),
    "write under no_grad": (of(of_two(written_under_no_grad)), BEHIND),
    "write through data": (of(of_two(lambda h, w: (h.data.mul_(2), h * w)[1])), BEHIND),
    "write through detach": (of(of_two(lambda h, w: (h.detach().mul_(2), h * w)[1])), BEHIND),
    "data set": (of(of_two(given_other_numbers)), "given other numbers"),
    "view of a parameter": (of(held_view), "a view of w, made before"),
    # Shapes, losses and layers.
    "loss of several numbers": (
        of(mlp, loss=lambda o, y: o.square()),
        r"shape \(1, 3\) for one record",
    ),
    "several records wanted": (
        of(behind(lambda h: h.view(2, -1, 7).flatten(0, 1))),
        "error as a record's loss is traced",
    ),
    "without gradients": (
        of(lambda: Net(lambda s, x: s.l(torch.no_grad()(s.k)(x)), k=mlp(), l=nn.Linear(3, 3))),
        r"k\.0\.weight.*no gradient",
    ),
    "a layer that nothing uses": (of(unused), r"spare.*no gradient of the loss reaches it"),
    "batch norm": (of(layers(nn.BatchNorm1d(2))), r"layer 1 \(BatchNorm1d\).*to_group_norm"),
    "batch norm without statistics": (
        of(layers(nn.BatchNorm1d(2, track_running_stats=False).eval())),
        "layer 1",
    ),
    "functional batch norm": (
        of(behind(lambda h: F.batch_norm(h, None, None, training=True))),
        "traced",
    ),
    "without its shape": (
        of(layers(nn.LazyConv1d(2, 1))),
        r"layer 1 \(LazyConv1d\).*without a shape",
    ),
    "TorchScript": (
        of(lambda: nn.Sequential(torch.jit.script(nn.Linear(WIDTH, 4)), nn.Linear(4, CLASSES))),
        "layer 0 .*TorchScript",
    ),
    "words counted in the batch": (
        of(
            lambda: nn.Sequential(nn.Embedding(WORDS, 1, scale_grad_by_freq=True), nn.Flatten()),
            IDS,
        ),
        "scale_grad_by_freq",
    ),
    "parameter of a class": (
        of(
            lambda: Net(
                lambda s, x: x @ s.w, w=nn.Parameter(torch.zeros(8, 3).as_subclass(OfMyOwn))
            )
        ),
        "whose code would run at each step",
    ),
    "complex parameter": (
        of(lambda: Net(lambda s, x: (x * s.w).real, w=nn.Parameter(torch.zeros(8) + 0j))),
        "a complex parameter",
    ),
    "heaviside": (of(of_two(torch.heaviside)), "heaviside"),
    "another order in memory": (
        of(
            behind(
                lambda h: h.view(-1, 7, 1, 1).clone(memory_format=torch.channels_last).flatten(1)
            )
        ),
        "clone.*other operations",
    ),
    "float64 records": (of(mlp, NUMBERS.double()), "product of torch.float32 and torch.float64"),
    "float64 records of one layer": (of(one_layer, NUMBERS.double()), "float32 and torch.float64"),
    "records of another width": (of(one_layer, NUMBERS[:, 1:]), "reduction dim"),
    "records in a dict": (of(one_layer, {"of": NUMBERS}), "unexpected keyword"),
    "whole loss": (of(mlp, loss=lambda o, y: (o.argmax(1) == y).long()), "torch.int64 of shape"),
    "complex loss": (of(mlp, loss=lambda o, y: o.sum() + 1j), "torch.complex64 of shape"),
}


def training(case, model=None):
    phases, options = [phase(FullBatch(ROWS))], {"loss": case.loss, "isolate": True}
    PrivateTraining(model or made(case), phases, case.x, case.targets, noise=Noise(), **options)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_isolation_makes_good_is_refused_by_name(name, capfd):
    case, match = REFUSED[name]
    with pytest.raises(InputError, match=match) as error:
        training(case)
    assert "\n" not in str(error.value) and not capfd.readouterr().err


def test_a_refusal_leaves_the_network_as_it_was():
    model = nn.Sequential(Remembers(MOVES["set"]), nn.Linear(WIDTH, CLASSES))
    known = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with pytest.raises(InputError):
        training(of(None), model)
    assert all(torch.equal(known[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    keeping = Net(lambda s, x: (setattr(s, "kept", x.detach()), s.inner(x))[1], inner=mlp())
    with pytest.raises(InputError, match="a tensor of a record is kept in kept"):
        training(of(None), keeping)
    assert not hasattr(keeping, "kept")
