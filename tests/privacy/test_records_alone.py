"""No record meets another: a network or loss that lets them is refused, or trains on each alone."""

import collections
import itertools
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference_gradients import distance
from small_training import phase, sums_of
from torch import Tensor, nn

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.training import PrivateTraining

ROWS, WIDTH, TIME, WORDS, CLASSES = 9, 8, 6, 20, 3
DRAWS = torch.Generator().manual_seed(5)
BOUND = 0.05


def whole(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, (ROWS, *shape), generator=DRAWS)


NUMBERS, IDS, LABELS = torch.randn(ROWS, WIDTH, generator=DRAWS), whole(WORDS, TIME), whole(CLASSES)
# One record is far from the others, which see it if they can.
NUMBERS[0] *= 100
MISSING = torch.where(torch.rand(ROWS, WIDTH, generator=DRAWS) < 0.3, torch.nan, NUMBERS)
MISSING[0, 0] = 1e3
CODED = MISSING.nan_to_num(-999)


class Case(NamedTuple):
    """A network, its records and targets, and its loss."""

    make: object
    x: object = NUMBERS
    targets: Tensor = LABELS
    loss: object = cross_entropy


class Made(nn.Module):
    """A network of two linear layers; `act(self, x)` makes what the last one gets."""

    def __init__(self, act=lambda self, x: self.first(x), **held):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 7), nn.Linear(7, CLASSES)
        self.act = act
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.last(self.act(self, x).tanh())


def before(act):
    """The network whose records go through `act`."""
    return lambda: Made(lambda self, x: self.first(act(x)))


def behind(act):
    """The network whose hidden values go through `act`."""
    return lambda: Made(lambda self, x: act(self.first(x)))


def holding(act, **makers):
    """The network that holds what each maker makes, for `act(self, x)`."""
    return lambda: Made(act, **{name: make() for name, make in makers.items()})


class Mixing(nn.Module):
    """The values less their mean over the batch, as a module."""

    def forward(self, values):
        return values - values.mean(0)


class Experts(nn.Module):
    """Experts that each take a limited number of records of a batch, the first ones."""

    def __init__(self):
        super().__init__()
        self.gate, self.head = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, CLASSES)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        chosen = F.one_hot(shares.argmax(1), 4)
        place = (chosen.cumsum(0) * chosen).sum(1, keepdim=True)
        shares = shares * chosen * (place <= 1)
        return self.head(sum(shares[:, [k]] * each(x) for k, each in enumerate(self.experts)))


def contrastive(output, labels):
    unit = F.normalize(output, dim=1)
    losses = F.cross_entropy(unit @ unit.T / 0.1, torch.arange(len(output)), reduction="none")
    return losses + output.square().mean(1)


def cooled(output, labels):
    return cross_entropy(output / output.detach().abs().max(), labels)


def of_the_mean_number(output, targets):
    there = ~targets.isnan()
    errors = (
        there * (output - targets.nan_to_num()[:, :CLASSES].mean(1, True)).square()[:, :1]
    ).sum(1)
    return errors / there.float().sum(1).mean()


def filled(output, targets):
    """Targets with -1 for missing, filled by the batch's mean."""
    there = (targets >= 0).float()
    mean = (targets * there).sum() / there.sum().clamp_min(1)
    return (output[:, 0] - torch.where(targets >= 0, targets, mean)).square()


def largest_losses(output, labels):
    losses = cross_entropy(output, labels)
    return losses * (losses >= losses.topk(min(4, len(losses)))[0][-1])


def imputed(code):
    def act(x):
        there = (x != code).float()
        mean = (x * there).sum(0) / there.sum(0).clamp_min(1)
        return torch.where(x == code, mean, x)

    return act


def by_column(x):
    return torch.where(x.isnan(), x.nanmean(0, keepdim=True), x)


