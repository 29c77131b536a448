"""Inputs that the engine once took, although the epsilon that it then stated was false."""

import multiprocessing
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import N, data, flat, kept_sums, network, phase, training
from torch import nn

from dpatlas.accounting.clip_bounds import AdaptiveClip
from dpatlas.accounting.guarantees import Phase, calibrate, composition, guarantee
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Poisson, Shuffled
from dpatlas.accounting.schedules import StepDecay
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.calibration import at_epsilon
from dpatlas.privacy.clipping import clip_factors
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.norms import rows_norm2
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

DELTA = 1e-5
DRAWN = "noise that another training has drawn"


def pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  (what was just written)


def records(n=16):
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(3))
    return x, torch.arange(n) % 2


def clean_sums(make, x, labels, steps=1, after=None, loss=cross_entropy, augmentation=None):
    """The sums of clipped gradients of full batches, at clip bound 1 and without noise."""
    torch.manual_seed(0)
    settings = {"noise_multiplier": 0.0, "max_grad_norm": 1.0, "lr": 1e-9, "steps": steps}
    run = PrivateTraining(
        make(),
        [phase(FullBatch(len(x)), **settings)],
        x,
        labels,
        noise=Noise("sums", "keyed"),
        loss=loss,
        augmentation=augmentation,
    )
    sums = kept_sums(run)
    run.run(after)
    return [flat(each).double() for each in sums]


def moves(with_record, without):
    """How far the first record moves each sum, in clip bounds."""
    return [float((one - other).norm()) for one, other in zip(with_record, without, strict=True)]


class Symlog(nn.Module):
    def forward(self, x):
        return x.sign() * x.abs().log1p()


def linear():
    return nn.Linear(8, 2)


def test_squares_that_underflow_count_as_what_they_may_have_been():
    def wide():
        return nn.Sequential(nn.Linear(8, 2048), Symlog(), nn.Linear(2048, 2))

    x, labels = records()
    x[0], labels[0] = 1e25 * x[0], 0
    found = [clean_sums(wide, x[first:], labels[first:]) for first in (0, 1)]
    assert max(moves(*found)) <= 1 + 1e-5
    assert rows_norm2(torch.full((1, 4096), 1e-25)).sqrt() >= 64e-25


@pytest.mark.parametrize("bound", [1e-6, 1e-3, 1.0])
def test_output_gradients_of_few_digits_add_no_more_than_the_bound(bound):
    def log_size(output, labels):
        return output.abs().log().mean(1)

    kernel, labels = NetworkGradients(nn.Linear(8, 16), log_size), torch.zeros(1, dtype=torch.int64)
    draws = torch.Generator().manual_seed(3)
    for size in (1e10, 1e25, 1e29, 1e31, 1e35, 1e38):
        for _ in range(5):
            x = size * torch.rand(1, 8, generator=draws)
            gradients = kernel.clipped_sum(x, labels, bound).gradients.values()
            assert sum(float(g.double().square().sum()) for g in gradients) <= bound**2 * (1 + 1e-6)


def test_a_clip_factor_of_too_few_digits_is_zero():
    factors = clip_factors(torch.tensor([1.0, 1e36], dtype=torch.float64), 1e-25)
    assert factors.tolist() == [1e-25, 0.0]


CHANGES = {
    "in place": lambda x: x.mul_(100.0),
    "through .data": lambda x: x.data.mul_(100.0),
    "through .numpy()": lambda x: np.multiply(x, 100.0, out=x.numpy()),
}


@pytest.mark.parametrize("owner", ["torch", "numpy"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_norms_of_records_that_change_between_steps_are_taken_anew(owner, change):
    found = []
    for first in (0, 1):
        x, labels = (part[first:].clone() for part in records())
        given = x if owner == "torch" else torch.from_numpy(x.numpy())
        found.append(clean_sums(linear, given, labels, 2, lambda step, x=x: change(x)))
    assert max(moves(*found)) <= 1 + 1e-5


class Brighter:
    """One view of each record, much larger than the record."""

    views = 1

    def draw(self, draws, records):
        return torch.from_numpy(draws.uniform(10, 20, (records, 1)).astype(np.float32))

    def apply(self, x, parameters):
        return x * parameters


def test_a_single_view_is_clipped_by_its_own_norm_and_not_by_the_record_s():
    x, labels = records()
    blank = x.clone()
    # It adds nothing, and the views of the others are drawn as before.
    blank[0] = torch.nan
    found = [clean_sums(linear, given, labels, augmentation=Brighter()) for given in (x, blank)]
    assert max(moves(*found)) <= 1 + 1e-5


class Spread(Brighter):
    """Views of which those of a batch lie evenly on a circle, as times of a diffusion model may."""

    def draw(self, draws, records):
        return torch.from_numpy((draws.random() + np.arange(records) / records) % 1)[:, None]

    def apply(self, x, parameters):
        return x * torch.cos(2 * torch.pi * 16 * parameters).to(x)


class Golden(Spread):
    """Views of which each goes on from the one before, in whichever batch that was."""

    drawn = 0

    def draw(self, draws, records):
        first, self.drawn = self.drawn, self.drawn + records
        return torch.from_numpy(0.618 * np.arange(first, first + records) % 1)[:, None]


class Two(Brighter):
    def draw(self, draws, records):
        return torch.ones(2, 1)


def test_the_views_of_a_record_do_not_depend_on_how_many_are_drawn():
    x, labels = records()
    found = [clean_sums(linear, x[:n], labels[:n], augmentation=Spread()) for n in (16, 15)]
    assert max(moves(*found)) <= 1 + 1e-5


@pytest.mark.parametrize("views", [Golden(), Two()], ids=["counts", "two for one"])
def test_views_that_are_not_drawn_for_a_record_alone_are_refused(views):
    with pytest.raises(InputError, match=r"augmentation \((Golden|Two)\)"):
        clean_sums(linear, *records(), augmentation=views)


def mlp():
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))


