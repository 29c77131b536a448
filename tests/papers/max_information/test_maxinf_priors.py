"""Priors: DP-SGD by hand, its noise-only twin, what is paid, and what is not paid for."""

import copy
from itertools import product

import maxinf_small as small
import numpy as np
import pytest
import torch
from maxinf_small import N
from small_jobs import labelled

from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.kappa import kappa
from dpatlas.models.mean_field import flat_values
from dpatlas.privacy.noise import add_noise
from dpatlas_workflow.papers.max_information.jobs import priors
from dpatlas_workflow.papers.max_information.records.certificates import CertificatesSpec
from dpatlas_workflow.papers.max_information.records.certified import DpSgdPrior

TWINS = [DpSgdPrior(kind=kind, **small.TUPLE) for kind in ("dp-sgd", "noise-only")]


@pytest.fixture
def data():
    arrays = labelled({"train": N}, margin=4)
    return tuple(torch.from_numpy(arrays[f"{part}_train"]) for part in "xy")


def network():
    return small.law().network


def trained(prior, data, repetition=0, watch=None):
    training = priors.prior_training(
        prior, network(), *data, noise=Noise("spec", "keyed"), repetition=repetition
    )
    training.on_update = watch
    training.run()
    return flat_values(training.model), training


def sums_of(prior, data, **keys):
    """Noisy sums of every step, (steps, parameters)."""
    found = []

    def watch(step, sums):
        found.append(torch.cat([part.flatten() for part in sums.values()]))

    trained(prior, data, watch=watch, **keys)
    return torch.stack(found)


def noise_of(step, scale, repetition):
    parts = {name: torch.zeros_like(value) for name, value in network().named_parameters()}
    add_noise(parts, scale, Noise("spec", "keyed"), repetition=repetition, step=step)
    return torch.cat([part.flatten() for part in parts.values()])


def clipped_sum(model, x, labels, zeta):
    """One record at a time, in float64."""
    model = copy.deepcopy(model).double()
    total = 0
    for row, label in zip(x.double(), labels, strict=True):
        loss = torch.nn.functional.cross_entropy(model(row[None]), label[None])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        total = total + gradient * min(1.0, zeta / gradient.norm().item())
    return total


def test_noise_only_releases_the_noise_of_its_twin_which_adds_its_clipped_gradients(data):
    assert len({priors.repetition_of(declared(), twin, N, 1) for twin in TWINS}) == 1
    dp_sgd, noise_only = (twin.model_copy(update={"sigma": 0.5}) for twin in TWINS)
    both, alone = (sums_of(prior, data, repetition=5) for prior in (dp_sgd, noise_only))
    assert len(alone) == 3
    for step, released in enumerate(alone):
        assert torch.equal(released, noise_of(step, 0.5, 5))
    batch = priors.phase_of(dp_sgd, N).sampler.batch_indices(Noise("spec", "keyed"), 5, 0)
    signal = clipped_sum(network(), data[0][batch], data[1][batch], 0.1)
    np.testing.assert_allclose((both[0] - alone[0]).numpy(), signal.numpy(), atol=1e-5)
    # A step is the rate over m times the sum.
    centre, _ = trained(dp_sgd, data, repetition=5)
    expected = flat_values(network()) - 2.0 / 8 * both.sum(0)
    np.testing.assert_allclose(centre.numpy(), expected.numpy(), atol=1e-5)


def test_noise_only_sees_no_record(data):
    x, labels = data
    broken = torch.full_like(x, torch.nan), (labels + 1) % 3
    first, _ = trained(TWINS[1], data)
    second, training = trained(TWINS[1], broken)
    assert torch.equal(first, second) and training.skipped_records == 0
    assert not torch.equal(first, trained(TWINS[0], data)[0])


def test_tuples_samplers_and_runs_have_noise_of_their_own():
    axes = product((0.1, 0.2), (2.0, 4.0), (1, 2), ("shuffled", "cyclic"), range(3))
    keys = [
        priors.repetition_of(
            declared(),
            DpSgdPrior(**small.DP_SGD | {"zeta": zeta, "lr": lr, "E": E, "sampler": sampler}),
            N,
            run,
        )
        for zeta, lr, E, sampler, run in axes
    ]
    assert len(set(keys)) == len(keys) == 2 * 2 * 2 * 2 * 3


def test_a_priors_ledger_is_that_of_its_training_and_says_that_kappa_is_paid(data):
    entry = priors.prior_ledger(TWINS[0], N, 0.01, delta=1e-5, noise_source="keyed")
    assert entry["kappa"]["optimised"] == float(kappa(8, 0.1, 1.0, 3, 1, 0.01)) > 0
    _, training = trained(TWINS[0], data)
    (phase,) = training.ran.phases
    assert (entry["steps"], entry["noise_multiplier"]) == (phase.steps, phase.noise_multiplier)
    assert entry["clip"] == training.ran.max_grad_norm[0]
    assert entry["epsilon"] == training.guarantee(1e-5, "replace_one").epsilon > 0
    # An epoch is floor(n / m) disjoint batches.
    phase = priors.phase_of(TWINS[0].model_copy(update={"m": 7, "E": 3}), N)
    assert (phase.sampler.name, phase.sampler.batch, phase.steps) == ("shuffled", 7, 3 * (N // 7))


def declared(**changes):
    return CertificatesSpec.model_validate({**small.FIELDS, **changes})


def grid(**changes):
    return {**small.FIELDS["grid"], **changes}


def test_a_smaller_K1_pays_for_the_tuples_of_lowest_kappa_of_each_kind():
    """kappa rises with zeta and E: (.1, E 1) first, two rates each."""
    priors.check_declared(declared(), N)
    fewer = declared(K1=2, taus=[0.2])
    assert [(one.zeta, one.E) for one in priors.declared(fewer, N)] == [(0.1, 1), (0.1, 1)]
    priors.check_declared(fewer, N)
    more = [{**small.DP_SGD, "lr": lr} for lr in (2.0, 4.0)]
    with pytest.raises(InputError, match="K1: found 1; allowed: a whole number >= 2"):
        priors.check_declared(declared(K1=1, priors=more), N)
    # Kinds are compared, not chosen among, so each has the budget for itself.
    with pytest.raises(InputError, match="one of the 1 tuples"):
        priors.check_declared(declared(K1=1, priors=more[1:]), N)


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"K1": 2}, {"zeta": 0.2}, r"zeta 0\.2, lr 2, E 1; allowed: one of the 2 tuples"),
        ({}, {"m": 6}, "m 6, sigma 1; allowed: m 8, sigma 1, as declared"),
        ({"grid": grid(m=25)}, {"m": 25}, "grid.m: found 25; allowed: at most n_train = 24"),
        ({"K2": 1}, {}, "K2: found 1; allowed: a whole number >= 2, the number tried"),
        ({"grid": grid(taus=[0.4])}, {}, "taus: found 0.2; allowed: of the declared grid: 0.4"),
    ],
)
def test_what_is_not_declared_is_refused(changes, given, message):
    spec = declared(priors=[{**small.DP_SGD, **given}], taus=[0.2], **changes)
    with pytest.raises(InputError, match=message):
        priors.check_declared(spec, N)