YEARS = 1900 + whole(100, WIDTH).float()
SCORES = torch.where(whole(3) == 0, -1.0, whole(5).float())
# Told before training, and with isolate=True trained on each record alone.
MEETING = {
    "less the first": Case(before(lambda x: x - x[:1])),
    "running sum": Case(before(lambda x: x.cumsum(0))),
    "softmax over records": Case(behind(lambda h: h.softmax(0))),
    "only forwards": Case(behind(lambda h: h + h.roll(1, 0).detach())),
    "by size of the batch": Case(behind(lambda h: h / len(h))),
    "a module": Case(lambda: nn.Sequential(nn.Linear(WIDTH, 5), Mixing(), nn.Linear(5, CLASSES))),
    "frozen layer that mixes": Case(lambda: nn.Sequential(Mixing(), nn.Linear(WIDTH, CLASSES))),
    "after a recurrent layer": Case(
        lambda: nn.Sequential(
            nn.Embedding(WORDS, 4), nn.Flatten(), nn.Linear(24, 4), Mixing(), nn.Linear(4, CLASSES)
        ),
        IDS,
    ),
    "standardised by the batch": Case(
        before(lambda x: (x - x.mean(0)) / x.std(0, correction=0).clamp_min(1e-3))
    ),
    "experts of a limited capacity": Case(Experts),
    "folded into the batch and back": Case(
        before(lambda x: x.reshape(-1, 2).cumsum(0).view(x.shape))
    ),
    "instance norm over records": Case(behind(lambda h: F.layer_norm(h.T, (len(h),)).T)),
    "contrastive loss": Case(Made, loss=contrastive),
    "temperature of the batch": Case(Made, loss=cooled),
    "weights of the batch": Case(
        Made, loss=lambda o, y: (each := cross_entropy(o, y)) * torch.softmax(each, 0)
    ),
    "losses less the batch's": Case(Made, loss=lambda o, y: cross_entropy(o, y) * o.mean().exp()),
}
# What made-up records do not show: nothing is said, and each record is alone all the same.
UNSEEN = {
    "large batches alone": Case(behind(lambda h: h - h.mean(0) if len(h) >= 4 else h)),
    "hardest records": Case(Made, loss=largest_losses),
    "missing values by the column": Case(before(by_column), MISSING),
    "a code in a closure": Case(before(imputed(-999)), CODED),
    "a code in a dict": Case(
        holding(lambda self, x: self.first(imputed(self.of["code"])(x)), of=lambda: {"code": -999}),
        CODED,
    ),
    "a code in numpy": Case(before(imputed(np.float32(-999))), CODED),
    "a code far out": Case(before(imputed(9.97e36)), MISSING.nan_to_num(9.97e36)),
    "a range of codes": Case(before(lambda x: torch.where(x < -900, x.mean(0), x)), CODED),
    "years by the largest": Case(before(lambda x: x / x.max().clamp_min(1500) - 0.5), YEARS),
    "counts by the largest": Case(
        before(lambda x: x / x.amax(0).clamp_min(9).float()), whole(50, WIDTH)
    ),
    "scaled if large": Case(before(lambda x: torch.where((x > 9).any(), x / 255, x))),
    "targets with gaps": Case(Made, targets=SCORES, loss=filled),
    "mean number of labels": Case(Made, targets=MISSING, loss=of_the_mean_number),
}


def made(case):
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return case.make()


def training(case, rows=slice(None), steps=1, noise=None, **options):
    x, targets = case.x[rows], case.targets[rows]
    settings = {"noise_multiplier": 0.0, "max_grad_norm": BOUND, "steps": steps, "lr": 1e-9}
    model = options.pop("model", None) or made(case)
    phases = [phase(FullBatch(len(x)), **settings)]
    return PrivateTraining(
        model, phases, x, targets, noise=noise or Noise(), loss=case.loss, **options
    )


def check_alone(run, case):
    """No record moves the sum of the training's kernel by more than the clip bound."""
    x, targets = case.x, case.targets
    total = run.kernel.clipped_sum(x, targets, BOUND).gradients
    assert any(each.any() for each in total.values())
    for record in range(ROWS):
        rest = torch.arange(ROWS) != record
        without = run.kernel.clipped_sum(x[rest], targets[rest], BOUND).gradients
        assert distance(total, without) <= BOUND * (1 + 1e-5)


