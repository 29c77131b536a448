"""Networks, records and surroundings made to break the engine; and odd ones that are honest."""

import contextlib
import copy
import os
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base import seeds
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

N = 6
DRAWS = torch.Generator().manual_seed(1)
X, Y = torch.randn(N, 8, generator=DRAWS), torch.arange(N) % 3
MAPS = torch.randn(N, 5, 4, generator=DRAWS)
WORDS = torch.randint(0, 10, (N, 5), generator=DRAWS)


class Net(nn.Module):
    """Parameters by shape, modules and buffers; the forward pass is a function."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            made = nn.Parameter(0.3 * torch.randn(part)) if isinstance(part, tuple) else part
            if isinstance(made, torch.Tensor) and not isinstance(made, nn.Parameter):
                self.register_buffer(name, made)
            else:
                setattr(self, name, made)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def mlp():
    return nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))


def training(model, x=X, y=Y, bound=1.0, sigma=0.0, steps=1, noise=None, lr=0.01, **options):
    phase = TrainingPhase(
        FullBatch(len(x)), noise_multiplier=sigma, max_grad_norm=bound, lr=lr, steps=steps
    )
    noise = noise or (Noise() if sigma else Noise("sums", "keyed"))
    return PrivateTraining(model, [phase], x, y, noise=noise, **options)


def stepped(run):
    """The noisy sum of a step."""
    seen = []
    run.on_update = lambda _, sums: seen.append(
        torch.cat([v.double().flatten() for v in sums.values()])
    )
    run.step()
    return seen[0].clone()


def seeded(make):
    torch.manual_seed(0)
    return make()


def moved(make, x, y=Y):
    """How far the first record moves the sum, in clip bounds."""
    model = seeded(make)
    one, other = (
        stepped(training(copy.deepcopy(model), x[start:], y[start:], isolate=True))
        for start in (0, 1)
    )
    return float((one - other).norm())


def by_autograd(model, x, y, loss):
    total = 0
    for at in range(len(x)):
        value = loss(model(x[at : at + 1].clone()), y[at : at + 1]).sum()
        found = torch.autograd.grad(value, list(model.parameters()))
        total = total + torch.cat([each.double().flatten() for each in found])
    return total


def no_grad_write(s, x):
    h = x @ s.w
    with torch.no_grad():
        h.mul_(2)
    return h.tanh() @ s.v


def hooked(s, x):
    h = x @ s.w
    h.grad_fn.register_prehook(lambda grads: (0 * grads[0],))
    return h.tanh() @ s.v


def data_set(s, x):
    h = x @ s.w
    h.data = 2 * h
    return h.tanh() @ s.v + x @ s.w[:, :3]


def weight_hook():
    model = mlp()
    model[0].weight.register_hook(torch.zeros_like)
    return model


class OfMyOwn(torch.Tensor):
    """Compares the records of a batch, whatever torch does with them."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return 5 * (result - result.mean(0)) if function is torch.Tensor.unsqueeze else result


class ArrayOfMyOwn(np.ndarray):
    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        return 5 * (found - found.mean(0)) if getattr(found, "ndim", 0) == 2 else found


def held_view():
    model = Net(lambda s, x: (x @ s.w).tanh() @ s.held[0], w=(8, 3))
    model.held = [model.w[:3]]
    return model