class Tempered(nn.Module):
    """A loss with a parameter."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, output, labels):
        return cross_entropy(output * self.scale, labels)


def test_a_parameter_of_the_loss_stays_as_it_is_and_no_gradient_is_left_anywhere():
    loss, scale, model = Tempered(), torch.ones(2, requires_grad=True), mlp()
    assert len(clean_sums(mlp, *records(), loss=loss)) == 1
    kernel = NetworkGradients(model, lambda out, labels: loss(out * scale, labels))
    assert float(kernel.clipped_sum(*records(), 1.0).norms.min()) > 0
    assert all(value.grad is None for value in [scale, loss.scale, *model.parameters()])


def test_a_network_is_called_before_the_first_step_alone():
    calls = []
    model = mlp()
    model.register_forward_hook(lambda *given: calls.append(1))
    run = training([phase(FullBatch(16), steps=3)], model, Noise(), records())
    before = len(calls)
    run.run()
    assert len(calls) == before <= 5


def test_numbers_of_tensors_and_numpy_are_held_as_python_s():
    noise = torch.tensor(0.5)
    made = phase(noise_multiplier=noise, max_grad_norm=np.float16(0.5), steps=np.int64(3))
    noise.fill_(50.0)
    found = (made.noise_multiplier, made.max_grad_norm, made.steps)
    assert found == (0.5, 0.5, 3) and [type(each) for each in found] == [float, float, int]
    assert Phase(FullBatch(N), noise, 1).noise_multiplier == 50.0
    assert type(Poisson(np.int32(10), torch.tensor(2)).batch) is int
    for name in ("noise_multiplier", "max_grad_norm", "lr"):
        with pytest.raises(InputError, match=f"{name}: found nan"):
            phase(**{name: torch.tensor(float("nan"))})
        for several in (torch.ones(2), np.ones(2), np.ones(1)):
            with pytest.raises(InputError, match=f"{name}: found an array"):
                phase(**{name: several})
    with pytest.raises(InputError, match=r"delta: found 2\.0"):
        guarantee([Phase(FullBatch(N), 1.0, 1)], torch.tensor(2.0), "add_remove")
    with pytest.raises(InputError, match="noise_multiplier"):
        guarantee([Phase(FullBatch(N), 1e300, 1)], DELTA, "add_remove")


def test_a_sampler_of_one_s_own_states_by_which_it_is_accounted():
    class First(Poisson):
        def batch_indices(self, noise, repetition, step):
            return np.arange(self.batch)

    class Stated(First):
        accounted_as = Poisson.name

    class Inherited(Stated):
        pass

    class Renamed(FixedSize):
        name = accounted_as = Shuffled.name

    for made in (phase, lambda sampler: Phase(sampler, 1.0, 1)):
        for sampler in (First(N, 6), Inherited(N, 6), Renamed(N, 6), None, "poisson"):
            with pytest.raises(InputError, match="sampler: found"):
                made(sampler)
        assert made(Stated(N, 6)).sampler.name == "poisson"


def test_a_schedule_of_one_s_own_is_evaluated_once():
    now = [0.01]

    class Plateau(StepDecay):
        def __call__(self, step):
            return now[0]

    made = phase(FullBatch(N), noise_schedule=Plateau(1, 1.0))
    now[0] = 1.0
    assert made.noise_at(0) == pytest.approx(0.015)


def test_what_was_released_before_a_restore_stays_released():
    run = training([phase(steps=6)])
    run.step()
    state = run.state()
    run.run()
    spent = run.guarantee().epsilon
    run.restore(*state)
    assert run.guarantee().epsilon == spent and run.steps_done == 1


def with_noise(noise):
    x, labels = data()
    # In a forked process torch traces nothing after a backward pass: the closed form needs none.
    training([phase(steps=1)], network("linear"), noise, (x, labels)).run()


FORKED = []


def step_of_the_forked():
    FORKED[0].step()


@pytest.mark.parametrize("source", ["os", "keyed"])
def test_a_training_that_is_forked_after_its_first_step_goes_on_in_no_child(source):
    FORKED[:] = [training([phase(steps=3)], network("mlp"), Noise("forked", source))]
    FORKED[0].step()
    refused = pytest.raises(InputError, match="noise: found noise of")
    with multiprocessing.get_context("fork").Pool(1) as pool, refused:
        pool.apply(step_of_the_forked)
    FORKED[0].step()


def test_a_secret_is_used_in_the_process_that_drew_it_or_that_restored_it():
    noise = Noise()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        with pytest.raises(InputError, match="noise: found noise of the operating system"):
            pool.apply(with_noise, (noise,))
        pool.apply(with_noise, (Noise("a name", "keyed"),))
    with_noise(pickled(noise))


class Fold:
    """A dataset that is told which part of the records to give."""

    def __init__(self):
        self.x, self.labels = records()
        self.fold, self.given = 1.0, []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.given.append(index)
        return self.fold * self.x[index], self.labels[index]


def test_a_dataset_that_is_changed_is_another_one():
    dataset, noise = Fold(), Noise()

    def run():
        phases = [phase(FullBatch(16), steps=1)]
        torch.manual_seed(0)
        PrivateTraining(linear(), phases, dataset, noise=noise).run()

    run()
    run()  # what it notes in a list makes it no other one
    dataset.fold = -1.0
    with pytest.raises(InputError, match=DRAWN):
        run()


TRAINED = TrainingPhase(FullBatch(1000), 10.0, max_grad_norm=1.0, steps=100, lr=0.1)
ACCOUNTED = {
    "plain": TRAINED,
    "schedule": replace(TRAINED, noise_schedule=lambda step: 0.3),
    "adaptive clip": replace(TRAINED, clipping=AdaptiveClip(quantile=0.5, count_noise=10.0)),
}


@pytest.mark.parametrize("trained", ACCOUNTED.values(), ids=ACCOUNTED)
def test_a_training_phase_is_accounted_with_its_schedule_and_clip(trained):
    asked = (DELTA, "add_remove")
    right = guarantee(trained.accounted_phases, *asked).epsilon
    assert guarantee([trained], *asked).epsilon == right
    assert composition([[trained]], *asked).epsilon == right
    noise = calibrate(lambda noise: [replace(trained, noise_multiplier=noise)], 5.0, *asked)
    (same,) = at_epsilon([trained], 5.0, *asked)
    assert same.noise_multiplier == pytest.approx(noise, rel=2e-3)


def test_phases_may_be_an_iterator_and_nothing_else_than_phases():
    phases = [Phase(Poisson(1000, 10), 1.0, 100)]
    listed = guarantee(phases, DELTA, "add_remove")
    assert guarantee(iter(phases), DELTA, "add_remove") == listed
    assert composition([iter(phases)], DELTA, "add_remove").epsilon == listed.epsilon
    assert at_epsilon(iter([TRAINED]), 2.0) == at_epsilon([TRAINED], 2.0)
    for sampler in (Shuffled(1000, 10), Cyclic(1000, 10)):
        with pytest.raises(InputError, match="relation: found add_remove with the"):
            guarantee(iter([Phase(sampler, 1.0, 100)]), DELTA, "add_remove")
    for wrong in (3, [3], Phase, [Phase], phases[0]):
        with pytest.raises(InputError, match="phases: found"):
            guarantee(wrong, DELTA, "add_remove")
    for wrong in (TRAINED, phases, 3):
        with pytest.raises(InputError, match="phases: found"):
            at_epsilon(wrong, 2.0)
        with pytest.raises(InputError, match="phases: found"):
            PrivateTraining(linear(), wrong, *records(), noise=Noise())
    with pytest.raises(InputError, match="model: found int"):
        PrivateTraining(3, [TRAINED], *records(), noise=Noise())
    with pytest.raises(InputError, match="labels: found list"):
        PrivateTraining(linear(), [TRAINED], records(1000)[0], ["a"] * 1000, noise=Noise())


def test_an_epsilon_in_the_ten_thousands_takes_no_convolutions():
    found = guarantee([Phase(Poisson(100, 10), 1.0, 10**7)], DELTA, "add_remove")
    assert found.accountant == "rdp" and 7e4 < found.epsilon < 2e5


def test_a_refusal_comes_back_from_a_worker():
    with pytest.raises(InputError) as refused:
        Poisson(0, 1)
    again = pickled(refused.value)
    assert str(again) == str(refused.value) and again.where == refused.value.where
