"""The trainings of docs/examples/faults.py: every fault is caught, and correct ones are not."""

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer

import faults
from dpatlas.audit import Claim, audit_training, opacus, plant, torch_loop, watch_opacus
from dpatlas.audit.run import Run
from dpatlas.errors import InputError

GRADIENT = "acts through its gradient only"
# The premise that each fault breaks.
BROKEN = {
    "shuffled": "sampling",
    "noise_per_micro_batch": "noise",
    "clip_after_mean": "sensitivity",
    "noise_by_the_wrong_batch": "noise",
    "frozen_batch_norm": "sampling",
    "training_batch_norm": "sensitivity",
    "private_mean": "sampling",
    "accumulated_without_clip": "sensitivity",
    "rate_by_private_loss": "acts through sums only",
    "stop_by_private_loss": "acts through sums only",
    "class_weights": GRADIENT,
    "best_epoch": GRADIENT,
    "best_accuracy": GRADIENT,
}
# What they show to an outsider.
LEAKING = ("clip_after_mean", "frozen_batch_norm", "accumulated_without_clip")
CORRECT = ("correct", "correct_opacus", "numpy_dp_sgd", "our_engine", "dropped_last_batch")


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_breaks_its_premise(name):
    report = audit_training(getattr(faults, name), faults.claim, premises_only=True, seed=1)
    assert BROKEN[name] in [each.name for each in report.violated]
    assert report.exit_code == 1


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(each, marks=pytest.mark.slow) for each in (3, 4))]
)
@pytest.mark.parametrize(
    "name", ["class_weights", "private_mean", "rate_by_private_loss", "best_accuracy", "correct"]
)
def test_records_of_weight_zero_show_what_looks_at_the_data(name, seed):
    """In many pairs, also where the canary is drawn in all of them."""
    report = audit_training(getattr(faults, name), faults.claim, premises_only=True, seed=seed)
    row = next(row for row in report.premises if row.name == GRADIENT)
    assert row.could_show == 20
    assert row.status == ("holds" if name == "correct" else "violated"), str(report)
    shown = int(row.found.split()[1])
    least = {"correct": 0, "best_accuracy": 3}.get(name, 18)
    assert least <= shown and (name != "correct" or shown == 0), row.found
    assert report.exit_code == int(name != "correct")


# What is said of the first steps, and the rate: that of shuffled batches is 1 / 2.5.
RATES = {
    "twice_the_rate": ("as at a rate of", 0.5),
    "three_times_the_rate": ("as at a rate of", 0.75),
    "shuffled": ("once in 4 steps, as in shuffled batches", 0.4),
}


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 3))]
)
@pytest.mark.parametrize("name", RATES)
def test_another_rate_is_told_from_shuffled_batches(name, seed):
    train = getattr(faults, name)
    report = audit_training(train, faults.claim, premises_only=True, pairs=100, seed=seed)
    (row,) = [row for row in report.violated if row.name == "sampling"]
    said, rate = RATES[name]
    assert said in row.found and "or once" not in row.found
    assert abs(report.facts["rate at which the canary is drawn"][1] - rate) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LEAKING, "record_removed"])
def test_a_fault_that_leaks_is_contradicted_by_its_bound(name):
    # The divisor's trace in the noise takes more runs.
    runs = 300 if name == "record_removed" else 100
    report = audit_training(getattr(faults, name), faults.claim, runs=runs, seed=1)
    assert report.contradicted and report.exit_code == 1


@pytest.mark.parametrize("name", CORRECT)
def test_correct_training_breaks_no_premise(name):
    report = audit_training(getattr(faults, name), faults.claim, premises_only=True, seed=1)
    assert report.exit_code == 0, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRECT)
def test_correct_training_is_not_contradicted(name):
    report = audit_training(getattr(faults, name), faults.claim, runs=100, seed=1)
    assert report.exit_code == 0, str(report)