@pytest.mark.parametrize("name", MEETING)
def test_records_that_meet_are_told_and_isolated_where_that_is_wanted(name):
    with pytest.raises(InputError, match="isolate=True"):
        training(MEETING[name])
    check_alone(training(MEETING[name], isolate=True), MEETING[name])


def test_records_that_meet_are_told_also_after_a_network_of_the_same_record():
    """Of one record alone the two have the same graph."""
    same = [lambda h: h, lambda h: h - h.mean(0) if len(h) > 1 else h]
    training(Case(behind(same[0])))
    with pytest.raises(InputError, match="isolate=True"):
        training(Case(behind(same[1])))

    def compared(output, labels):
        return cross_entropy(output - output.mean(0) if len(output) > 1 else output, labels)

    with pytest.raises(InputError, match="isolate=True"):
        training(Case(behind(same[0]), loss=compared))


@pytest.mark.parametrize("name", UNSEEN)
def test_where_records_would_meet_unseen_each_is_alone_all_the_same(name):
    check_alone(training(UNSEEN[name], isolate=True), UNSEEN[name])


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
    return h.clone()


mixed.register_fake(torch.empty_like)
mixed.register_autograd(lambda ctx, delta: delta)
mixed.register_vmap(lambda info, in_dims, h: (h - h.mean(0), 0))


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


def sets(self, value):
    self.centre = value


MOVES = {
    "moved": lambda self, value: self.centre.lerp_(value, 0.1),
    "copied": lambda self, value: self.centre.copy_(value),
    "set": sets,
    "through .data": lambda self, value: self.centre.data.add_(value),
}
GLOBAL = collections.deque(maxlen=3)
GLOBAL_SUM = torch.zeros(())


def to_list(self, x):
    self.seen.append(x.detach().sum())
    return self.first(x)


def reads(how):
    """A network that has a value of a record in Python."""

    def act(self, x):
        return self.first(x) * (1 if how(x.detach().sum()) else 2)

    return lambda: Made(act)


def hooked(memory, register):
    def make():
        model = Made()
        getattr(model.first, register)(lambda *given: memory.append(given[-1][0].detach()))
        return model

    return make


def to_parameter(self, x):
    h = self.first(x)
    self.centre.data.add_(h.detach().mean(0))
    return h


def layers(*made):
    return lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)), *made, nn.Flatten(), nn.Linear(WIDTH, CLASSES)
    )


def global_sum(output, labels):
    GLOBAL_SUM.add_(output.detach().sum())
    return cross_entropy(output, labels)


def to_global(output, labels):
    GLOBAL.append(output.detach().sum())
    return cross_entropy(output, labels)


def unused():
    model = nn.Sequential(nn.Linear(WIDTH, CLASSES))
    model.spare = nn.Linear(2, 2)
    model.forward = lambda x: model[0](x)
    return model


def scripted():
    return nn.Sequential(torch.jit.script(nn.Linear(WIDTH, 4)), nn.Linear(4, CLASSES))


def of_tokens(x):
    return x[:, (x > 0).any(0)][:, :1].expand(-1, WIDTH)


