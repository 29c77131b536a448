"""Trainings that share their noise: by the parameter's name, and several that go on from one."""

import pytest
import torch
from small_training import N, data, flat, network, phase, sums_of, training, weights

from dpatlas.accounting.samplers import Poisson, Shuffled
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.training import PrivateTraining

SHARED = "arms of a run"
HEAD = ("head",)


def no_signal(output, labels):
    return output.sum(1) * 0.0


def noise_of_steps(trainable):
    """The noisy sums of three steps without a signal, by parameter."""
    three = phase(trainable=trainable, steps=3)
    return sums_of(training([three], loss=no_signal, shared_noise=SHARED))


def test_a_parameter_gets_the_same_noise_whichever_others_are_trained_with_it():
    for head, everything in zip(noise_of_steps(HEAD), noise_of_steps(("",)), strict=True):
        assert set(head) < set(everything)
        for name, noisy in head.items():
            assert torch.equal(noisy, everything[name])
        # Parameters of equal size have noise of their own.
        flat_of_all = flat(everything)
        assert len(flat_of_all.unique()) == len(flat_of_all)


def probing(steps, **changes):
    return phase(Poisson(N, 6), trainable=HEAD, steps=steps, **changes)


def tuning(steps):
    return phase(Poisson(N, 6), steps=steps, lr=0.1)


def head_alone(steps, **changes):
    """A training of the head on the frozen part's outputs, and the network around it."""
    model = network()
    body, head = model.split(["head.weight"])
    x, labels = data()
    with torch.no_grad():
        features = body(x)
    run = PrivateTraining(
        head,
        [probing(steps, **changes)],
        features,
        labels,
        noise=Noise("digest", "keyed"),
        shared_noise=SHARED,
    )
    run.run()
    return model, run


def test_a_training_that_goes_on_from_another_is_the_training_of_both_phases():
    whole = training([probing(4), tuning(3)], shared_noise=SHARED)
    whole.run()
    model, first = head_alone(4)
    second = training([tuning(3)], model, shared_noise=SHARED, after=first.ran)
    second.run()
    for name, value in weights(whole.model).items():
        torch.testing.assert_close(weights(model)[name], value, rtol=1e-4, atol=1e-5)
    assert second.ran.phases == whole.ran.phases
    assert second.ran.max_grad_norm == whole.ran.max_grad_norm
    assert second.guarantee(1e-3) == whole.guarantee(1e-3)
    # Not the noise of the first steps once more.
    model, _ = head_alone(4)
    from_the_start = training([tuning(3)], model, shared_noise=SHARED)
    from_the_start.run()
    assert not torch.allclose(flat(weights(model)), flat(weights(whole.model)), atol=1e-3)


def test_the_relation_is_one_that_the_first_training_s_batches_have_too():
    first = training([phase(Shuffled(N, 6), steps=2)], shared_noise=SHARED)
    first.run()
    second = training([tuning(3)], first.model, shared_noise=SHARED, after=first.ran)
    second.run()
    assert second.guarantee(1e-3).relation == "replace_one"


def test_a_killed_continuation_resumes_to_the_same_bits():
    model, first = head_alone(4)
    straight = training([tuning(5)], model, shared_noise=SHARED, after=first.ran)
    straight.run()
    model, first = head_alone(4)
    killed = training([tuning(5)], model, shared_noise=SHARED, after=first.ran)
    killed.step()
    killed.step()
    arrays, facts = killed.state()
    resumed = training([tuning(5)], network(), shared_noise=SHARED, after=first.ran)
    resumed.restore(arrays, facts)
    resumed.run()
    assert torch.equal(flat(weights(resumed.model)), flat(weights(straight.model)))
    _, shorter = head_alone(3)
    other = training([tuning(5)], network(), shared_noise=SHARED, after=shorter.ran)
    with pytest.raises(InputError, match="first_step 4"):
        other.restore(arrays, facts)


@pytest.mark.parametrize("change", [{"noise_multiplier": 0.0}, {"max_grad_norm": 9.0}])
def test_a_continuation_of_another_training_does_not_take_its_checkpoint(change):
    """Steps without noise, or with less, would go on under the ledger of noisy ones."""
    _, weaker = head_alone(4, **change)
    arrays, facts = training([tuning(5)], shared_noise=SHARED, after=weaker.ran).state()
    _, first = head_alone(4)
    other = training([tuning(5)], shared_noise=SHARED, after=first.ran)
    with pytest.raises(InputError, match="another plan: after"):
        other.restore(arrays, facts)


def test_a_state_of_before_branches_is_refused_by_name():
    run = training([tuning(5)], shared_noise=SHARED)
    arrays, facts = run.state()
    for name in ("first_step", "after"):
        del facts["plan"][name]
    with pytest.raises(InputError, match="another plan: first_step None"):
        run.restore(arrays, facts)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "shared_noise"),
        ({"shared_noise": "another name"}, "shared_noise"),
        ({"shared_noise": SHARED, "noise": Noise()}, "after: found noise from keyed"),
        ({"shared_noise": SHARED, "ema_decay": 0.9}, "ema_decay"),
    ],
)
def test_what_cannot_go_on_from_another_training_is_refused(options, named):
    model, first = head_alone(2)
    with pytest.raises(InputError, match=named):
        training([tuning(3)], model, after=first.ran, **options)


def test_a_training_without_a_shared_name_goes_on_from_none():
    first = training([tuning(2)])
    first.run()
    with pytest.raises(InputError, match="shared_noise: found None, None"):
        training([tuning(3)], first.model, after=first.ran)


def test_a_training_does_not_go_on_from_one_on_fewer_records():
    first = training([phase(Poisson(9, 3), steps=2)], records=data(9), shared_noise=SHARED)
    first.run()
    with pytest.raises(InputError, match="after: found a training on 9 records"):
        training([tuning(3)], first.model, shared_noise=SHARED, after=first.ran)
