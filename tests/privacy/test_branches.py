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


def tuning(steps):
    return phase(Poisson(N, 6), steps=steps, lr=0.1)


def head_alone(steps, changes=None):
    """A training of the head on the frozen part's outputs, and the network around it."""
    model = network()
    body, head = model.split(["head.weight"])
    x, labels = data()
    with torch.no_grad():
        features = body(x)
    run = PrivateTraining(
        head,
        [phase(Poisson(N, 6), trainable=HEAD, steps=steps, **(changes or {}))],
        features,
        labels,
        noise=Noise("digest", "keyed"),
        shared_noise=SHARED,
    )
    run.run()
    return model, run


def test_a_training_that_goes_on_from_another_is_the_training_of_both_phases():
    probing = phase(Poisson(N, 6), trainable=HEAD, steps=4)
    whole = training([probing, tuning(3)], shared_noise=SHARED)
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
    resumed = training([tuning(5)], network(), shared_noise=SHARED, after=first.ran)
    resumed.restore(*killed.state())
    resumed.run()
    assert torch.equal(flat(weights(resumed.model)), flat(weights(straight.model)))


@pytest.mark.parametrize(
    ("steps", "change", "named"),
    [
        (4, {"noise_multiplier": 0.0}, "after"),
        (4, {"max_grad_norm": 9.0}, "after"),
        (3, {}, "first_step 3"),
    ],
)
def test_a_continuation_of_another_training_does_not_take_its_checkpoint(steps, change, named):
    """Steps without noise, or with less, would go on under the ledger of noisy ones."""
    weaker, first = (head_alone(*given)[1] for given in ((steps, change), (4, {})))
    state = training([tuning(5)], shared_noise=SHARED, after=weaker.ran).state()
    other = training([tuning(5)], shared_noise=SHARED, after=first.ran)
    with pytest.raises(InputError, match=f"another plan: {named}"):
        other.restore(*state)


NAMED = {"shared_noise": SHARED}


@pytest.mark.parametrize(
    ("records", "first", "options", "named"),
    [
        (N, NAMED, {}, "shared_noise"),
        (N, NAMED, {"shared_noise": "another name"}, "shared_noise"),
        (N, NAMED, {**NAMED, "noise": Noise()}, "after: found noise from keyed"),
        (N, NAMED, {**NAMED, "ema_decay": 0.9}, "ema_decay"),
        (N, {}, {}, "shared_noise: found None, None"),
        (9, NAMED, NAMED, "after: found a training on 9 records"),
    ],
)
def test_what_cannot_go_on_from_another_training_is_refused(records, first, options, named):
    before = training([phase(Poisson(records, 3), steps=2)], records=data(records), **first)
    before.run()
    with pytest.raises(InputError, match=named):
        training([tuning(3)], before.model, after=before.ran, **options)