READ, KEPT = "read into Python", "a tensor of a record is kept in"
OWN = "a backward of its own"
MOVED = "a buffer that a record moves"
NOWHERE = "into a tensor that is no part of the network"
BEHIND = "a write that autograd does not see"
# Refused whatever one says, by words that tell what and where.
NEVER = {
    "a backward of its own": (Case(behind(Backwards.apply)), OWN),
    "a rule of its own for vmap": (Case(behind(Together.apply)), OWN),
    "a backward of its own, called by name": (
        Case(behind(lambda h: Backwards.apply(h))),
        f"Backwards, .*{OWN}",
    ),
    "an operator of one's own": (Case(behind(lambda h: mixed(h))), "dpatlas_tests"),
    "item": (Case(reads(lambda s: s.item() > 0)), READ),
    "float": (Case(reads(float)), READ),
    "bool": (Case(reads(lambda s: s > 0)), READ),
    "tolist": (Case(reads(lambda s: s.tolist())), "numbers of a tensor read"),
    "numpy": (Case(reads(lambda s: s.numpy().tobytes())), "numbers of a tensor read"),
    "any missing value": (Case(before(lambda x: x if x.isnan().any() else 2 * x)), READ),
    "as many as the values say": (
        Case(before(lambda x: x[x != -1].mean() + x)),
        "as large as a record's values",
    ),
    "trimmed by values": (Case(before(of_tokens)), "as large as a record's values"),
    "python's random numbers": (
        Case(before(lambda x: x * random.random())),
        "random numbers of Python",
    ),
    "numpy's random numbers": (
        Case(before(lambda x: x * np.random.rand())),  # noqa: NPY002
        "random numbers of Python",
    ),
    "list": (Case(holding(to_list, seen=list)), rf"{KEPT} .*seen"),
    "deque": (Case(holding(to_list, seen=collections.deque)), KEPT),
    "slots": (Case(holding(to_list, seen=Slots)), KEPT),
    "tensor of an object": (Case(holding(to_list, seen=Sum)), BEHIND),
    "hook": (Case(hooked([], "register_forward_hook")), KEPT),
    "hook before": (Case(hooked([], "register_forward_pre_hook")), KEPT),
    "parameter": (
        Case(
            holding(to_parameter, centre=lambda: nn.Parameter(torch.zeros(7), requires_grad=False))
        ),
        BEHIND,
    ),
    **{
        f"buffer {how}": (
            Case(layers(Remembers(move))),
            rf"layer 1 .*{BEHIND if how == 'through .data' else MOVED}",
        )
        for how, move in MOVES.items()
    },
    "loss with a memory": (Case(Made, loss=Keeps()), KEPT),
    "loss with a buffer": (Case(Made, loss=Remembers(MOVES["moved"])), NOWHERE),
    "loss with a sum": (Case(Made, loss=Sum()), BEHIND),
    "loss with a global": (Case(Made, loss=to_global), KEPT),
    "loss with a global tensor": (Case(Made, loss=global_sum), NOWHERE),
    "loss of several numbers": (
        Case(Made, loss=lambda o, y: o.square()),
        r"shape \(1, 3\) for one record",
    ),
    "several records wanted": (
        Case(behind(lambda h: h.view(2, -1, 7).flatten(0, 1))),
        "error as a record's loss is traced",
    ),
    "without gradients": (
        Case(holding(lambda self, x: torch.no_grad()(self.first)(x))),
        "first.*no gradient",
    ),
    "a layer that nothing uses": (Case(unused), r"spare.*no gradient of the loss reaches it"),
    "batch norm": (Case(layers(nn.BatchNorm1d(2))), r"layer 1 \(BatchNorm1d\).*to_group_norm"),
    "batch norm without parameters": (Case(layers(nn.BatchNorm1d(2, affine=False))), "layer 1"),
    "batch norm without statistics": (
        Case(layers(nn.BatchNorm1d(2, track_running_stats=False).eval())),
        "layer 1",
    ),
    "functional batch norm": (
        Case(behind(lambda h: F.batch_norm(h, None, None, training=True))),
        "traced",
    ),
    "without its shape": (
        Case(layers(nn.LazyConv1d(2, 1))),
        r"layer 1 \(LazyConv1d\).*without a shape",
    ),
    "TorchScript": (Case(scripted), "layer 0 .*TorchScript"),
    "words counted in the batch": (
        Case(
            lambda: nn.Sequential(nn.Embedding(WORDS, 1, scale_grad_by_freq=True), nn.Flatten()),
            IDS,
        ),
        "scale_grad_by_freq",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_no_isolation_makes_good_is_refused_by_name(name):
    case, match = NEVER[name]
    with pytest.raises(InputError, match=match):
        training(case, isolate=True)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_sums_of_numbers_of_few_bits_are_of_float32_and_each_record_is_alone(kind):
    case = Case(lambda: Made().to(kind), NUMBERS.to(kind))
    run = training(case)
    total = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    assert {value.dtype for value in total.values()} == {torch.float32}
    check_alone(run, case)


def test_a_refusal_leaves_the_network_as_it_was():
    model = nn.Sequential(Remembers(sets), nn.Linear(WIDTH, CLASSES))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    for case in (Case(None, loss=cross_entropy), Case(None, loss=cooled)):
        with pytest.raises(InputError):
            training(case, model=model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


class Switch(nn.Module):
    """A network that centres its records once a switch is turned."""

    kind = False

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, CLASSES)
        self.register_buffer("on", torch.zeros(()))
        self.flag, self.nested, self.memory = False, {"of": [False]}, []
        self.calls = itertools.count()

    def forward(self, x):
        turned = self.kind or self.flag or self.nested["of"][0] or self.memory or TURNED["on"]
        if turned or (self.training and next(self.calls) > 9):
            x = x - x.mean(0)
        x = x - self.on * x.mean(0)
        return self.last(self.middle(self.first(x)))


TURNED = {"on": False}


def mixing(module, *given):
    """A hook of any kind that adds the mean over the rows."""
    (changed,) = given[-1] if isinstance(given[-1], tuple) else given[-1:]
    result = changed + changed.mean(0)
    return (result,) if isinstance(given[-1], tuple) else result


# What happens to the network after its first step, and how it is undone.
TURNS = {
    "attribute": lambda model, undo: setattr(model, "flag", True),
    "nested": lambda model, undo: model.nested["of"].__setitem__(0, True),
    "list": lambda model, undo: model.memory.append(1),
    "global": lambda model, undo: undo.setitem(TURNED, "on", True),
    "class": lambda model, undo: undo.setattr(Switch, "kind", True),
    "counter": lambda model, undo: [next(model.calls) for _ in range(19)],
    "mode": lambda model, undo: model.eval(),
    "another layer": lambda model, undo: setattr(model, "middle", nn.BatchNorm1d(4, affine=False)),
    "forward": lambda model, undo: setattr(
        model, "forward", lambda x: model.last(model.first(x - x.mean(0)))
    ),
    "hook": lambda model, undo: model.middle.register_forward_hook(mixing),
    "hook before": lambda model, undo: model.middle.register_forward_pre_hook(mixing),
    "hook backward": lambda model, undo: model.middle.register_full_backward_hook(mixing),
    "loss": lambda model, undo: undo.setattr(f"{__name__}.cross_entropy", cooled),
}


def ramped(output, labels):
    return cross_entropy(output, labels)


@pytest.mark.parametrize("how", TURNS)
def test_a_switch_that_is_turned_after_the_first_step_changes_nothing(how, monkeypatch):
    case = Case(Switch, loss=ramped)
    run = training(case, steps=3)
    run.step()
    expected = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    TURNS[how](run.model, monkeypatch)
    run.step()
    found = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    assert distance(found, expected) < 1e-6
    check_alone(run, case)


def test_a_buffer_that_is_turned_is_read_anew_and_each_record_is_alone_all_the_same():
    case = Case(Switch)
    run = training(case, steps=3)
    expected = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    run.model.on.fill_(1.0)
    check_alone_or_zero = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    assert distance(check_alone_or_zero, expected) > 1e-3
    check_alone(run, case)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "last", nn.Linear(4, CLASSES)),
        lambda model: nn.utils.parametrizations.weight_norm(model.first),
        lambda model: model.register_parameter("more", nn.Parameter(torch.zeros(1))),
    ],
)
def test_other_parameters_after_the_first_step_are_refused(change):
    run = training(Case(Switch), steps=2)
    run.step()
    change(run.model)
    with pytest.raises(InputError, match="other parameters than when the training was made"):
        run.step()


