"""`groups=`: a person with all of their records is drawn, clipped, counted and protected."""

import copy

import numpy as np
import pytest
import torch
from places import put
from reference_gradients import per_record_gradients
from small_training import (
    Empty,
    Jitter,
    N,
    data,
    flat,
    kept_sums,
    network,
    phase,
    sums_of,
    training,
    weights,
)

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson
from dpatlas.base.seeds import Noise
from dpatlas.epsilon.ledgers import total_spent
from dpatlas.errors import InputError
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.training import PrivateTraining

pytestmark = pytest.mark.usefixtures("device")

# Persons 3, 5, 7, ... with 1, 1, 2, 2, 3, 3, 5 and 6 records, in no order.
COUNTS = [1, 1, 2, 2, 3, 3, 5, 6]
IDS = np.random.default_rng(4).permutation(np.repeat(3 + 2 * np.arange(len(COUNTS)), COUNTS))
PERSONS = len(COUNTS)
CLIP = 0.5


def persons_training(phases, model=None, noise=None, ids=IDS, **options) -> PrivateTraining:
    return training(phases, model or network("mlp"), noise or Noise(), groups=ids, **options)


def clipped_sum(x, labels, ids, model, **options):
    """The noise-free sum of one step on all persons, by parameter."""
    # A copy, as the step moves it.
    model = copy.deepcopy(model)
    changes = {"noise_multiplier": 0.0, "steps": 1, "max_grad_norm": CLIP}
    changes["max_physical_batch"] = options.pop("max_physical_batch", None)
    phases = [phase(FullBatch(len(np.unique(ids))), **changes)]
    (found,) = sums_of(persons_training(phases, model, ids=ids, records=(x, labels), **options))
    return found


def by_hand(x, labels, ids, model):
    """Mean gradients of persons, clipped and summed one by one."""
    gradients = per_record_gradients(model, x, labels)
    total = {name: torch.zeros_like(rows[0]) for name, rows in gradients.items()}
    for person in np.unique(ids):
        rows = torch.from_numpy(np.flatnonzero(ids == person)).to(x.device)
        mean = {name: value[rows].mean(0) for name, value in gradients.items()}
        norm = sum(value.square().sum() for value in mean.values()).sqrt()
        for name, value in mean.items():
            total[name] += value * (CLIP / norm).clamp_max(1)
    return total


@pytest.mark.parametrize("limit", [None, 1, 4])
@pytest.mark.parametrize("name", ["linear", "mlp", "small-cnn-t"])
def test_a_person_s_gradient_is_the_mean_over_their_records_clipped_once(name, limit):
    x, labels = data()
    model = network(name)
    expected = by_hand(x, labels, IDS, model)
    found = clipped_sum(x, labels, IDS, model, max_physical_batch=limit)
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("person", np.unique(IDS)[[0, 3, 7]])
@pytest.mark.parametrize("name", ["linear", "small-cnn-t"])
def test_all_records_of_a_person_move_the_sum_by_the_clip_bound_at_most(name, person):
    x, labels = data()
    model, theirs = network(name), person == IDS
    whole = clipped_sum(x, labels, IDS, model)
    kept = torch.from_numpy(~theirs).to(x.device)
    without = clipped_sum(x[kept], labels[kept], IDS[~theirs], model)
    moved = (flat(whole) - flat(without)).norm()
    assert 0.5 * CLIP < moved <= CLIP * (1 + 1e-3)
    # Other records, other labels, and more of them.
    other, marks = x.clone(), labels.clone()
    rows = torch.from_numpy(theirs).to(x.device)
    other[rows] *= -1e3
    marks[rows] = (marks[rows] + 1) % 5
    more, extra = torch.cat([other, -other[rows]]), torch.cat([marks, marks[rows]])
    replaced = clipped_sum(more, extra, np.append(IDS, IDS[theirs]), model)
    assert (flat(whole) - flat(replaced)).norm() <= 2 * CLIP * (1 + 1e-3)


def test_persons_are_drawn_with_all_their_records_and_the_divisor_counts_persons():
    x, labels = data()
    sampler, model = Poisson(PERSONS, 3), network("linear")
    run = persons_training([phase(sampler, noise_multiplier=0.0, steps=8, lr=1.0)], model)
    sums = kept_sums(run)
    people, sizes = np.unique(IDS), set()
    for step in range(8):
        drawn = sampler.batch_indices(run.noise, 0, step)
        before = weights(model)
        theirs = np.isin(IDS, people[drawn])
        rows = torch.from_numpy(theirs).to(x.device)
        sizes.add((len(drawn), int(theirs.sum())))
        expected = flat(by_hand(x[rows], labels[rows], IDS[theirs], model)) if theirs.any() else 0.0
        run.step()
        torch.testing.assert_close(
            flat(sums[-1]), expected + 0 * flat(before), rtol=1e-3, atol=1e-5
        )
        moved = flat(before) - flat(weights(model))
        torch.testing.assert_close(moved, flat(sums[-1]) / 3, rtol=1e-3, atol=1e-5)
    assert len(sizes) > 2


