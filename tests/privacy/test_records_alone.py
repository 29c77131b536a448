"""No record meets another: a network or loss that lets them is refused, or trains on each alone."""

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference_gradients import distance
from small_networks import CLASSES, WIDTH, Case, Net, before, behind, made, mlp
from small_training import phase, sums_of
from torch import Tensor, nn

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base import seeds
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.training import PrivateTraining

ROWS, BOUND = 9, 0.05
DRAWS = torch.Generator().manual_seed(5)


def below(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, (ROWS, *shape), generator=DRAWS)


NUMBERS, LABELS = torch.randn(ROWS, WIDTH, generator=DRAWS), below(CLASSES)
# One record is far from the others, which see it if they can.
NUMBERS[0] *= 100
MISSING = torch.where(torch.rand(ROWS, WIDTH, generator=DRAWS) < 0.3, torch.nan, NUMBERS)
MISSING[0, 0], MISSING[1] = 1e3, NUMBERS[1]
CODED = MISSING.nan_to_num(-999)
YEARS = 1900 + below(100, WIDTH).float()
SCORES = torch.where(below(3) == 0, -1.0, below(5).float())


def of(make, x=NUMBERS, targets=LABELS, loss=cross_entropy):
    return Case(make, x, targets, loss)


class Mixing(nn.Module):
    """The values less their mean over the batch, as a module."""

    def forward(self, values):
        return values - values.mean(0)


def to_experts(self, x):
    """Experts that each take a limited number of records of a batch, the first ones."""
    shares = self.gate(x).softmax(1)
    expert = F.one_hot(shares.argmax(1), 4)
    rank = (expert.cumsum(0) * expert).sum(1, keepdim=True)
    shares = shares * expert * (rank <= 1)
    return self.head(sum(shares[:, [k]] * each(x) for k, each in enumerate(self.experts)))


def experts():
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
    return Net(to_experts, gate=nn.Linear(WIDTH, 4), head=nn.Linear(8, 3), experts=layers)


def contrastive(output, labels):
    unit = F.normalize(output, dim=1)
    losses = F.cross_entropy(unit @ unit.T / 0.1, torch.arange(len(output)), reduction="none")
    return losses + output.square().mean(1)


def cooled(output, labels):
    return cross_entropy(output / output.detach().abs().max(), labels)


def weighted(output, labels):
    losses = cross_entropy(output, labels)
    return losses * torch.softmax(losses, 0)


def of_the_mean_number(output, targets):
    there = ~targets.isnan()
    errors = (output - targets.nan_to_num()[:, :CLASSES].mean(1, True)).square()[:, :1]
    return (there * errors).sum(1) / there.float().sum(1).mean()


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


def code_in_a_dict():
    model = Net(lambda self, x: self.inner(imputed(self.of["code"])(x)), inner=mlp())
    model.of = {"code": -999}
    return model


# Told before training, and with isolate=True trained on each record alone.
MEETING = {
    "less the first": of(before(lambda x: x - x[:1])),
    "running sum": of(before(lambda x: x.cumsum(0))),
    "only forwards": of(behind(lambda h: h + h.roll(1, 0).detach())),
    "by size of the batch": of(behind(lambda h: h / len(h))),
    "a module": of(lambda: nn.Sequential(nn.Linear(WIDTH, 5), Mixing(), nn.Linear(5, CLASSES))),
    "frozen layer that mixes": of(lambda: nn.Sequential(Mixing(), nn.Linear(WIDTH, CLASSES))),
    "experts of a limited capacity": of(experts),
    "folded into the batch": of(before(lambda x: x.reshape(-1, 2).cumsum(0).view(x.shape))),
    "contrastive loss": of(mlp, loss=contrastive),
    "temperature of the batch": of(mlp, loss=cooled),
    "weights of the batch": of(mlp, loss=weighted),
}
# What made-up records do not show: nothing is said, and each record is alone all the same.
UNSEEN = {
    "large batches alone": of(behind(lambda h: h - h.mean(0) if len(h) >= 4 else h)),
    "hardest records": of(mlp, loss=largest_losses),
    "missing values by the column": of(
        before(lambda x: torch.where(x.isnan(), x.nanmean(0, keepdim=True), x)), MISSING
    ),
    "a code in a closure": of(before(imputed(-999)), CODED),
    "a code in a dict": of(code_in_a_dict, CODED),
    "a code in numpy": of(before(imputed(np.float32(-999))), CODED),
    "a code far out": of(before(imputed(9.97e36)), MISSING.nan_to_num(9.97e36)),
    "a range of codes": of(before(lambda x: torch.where(x < -900, x.mean(0), x)), CODED),
    "years by the largest": of(before(lambda x: x / x.max().clamp_min(1500) - 0.5), YEARS),
    "counts by the largest": of(
        before(lambda x: x / x.amax(0).clamp_min(9).float()), below(50, WIDTH)
    ),
    "scaled if large": of(before(lambda x: torch.where((x > 9).any(), x / 255, x))),
    "targets with gaps": of(mlp, targets=SCORES, loss=filled),
    "mean number of labels": of(mlp, targets=MISSING, loss=of_the_mean_number),
}