def test_tensors_from_elsewhere_are_copied_at_the_start():
    held = torch.ones(WIDTH)
    case = Case(before(lambda x: x * held))
    run = training(case, steps=3)
    expected = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    held.zero_()
    assert distance(run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients, expected) == 0


def test_a_network_that_writes_into_its_input_leaves_the_records_as_they_are():
    case = Case(before(lambda x: x.sub_(1).mul_(2)), NUMBERS.clone())
    run = training(case, steps=2)
    run.run()
    assert torch.equal(case.x, NUMBERS)
    check_alone(run, case)


def test_autocast_of_others_and_later_modes_change_no_step():
    case = Case(Made)
    run = training(case)
    expected = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
        found = run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    assert distance(found, expected) == 0


def dropped():
    return nn.Sequential(nn.Linear(WIDTH, 7), nn.Dropout(0.5), nn.ReLU(), nn.Linear(7, CLASSES))


@pytest.mark.parametrize(
    "make", [dropped, behind(lambda h: h + torch.randn(1) * torch.rand_like(h))]
)
def test_random_numbers_of_a_record_do_not_depend_on_the_others(make):
    case, noise = Case(make), Noise("masks", "keyed")
    sums = [sums_of(training(case, slice(rows), 2, noise=noise)) for rows in (ROWS, ROWS - 1)]
    for whole_one, rest in zip(*sums, strict=True):
        assert 0 < distance(whole_one, rest) <= BOUND * (1 + 1e-5)
    # Each step has its own, and each number of records at a time the same.
    first, second = sums[0]
    assert distance(first, second) > 1e-3
    small = PrivateTraining(
        made(case),
        [
            phase(
                FullBatch(ROWS),
                noise_multiplier=0.0,
                max_grad_norm=BOUND,
                steps=1,
                max_physical_batch=2,
            )
        ],
        case.x,
        case.targets,
        noise=noise,
    )
    assert distance(sums_of(small)[0], first) < 1e-6


