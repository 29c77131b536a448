"""The least noise for an epsilon, by the phases that are trained."""

from dataclasses import replace

import pytest
import torch

from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy import (
    AdaptiveClip,
    FullBatch,
    Poisson,
    PrivateTraining,
    Shuffled,
    TrainingPhase,
    at_epsilon,
    guarantee,
)

N = 100
PHASE = TrainingPhase(FullBatch(N), 4.0, max_grad_norm=1.0, steps=20, lr=0.1)


CASES = {
    "two phases": [replace(PHASE, trainable=("2",)), replace(PHASE, noise_multiplier=2.0)],
    "two samplers": [PHASE, replace(PHASE, sampler=Poisson(N, 10), noise_multiplier=1.0)],
    "a schedule": [replace(PHASE, noise_schedule=lambda step: 1.0 + (step >= 10))],
    "an epoch in random order": [replace(PHASE, sampler=Shuffled(N, 10))],
    "an adaptive clip": [replace(PHASE, clipping=AdaptiveClip(0.5, count_noise=8.0))],
}


@pytest.mark.parametrize("case", CASES)
def test_the_training_has_the_wanted_epsilon_and_no_less_noise_would_do(case):
    """The relation and delta that nobody named are those of the training, too."""
    phases = at_epsilon(CASES[case], 3.0)
    factors = {
        phase.noise_multiplier / given.noise_multiplier
        for phase, given in zip(phases, CASES[case], strict=True)
    }
    assert max(factors) == pytest.approx(min(factors))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x, labels = torch.randn(N, 3), torch.arange(N) % 2
    training = PrivateTraining(model, phases, x, labels, noise=Noise())
    training.run()
    found = training.guarantee()
    assert 2.95 < found.epsilon <= 3.0
    assert (found.relation == "replace_one") == (case == "an epoch in random order")
    less = [replace(phase, noise_multiplier=0.998 * phase.noise_multiplier) for phase in phases]
    assert guarantee(less, found.delta, found.relation).epsilon > 3.0


@pytest.mark.parametrize(
    ("phases", "epsilon", "said"),
    [
        ([PHASE], 0.0, "epsilon: found 0.0"),
        ([PHASE, replace(PHASE, noise_multiplier=0.0)], 1.0, "noise_multiplier: found 0"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(phases, epsilon, said):
    with pytest.raises(InputError, match=said):
        at_epsilon(phases, epsilon)