def training(case, rows=None, steps=1, noise=None, model=None, sigma=0.0, **options):
    x, targets = (part if rows is None else part[rows] for part in (case.x, case.targets))
    changes = {"max_physical_batch": options.pop("max_physical_batch", None)}
    settings = {"noise_multiplier": sigma, "max_grad_norm": BOUND, "steps": steps, "lr": 1e-9}
    phases = [phase(FullBatch(len(x)), **settings, **changes)]
    given = {"noise": noise or Noise(), "loss": case.loss, **options}
    return PrivateTraining(model or made(case), phases, x, targets, **given)


def sum_of(run, case):
    return run.kernel.clipped_sum(case.x, case.targets, BOUND).gradients


def check_alone(run, case):
    """No record moves the sum of the training's kernel by more than the clip bound."""
    total = sum_of(run, case)
    assert any(value.any() for value in total.values())
    for record in range(ROWS):
        rest = torch.arange(ROWS) != record
        without = run.kernel.clipped_sum(case.x[rest], case.targets[rest], BOUND).gradients
        assert distance(total, without) <= BOUND * (1 + 1e-5)


@pytest.mark.parametrize("name", [*MEETING, *UNSEEN])
def test_records_that_meet_are_told_where_it_shows_and_alone_where_it_is_wanted(name):
    case = {**MEETING, **UNSEEN}[name]
    if name in MEETING:
        with pytest.raises(InputError, match="isolate=True"):
            training(case)
    check_alone(training(case, isolate=True), case)


def test_records_that_meet_are_told_also_after_a_network_of_the_same_record():
    """Of one record alone the two have the same graph."""

    def compared(values):
        return values - values.mean(0) if len(values) > 1 else values

    alone = behind(lambda h: h)
    training(of(alone))
    for case in (
        of(behind(compared)),
        of(alone, loss=lambda output, labels: cross_entropy(compared(output), labels)),
    ):
        with pytest.raises(InputError, match="isolate=True"):
            training(case)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_sums_of_numbers_of_few_bits_are_of_float32_and_each_record_is_alone(kind):
    case = of(lambda: mlp().to(kind), NUMBERS.to(kind))
    run = training(case)
    assert {value.dtype for value in sum_of(run, case).values()} == {torch.float32}
    check_alone(run, case)


TURNED = {"on": False}


class Switch(nn.Module):
    """A network that centres its records once a switch is turned."""

    kind = False

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, CLASSES)
        self.register_buffer("on", torch.zeros(()))
        self.nested, self.memory, self.calls = {"of": [False]}, [], itertools.count()

    def forward(self, x):
        turned = self.kind or self.nested["of"][0] or self.memory or TURNED["on"]
        if turned or (self.training and next(self.calls) > 9):
            x = x - x.mean(0)
        x = x - self.on * x.mean(0)
        return self.last(self.middle(self.first(x)))