class Views:
    """One view of a record, by a function of the batch."""

    views, kept = 1, None

    def __init__(self, act):
        self.act = act

    def draw(self, draws, records):
        return torch.from_numpy(draws.random((records, 1))).float()

    def apply(self, x, parameters):
        return self.act(self, x)


def keeps(self, x):
    self.kept = x.sum()
    return x


@pytest.mark.parametrize(
    "act",
    [
        lambda self, x: x + x.flip(0),
        lambda self, x: x - x.mean(0) if len(x) > 1 else x,
        lambda self, x: torch.where(x.isnan(), x.nanmean(0, keepdim=True), x),
    ],
)
def test_views_of_a_record_are_of_it_alone(act):
    case = Case(Made)
    blank = case.x.clone()
    # It adds nothing, and the views of the others are drawn as before.
    blank[0] = torch.nan
    run, rest = (
        training(case._replace(x=x), augmentation=Views(act), noise=Noise("views", "keyed"))
        for x in (case.x, blank)
    )
    assert 0 < distance(sums_of(run)[0], sums_of(rest)[0]) <= BOUND * (1 + 1e-5)


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (keeps, KEPT),
        (lambda self, x: x + torch.rand_like(x), "random numbers in apply"),
        (lambda self, x: x if x.isnan().any() else 2 * x, READ),
        (lambda self, x: x.repeat(2, 1), "2 views of one record"),
    ],
)
def test_views_that_are_not_of_a_record_alone_are_refused(act, match):
    with pytest.raises(InputError, match=rf"^augmentation.*{match}"):
        training(Case(Made), augmentation=Views(act))


def test_a_kernel_alone_isolates_too():
    case = MEETING["less the first"]
    kernel = NetworkGradients(made(case))
    whole_one = kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    rest = kernel.clipped_sum(case.x[1:], case.targets[1:], BOUND).gradients
    assert distance(whole_one, rest) <= BOUND * (1 + 1e-5)