@pytest.mark.parametrize(
    ("sampler", "relation", "words"),
    [
        (Poisson(PERSONS, 3), "add_remove", "add or remove one person with all of their records"),
        (FixedSize(PERSONS, 3), "replace_one", "replace one person with all of their records"),
    ],
)
def test_guarantee_and_ledger_are_per_person(sampler, relation, words):
    run = persons_training([phase(sampler)])
    run.run()
    assert run.guarantee() == guarantee([Phase(sampler, 1.5, 6)], 1e-5, relation)
    ledger = run.ledger()
    assert ledger["neighbour_relation"].startswith(words)
    assert ledger["sampler"]["n"] == PERSONS
    unit = ledger["unit"]
    assert unit["what"] == "person (group of records)"
    assert (unit["persons"], unit["most_records_of_a_person"], unit["records"]) == (8, 6, N)
    assert "unit" not in training([phase()], noise=Noise()).ledger()


def test_the_default_delta_is_by_the_number_of_persons():
    ids = np.arange(20_002) // 2
    records = torch.zeros(20_002, 64), torch.zeros(20_002, dtype=torch.int64)
    phases = [phase(Poisson(10_001, 3))]
    run = persons_training(phases, network("linear"), ids=ids, records=tuple(map(put, records)))
    assert run.guarantee().delta == 0.1 / 10_001


def test_ledgers_of_persons_add_up_with_each_other_and_not_with_ledgers_of_records():
    of_persons, of_records = [
        run.ledger()
        for run in (
            persons_training([phase(Poisson(PERSONS, 3))]),
            training([phase()], None, Noise()),
        )
        if run.run() is None
    ]
    both = total_spent({"one": of_persons, "other": of_persons})
    assert both.epsilon > of_persons["epsilon"]
    with pytest.raises(InputError, match="one person and one record; allowed: ledgers of one unit"):
        total_spent({"one": of_persons, "other": of_records})


def test_persons_with_one_record_each_are_records():
    found = []
    for ids in (None, np.arange(N)[::-1] * 10):
        model = network("mlp")
        changes = {"noise_multiplier": 0.0, "steps": 4}
        training([phase(FullBatch(N), **changes)], model, Noise(), groups=ids).run()
        found.append(flat(weights(model)))
    torch.testing.assert_close(*found)


def test_persons_never_go_through_the_closed_form():
    """It clips records."""
    assert training([phase()], network("linear"), Noise()).record is None
    for ids in (IDS, np.arange(N)):
        sampler = FullBatch(len(np.unique(ids)))
        assert persons_training([phase(sampler)], network("linear"), ids=ids).record is not None


def test_identical_views_of_every_record_change_nothing():
    x, labels = data()
    view = ShiftAndFlip((1, 8, 8), views=3, padding=0, flip=False)
    plain = clipped_sum(x, labels, IDS, network("small-cnn-t"))
    viewed = clipped_sum(x, labels, IDS, network("small-cnn-t"), augmentation=view)
    torch.testing.assert_close(flat(plain), flat(viewed), rtol=1e-3, atol=1e-5)


def test_an_empty_batch_of_persons_is_a_step_of_noise():
    model = network("mlp")
    before = weights(model)
    persons_training(
        [phase(Empty(PERSONS, 3), steps=1, lr=1.0)], model, augmentation=Jitter()
    ).run()
    moved = (flat(weights(model)) - flat(before)) / (1.5 * 0.5 / 3)
    assert 0.9 < float(moved.std()) < 1.1


def test_a_record_that_is_not_finite_takes_its_person_out():
    x, labels = data()
    person = np.unique(IDS)[5]
    x[int(np.flatnonzero(person == IDS)[1])] = torch.nan
    run = persons_training([phase(FullBatch(PERSONS), steps=2)], records=(x, labels))
    run.run()
    assert run.skipped_records == 2
    assert all(torch.isfinite(value).all() for value in run.model.parameters())


def test_a_state_of_other_persons_is_refused_and_other_persons_are_another_training():
    run = persons_training([phase(Poisson(PERSONS, 3))], noise=Noise("digest", "keyed"))
    run.step()
    swapped = IDS.copy()
    swapped[[np.flatnonzero(IDS == 3)[0], np.flatnonzero(IDS == 17)[0]]] = [17, 3]
    other = persons_training(
        [phase(Poisson(PERSONS, 3))], noise=Noise("digest", "keyed"), ids=swapped
    )
    with pytest.raises(InputError, match="a state of another plan: groups"):
        other.restore(*run.state())
    with pytest.raises(InputError, match="noise that another training has drawn"):
        other.step()


@pytest.mark.parametrize(
    ("ids", "sampler", "message"),
    [
        (IDS[1:], Poisson(PERSONS, 3), r"groups: found int64 of shape \(22,\)"),
        (IDS.astype(float), Poisson(PERSONS, 3), "groups: found float64"),
        (IDS, Poisson(N, 3), "sampler: found batches of 23 persons; allowed: of 8"),
    ],
)
def test_groups_that_do_not_fit_are_refused(ids, sampler, message):
    with pytest.raises(InputError, match=message):
        persons_training([phase(sampler)], ids=ids)