# What happens to the network after its first step, one after the other.
TURNS = {
    "nested": lambda model, undo: model.nested["of"].__setitem__(0, True),
    "list": lambda model, undo: model.memory.append(1),
    "global": lambda model, undo: undo.setitem(TURNED, "on", True),
    "class": lambda model, undo: undo.setattr(Switch, "kind", True),
    "counter": lambda model, undo: [next(model.calls) for _ in range(19)],
    "mode": lambda model, undo: model.eval(),
    "hook": lambda model, undo: model.middle.register_forward_hook(
        lambda layer, given, output: output + output.mean(0)
    ),
    "hook backward": lambda model, undo: model.middle.register_full_backward_hook(
        lambda layer, given, output: (given[0] + given[0].mean(0),)
    ),
    "another layer": lambda model, undo: setattr(model, "middle", nn.BatchNorm1d(4, affine=False)),
    "forward": lambda model, undo: setattr(
        model, "forward", lambda x: model.last(model.first(x - x.mean(0)))
    ),
    "loss": lambda model, undo: undo.setattr(f"{__name__}.cross_entropy", cooled),
}


def ramped(output, labels):
    return cross_entropy(output, labels)


def test_a_switch_that_is_turned_after_the_first_step_changes_nothing(monkeypatch):
    case = of(Switch, loss=ramped)
    run = training(case, steps=2 + len(TURNS))
    run.step()
    expected = sum_of(run, case)
    for how, turn in TURNS.items():
        turn(run.model, monkeypatch)
        run.step()
        assert distance(sum_of(run, case), expected) < 1e-6, how
    check_alone(run, case)


def test_a_buffer_that_is_turned_is_read_anew_and_each_record_is_alone_all_the_same():
    case = of(Switch)
    run = training(case, steps=3)
    expected = sum_of(run, case)
    run.model.on.fill_(1.0)
    assert distance(sum_of(run, case), expected) > 1e-3
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
    run = training(of(Switch), steps=2)
    run.step()
    change(run.model)
    with pytest.raises(InputError, match="other parameters than when the training was made"):
        run.step()


def test_tensors_from_elsewhere_are_copied_at_the_start():
    held = torch.ones(WIDTH)
    case = of(before(lambda x: x * held))
    run = training(case)
    expected = sum_of(run, case)
    held.zero_()
    assert distance(sum_of(run, case), expected) == 0


def test_tensors_of_one_name_are_two():
    """As those of two modules: a function's globals are known by their names."""
    code, values = (lambda x: x * NUMBERS).__code__, (torch.ones(WIDTH), 3 * torch.ones(WIDTH))
    acts = [FunctionType(code, {"NUMBERS": value}) for value in values]
    record = training(of(before(lambda x: acts[1](acts[0](x))))).record
    assert sorted(float(value[0]) for value in record.constants.values()) == [1, 3]


def test_numbers_that_nobody_has_written_are_zeros_and_not_those_of_another_record():
    found, expected = (
        sum_of(training(case, isolate=True), case)
        for case in (
            of(behind(lambda h: h * (1 + torch.empty_like(h)) + h.new_empty(7))),
            of(behind(lambda h: h)),
        )
    )
    assert distance(found, expected) == 0


TABLES = {
    "of the record": lambda s, x, codes: F.embedding(codes[0], x.view(4, 2))[None] * s.table[0],
    "copied for every record": lambda s, x, codes: F.embedding(codes, s.table) * s.table.norm(),
}


@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES)
def test_a_code_beyond_a_table_reads_no_other_record_s(rows):
    parts = {"table": (4, 2), "last": nn.Linear(2, CLASSES)}
    model = Net(lambda s, x, codes: s.last(rows(s, x, codes).mean(1)), **parts)
    codes = below(4, 3)
    records = {"x": NUMBERS, "codes": codes}
    kernel = NetworkGradients(model)
    kernel.clipped_sum(records, LABELS, BOUND)
    codes[1, 0] = 4
    with pytest.raises(InputError, match="index out of range"):
        kernel.clipped_sum(records, LABELS, BOUND)


def test_threads_trace_one_after_the_other():
    models = [made(of(behind(lambda h: h))) for _ in range(4)]
    before = torch.autograd.Function.__dict__["apply"], torch._C._get_mkldnn_enabled()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda model: training(of(None), model=model), models))
    assert (torch.autograd.Function.__dict__["apply"], torch._C._get_mkldnn_enabled()) == before