@torch.library.custom_op("attacks::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    """Like x in all that made-up records show."""
    return x.clone()


mix.register_fake(torch.empty_like)
mix.register_autograd(lambda _, gradient: gradient)
mix.register_vmap(lambda _, dims, x: (torch.where(x > 1e3, x - x.mean(dims[0]), x), dims[0]))

TWO = {"w": (8, 4), "v": (4, 3)}
REFUSED = {
    "no_grad write": (lambda: Net(no_grad_write, **TWO), "that autograd does not see"),
    "write through data": (
        lambda: Net(lambda s, x: ((h := x @ s.w).data.mul_(2), h @ s.v)[1], **TWO),
        "that autograd does not see",
    ),
    "write through detach": (
        lambda: Net(lambda s, x: ((h := x @ s.w).detach().mul_(2), h @ s.v)[1], **TWO),
        "that autograd does not see",
    ),
    "data set": (lambda: Net(data_set, **TWO), "given other numbers"),
    "grad_fn": (lambda: Net(hooked, **TWO), "grad_fn, which a hook could change"),
    "hook on a weight": (weight_hook, "a hook on a gradient"),
    "view of a parameter": (held_view, "a view of w, made before"),
    "custom operator": (
        lambda: Net(lambda s, x: torch.ops.attacks.mix(x @ s.w) @ s.v, **TWO),
        "code runs at each step and sees the batch",
    ),
    "seed": (
        lambda: Net(lambda s, x: (torch.manual_seed(1), x @ s.w @ s.v)[1], **TWO),
        "torch.manual_seed",
    ),
    "generator": (
        lambda: Net(lambda s, x: x @ s.w @ s.v * torch.rand(3, generator=torch.Generator()), **TWO),
        "Generator in the forward",
    ),
    "parameter of a class": (
        lambda: Net(lambda s, x: x @ s.w, w=nn.Parameter(torch.zeros(8, 3).as_subclass(OfMyOwn))),
        "whose code would run at each step",
    ),
    "cond": (
        lambda: Net(
            lambda s, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) @ s.w @ s.v, **TWO
        ),
        "torch.cond",
    ),
    "complex parameter": (
        lambda: Net(lambda s, x: (x * s.w).real, w=nn.Parameter(torch.zeros(8) + 0j)),
        "a complex parameter",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_get_round_the_graph_is_refused_in_a_line(name):
    make, found = REFUSED[name]
    with pytest.raises(InputError, match=found) as error:
        training(seeded(make), isolate=True)
    assert "\n" not in str(error.value)


def reused(s, x):
    return (s.l(x) - s.l(x).detach().mean(1, keepdim=True)).tanh()


def inner(s, x):
    return torch.func.grad(lambda row: (row @ s.w).tanh().sum())(x) @ s.v + x @ s.w[:, :3]


def held_in_a_list():
    model = Net(lambda s, x: ((x @ s.w).tanh() @ s.held[0].t())[:, :3], w=(8, 8))
    model.held = [model.w]
    return model


def held_module():
    model = Net(lambda s, x: s.l(x) + s.others[0](x), l=nn.Linear(8, 3))
    model.others = [nn.Linear(8, 3)]
    return model


def learned_mask(s, x):
    return s.h(s.m(x, x, x, attn_mask=s.mask, need_weights=False)[0].mean(1))


def bf16(make):
    return lambda: make().bfloat16()


chunks = lambda: Net(lambda s, x: sum((x @ w).tanh() for w in s.w.chunk(2, 1)), w=(8, 6))  # noqa: E731
twice = lambda: Net(lambda s, x: (x @ s.w).tanh() @ s.w.t() @ s.w[:, :3], w=(8, 8))  # noqa: E731
normed = lambda: Net(lambda s, x: F.linear(x, F.normalize(s.w)), w=(3, 8))  # noqa: E731
HONEST = {
    "layer also behind detach": (lambda: Net(reused, l=nn.Linear(8, 3)), X),
    "layer also under no_grad": (
        lambda: Net(lambda s, x: s.l(x) - torch.no_grad()(s.l)(2 * x), l=nn.Linear(8, 3)),
        X,
    ),
    "gradient inside": (lambda: Net(inner, w=(8, 4), v=(8, 3)), X),
    "gradients inside": (
        lambda: Net(
            lambda s, x: (
                torch.func.vmap(torch.func.grad(lambda row: (row @ s.w).tanh().sum()))(x) @ s.v
                + x @ s.w[:, :3]
            ),
            w=(8, 4),
            v=(8, 3),
        ),
        X,
    ),
    "parameter held in a list": (held_in_a_list, X),
    "module held in a list": (held_module, X),
    "logarithm of data": (lambda: Net(lambda s, x: s.m(x.log()), m=mlp()), X.abs() + 0.5),
    "root of data": (lambda: Net(lambda s, x: s.m(x.sqrt()), m=mlp()), X.abs() + 0.5),
    "int32 words": (
        lambda: nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(20, 3)),
        WORDS.int(),
    ),
    "bias by position": (
        lambda: Net(lambda s, x: torch.addmm(s.p, x[0], s.w).mean(0)[None], p=(5, 3), w=(4, 3)),
        MAPS,
    ),
    "learned attention mask": (
        lambda: Net(
            learned_mask,
            m=nn.MultiheadAttention(4, 2, batch_first=True),
            mask=(5, 5),
            h=nn.Linear(4, 3),
        ),
        MAPS,
    ),
    "writes into its input": (lambda: Net(lambda s, x: (x.mul_(2), s.m(x))[1], m=mlp()), X),
    "no number in a parameter": (
        lambda: Net(
            lambda s, x: torch.cat([x, s.z.expand(len(x), 0)], 1) @ s.v, z=(1, 0), v=(8, 3)
        ),
        X,
    ),
    "complex products": (
        lambda: Net(
            lambda s, x: torch.view_as_real(x.cfloat() @ (s.w.cfloat() * 1j)).flatten(1) @ s.v,
            w=(8, 4),
            v=(8, 3),
        ),
        X,
    ),
    "float64": (lambda: mlp().double(), X.double()),
    "float64 chunks": (lambda: chunks().double(), X.double()),
    "bfloat16 chunks": (bf16(chunks), X.bfloat16()),
    "bfloat16 twice": (bf16(twice), X.bfloat16()),
    "bfloat16 normed": (bf16(normed), X.bfloat16()),
    "float16": (lambda: nn.Linear(8, 3).half(), X.half()),
}


@pytest.mark.parametrize("name", HONEST)
def test_odd_but_honest_networks_have_the_gradients_of_autograd(name):
    make, x = HONEST[name]
    model = seeded(make)
    run = training(copy.deepcopy(model), x, bound=1e4, isolate=name == "bias by position")
    found, expected = stepped(run), by_autograd(model, x, Y, cross_entropy)
    low = x.is_floating_point() and x.itemsize < 4
    assert (found - expected).norm() <= (3e-2 if low else 1e-5) * expected.norm()
    assert moved(make, x) <= 1 + 1e-5


@pytest.mark.parametrize("kind", [OfMyOwn, ArrayOfMyOwn])
def test_records_of_a_class_of_ones_own_run_none_of_its_code(kind):
    x = X.as_subclass(OfMyOwn) if kind is OfMyOwn else X.numpy().view(ArrayOfMyOwn)
    assert torch.equal(stepped(training(seeded(mlp), x)), stepped(training(seeded(mlp))))


@contextlib.contextmanager
def default_float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "surroundings",
    [
        lambda: torch.autocast("cpu", torch.bfloat16),
        torch.inference_mode,
        torch.no_grad,
        torch.autograd.detect_anomaly,
        default_float64,
    ],
)
def test_what_surrounds_a_step_or_the_making_changes_no_bit(surroundings, monkeypatch):
    def with_dropout():
        return nn.Sequential(nn.Linear(8, 5), nn.Dropout(0.5), nn.Linear(5, 3))

    def run(making, stepping):
        monkeypatch.setattr(seeds, "_claims", {})
        model = seeded(with_dropout)
        with making():
            made = training(model, sigma=1.0, noise=Noise("around", "keyed"), lr=0.1)
        with stepping():
            return stepped(made)

    plain = run(contextlib.nullcontext, contextlib.nullcontext)
    assert torch.equal(plain, run(contextlib.nullcontext, surroundings))
    if surroundings not in (default_float64, torch.inference_mode):
        assert torch.equal(plain, run(surroundings, contextlib.nullcontext))


def test_global_hooks_of_modules_see_no_record_of_a_step():
    run, seen = training(seeded(mlp)), []
    hook = register_module_forward_hook(lambda *call: seen.append(call))
    try:
        run.step()
    finally:
        hook.remove()
    assert not seen


def test_an_index_out_of_range_is_told_in_a_line():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(InputError, match="records: found an index out of range"):
        training(model, WORDS + 4).step()


def test_a_fork_after_the_first_step_draws_no_noise():
    run = training(seeded(mlp), sigma=1.0, steps=3)
    run.step()
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            run.step()
        except InputError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert b"from process" in os.read(read, 1000)
    os.close(read)
    run.step()


def test_a_secret_does_not_change_once_noise_was_drawn():
    states = [training(seeded(mlp), sigma=1.0, repetition=r).state() for r in (0, 1)]
    noise = Noise()
    run, other = (training(seeded(mlp), sigma=1.0, noise=noise, repetition=r) for r in (0, 1))
    run.step()
    for each, state in zip((run, other), states, strict=True):
        with pytest.raises(InputError, match=r"(other noise|another secret), after"):
            each.restore(*state)
    assert run.steps_released == 1


def test_a_state_holds_the_buffers_that_the_network_moves():
    def growing(s, x):
        s.c *= 1.5
        return s.l(x) * s.c

    def make(noise=None):
        model = seeded(lambda: Net(growing, l=nn.Linear(8, 3), c=torch.ones(())))
        return training(model, sigma=1.0, steps=3, lr=0.1, noise=noise, isolate=True)

    run = make()
    run.step()
    state, expected = run.state(), stepped(run)
    again = make()
    again.restore(*state)
    assert torch.equal(stepped(again), expected)


def test_a_bfloat16_training_is_resumed():
    run = training(
        seeded(chunks).bfloat16(), X.bfloat16(), sigma=1.0, steps=2, lr=0.1, ema_decay=0.9
    )
    run.step()
    state, expected = run.state(), stepped(run)
    again = training(
        seeded(chunks).bfloat16(), X.bfloat16(), sigma=1.0, steps=2, lr=0.1, ema_decay=0.9
    )
    again.restore(*state)
    assert torch.equal(stepped(again), expected)


def test_noise_is_not_added_to_another_sum_that_differs_in_an_early_parameter():
    def parts(s, x):
        return s.a(x[:, :4]).square() + s.b(x[:, 4:]).square()

    x = X.clone()
    model = seeded(lambda: Net(parts, a=nn.Linear(4, 1), b=nn.Linear(4, 1)))
    run = training(model, x, None, bound=1e3, sigma=1e-3, loss=lambda output, _: output.mean(1))
    state = run.state()
    run.step()
    x.numpy()[:, :4] += 1
    run.restore(*state)
    with pytest.raises(InputError, match="added to another sum"):
        run.step()


def copied(model):
    other = mlp()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize(
    "copy_of",
    [copy.deepcopy, copied, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
)
@pytest.mark.parametrize("still_there", [True, False])
def test_copies_of_trained_weights_are_known(copy_of, still_there):
    model = seeded(mlp)
    first = training(model, sigma=1.0, lr=0.1)
    first.run()
    other = copy_of(model)
    if not still_there:
        del first, model
    run = training(other, sigma=1.0, lr=0.1)
    run.run()
    assert any("an earlier training" in each for each in run.guarantee().warnings)
    fresh = training(mlp(), sigma=1.0, lr=0.1)
    fresh.run()
    assert not any("an earlier training" in each for each in fresh.guarantee().warnings)