def test_an_opacus_training_with_half_the_noise_is_caught():
    def make_private_training(data):
        model, optimizer, loader = faults.make_private_training(data)
        optimizer.noise_multiplier /= 2
        return model, optimizer, loader

    canary = (faults.canary_x, faults.canary_y)
    train = opacus(make_private_training, faults.claim, faults.x, faults.y, canary)
    report = audit_training(train, train.claim, premises_only=True, pairs=16, seed=1)
    assert "noise" in [each.name for each in report.violated]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_sums_of_opacus_are_those_of_all_batches_that_a_step_accumulates(reduction):
    model = GradSampleModule(torch.nn.Linear(1, 1, bias=False), loss_reduction=reduction)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    options = {"noise_multiplier": 0.0, "max_grad_norm": 0.5, "loss_reduction": reduction}
    optimizer, seen = DPOptimizer(sgd, expected_batch_size=4, **options), []
    run = Run(faults.claim, 1, np.array([True]), lambda _, values: seen.append(values[0]))
    watch_opacus(run, optimizer)
    for _ in range(2):
        # Three records, whose gradients are clipped to the bound.
        losses = model(torch.full((3, 1), 9.0, requires_grad=True))
        (losses.mean() if reduction == "mean" else losses.sum()).backward()
    optimizer.step()
    assert seen == pytest.approx([6.0])
    facts = {"records of a step": [6], "batches of a step": [2], "processes": [1]}
    facts |= {"divisor of a sum": [8]} if reduction == "mean" else {}
    assert run.facts == {**facts, "noise multiplier of each process": [0]}


def test_of_many_canaries_the_score_is_larger_where_the_loss_is_smaller():
    """Without noise, labels of the canaries that are in are learnt."""
    many = 40
    x, y = torch.eye(many), torch.ones(many, dtype=torch.int64)
    claimed = Claim(sampler="full-batch", n=many, noise=1, steps=3, delta=1e-5, canaries=many)

    def start(run, inputs, targets, present):
        model = torch.nn.Linear(many, 2)
        torch.nn.init.zeros_(model.weight)

        def step():
            losses = torch.nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            model.zero_grad()
            (losses * present).sum().backward()
            with torch.no_grad():
                model.weight -= model.weight.grad

        return model, step

    report = audit_training(torch_loop(start, claimed, x, y, (x, y)), claimed, seed=1)
    # Half of all are guessed in, whatever the coins were.
    assert report.one_run.correct >= 0.75 * report.one_run.guesses


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
def test_canaries_take_the_place_of_the_first_records_or_leave_them_blank(like):
    records = like(np.arange(12.0).reshape(4, 3))
    coins = np.array([True, False])
    run = Run(Claim(epsilon=1, delta=1e-5, canaries=2), 1, coins)
    planted = plant(run, records, like(np.array([[7.0, 7, 7], [8, 8, 8]])))
    assert np.asarray(planted).tolist() == [[7, 7, 7], [0, 0, 0], [6, 7, 8], [9, 10, 11]]
    assert np.asarray(records)[0].tolist() == [0, 1, 2]
    for wrong in (np.zeros(2), np.zeros((3, 3))):
        with pytest.raises(InputError, match="canary"):
            plant(run, records, wrong)


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
def test_under_replace_one_the_canary_stands_against_the_record_itself(like):
    records = like(np.arange(6).reshape(3, 2))
    for member, first in ((True, [7, 7]), (False, [0, 1])):
        run = Run(Claim(epsilon=1, delta=1e-5, relation="replace_one"), 1, np.array([member]))
        planted = plant(run, records, like(np.array([7, 7])))
        assert np.asarray(planted).tolist() == [first, [2, 3], [4, 5]]


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("wrong", [[-1, 300], [7.5, 0]])
def test_a_canary_that_the_records_type_cannot_hold_is_refused(like, wrong):
    run = Run(Claim(epsilon=1, delta=1e-5), 1, np.array([True]))
    with pytest.raises(InputError, match=r"canary: found .*uint8, can hold"):
        plant(run, like(np.zeros((3, 2), dtype=np.uint8)), np.array(wrong))


def test_the_adapters_refuse_data_that_do_not_fit_the_claim():
    canary = (faults.canary_x, faults.canary_y)
    with pytest.raises(InputError, match="63 records"):
        torch_loop(lambda *_: None, faults.claim, faults.x[1:], faults.y[1:], canary)
    with pytest.raises(InputError, match="no settings"):
        torch_loop(lambda *_: None, Claim(epsilon=1, delta=1e-5), faults.x, faults.y, canary)