def test_a_network_that_writes_into_its_input_leaves_the_records_as_they_are():
    case = of(before(lambda x: x.sub_(1).mul_(2)), NUMBERS.clone())
    run = training(case, steps=2)
    run.run()
    assert torch.equal(case.x, NUMBERS)
    check_alone(run, case)


class TensorOfMyOwn(torch.Tensor):
    """Compares the records of a batch, whatever torch does with them."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return 5 * (result - result.mean(0)) if function is torch.Tensor.unsqueeze else result


class ArrayOfMyOwn(np.ndarray):
    def __getitem__(self, rows):
        part = super().__getitem__(rows)
        return 5 * (part - part.mean(0)) if getattr(part, "ndim", 0) == 2 else part


@pytest.mark.parametrize(
    "x", [NUMBERS.as_subclass(TensorOfMyOwn), NUMBERS.numpy().view(ArrayOfMyOwn)], ids=type
)
def test_records_of_a_class_of_ones_own_run_none_of_its_code(x):
    (found,), (expected,) = sums_of(training(of(mlp, x))), sums_of(training(of(mlp)))
    assert distance(found, expected) == 0


@contextlib.contextmanager
def default_float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def dropped():
    return nn.Sequential(nn.Linear(WIDTH, 7), nn.Dropout(0.5), nn.ReLU(), nn.Linear(7, CLASSES))


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
    def run(making, stepping):
        monkeypatch.setattr(seeds, "_claims", {})
        model = made(of(dropped))
        with making():
            one = training(of(dropped), model=model, noise=Noise("around", "keyed"), sigma=1.0)
        with stepping():
            return sums_of(one)[0]

    plain = run(contextlib.nullcontext, contextlib.nullcontext)
    assert distance(plain, run(contextlib.nullcontext, surroundings)) == 0
    if surroundings not in (default_float64, torch.inference_mode):
        assert distance(plain, run(surroundings, contextlib.nullcontext)) == 0


@pytest.mark.parametrize(
    "make", [dropped, behind(lambda h: h + torch.randn(1) * torch.rand_like(h))]
)
def test_random_numbers_of_a_record_do_not_depend_on_the_others(make):
    case, noise = of(make), Noise("masks", "keyed")
    whole, rest = (
        sums_of(training(case, slice(rows), 2, noise=noise)) for rows in (ROWS, ROWS - 1)
    )
    for total, without in zip(whole, rest, strict=True):
        assert 0 < distance(total, without) <= BOUND * (1 + 1e-5)
    # Each step has its own, and each number of records at a time the same.
    assert distance(*whole) > 1e-3
    small = training(case, noise=noise, max_physical_batch=2)
    assert distance(sums_of(small)[0], whole[0]) < 1e-6


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
    blank = NUMBERS.clone()
    # It adds nothing, and the views of the others are drawn as before.
    blank[0] = torch.nan
    (total,), (rest,) = (
        sums_of(training(of(mlp, x), augmentation=Views(act), noise=Noise("views", "keyed")))
        for x in (NUMBERS, blank)
    )
    assert 0 < distance(total, rest) <= BOUND * (1 + 1e-5)


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (keeps, "a tensor of a record is kept in"),
        (lambda self, x: x + torch.rand_like(x), "random numbers in apply"),
        (lambda self, x: x if x.isnan().any() else 2 * x, "read into Python"),
        (lambda self, x: x.repeat(2, 1), "2 views of one record"),
    ],
)
def test_views_that_are_not_of_a_record_alone_are_refused(act, match):
    with pytest.raises(InputError, match=rf"^augmentation.*{match}"):
        training(of(mlp), augmentation=Views(act))


def test_a_kernel_alone_isolates_too():
    case = MEETING["less the first"]
    kernel = NetworkGradients(made(case))
    total = kernel.clipped_sum(case.x, case.targets, BOUND).gradients
    rest = kernel.clipped_sum(case.x[1:], case.targets[1:], BOUND).gradients
    assert distance(total, rest) <= BOUND * (1 + 1e-5)
