"""A small private training: data, networks, samplers, phases, and the weights that it moves."""

import json

import numpy as np
import torch
from places import put
from torch import nn

from dpatlas.accounting.ledger import Ran
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson, Shuffled
from dpatlas.base.canonical import canonical_json
from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.seeds import Noise
from dpatlas.models.build import build
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

N, OUTPUTS = 23, 5
SAMPLERS = [Poisson(N, 6), FixedSize(N, 6), Shuffled(N, 6), FullBatch(N)]


def data(n: int = N):
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(n, 64, generator=draws)
    return put(x), put(torch.randint(0, OUTPUTS, (n,), generator=draws))


def network(name: str = "small-cnn-t", run: int = 0) -> nn.Module:
    return put(build(name, (1, 8, 8), OUTPUTS, key="test", run=run, base_seed=0))


def phase(sampler=SAMPLERS[0], **changes) -> TrainingPhase:
    settings = {"noise_multiplier": 1.5, "max_grad_norm": 0.5, "steps": 6, "lr": 0.3}
    return TrainingPhase(sampler, **{**settings, **changes})


def training(phases, model=None, noise=None, records=None, **options) -> PrivateTraining:
    model = network() if model is None else model
    x, labels = data() if records is None else records
    return PrivateTraining(
        model, phases, x, labels, noise=noise or Noise("digest", "keyed"), **options
    )


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def flat(tensors) -> torch.Tensor:
    return torch.cat([tensor.flatten().cpu() for tensor in tensors.values()])


def kept_sums(run: PrivateTraining) -> list[dict[str, torch.Tensor]]:
    """A list to which each step of the training adds its noisy sums, by parameter."""
    sums: list[dict[str, torch.Tensor]] = []
    run.on_update = lambda step, found: sums.append({k: v.clone() for k, v in found.items()})
    return sums


def sums_of(run: PrivateTraining) -> list[dict[str, torch.Tensor]]:
    """The noisy sums of each step of the training, which runs to its end."""
    sums = kept_sums(run)
    run.run()
    return sums


class Empty(Poisson):
    """Batches without a record."""

    accounted_as = Poisson.name

    def batch_indices(self, noise, repetition, step):
        return np.empty(0, dtype=np.int64)


class Jitter:
    """Two noisy views of each record."""

    views = 2

    def draw(self, draws, records):
        return torch.from_numpy(draws.standard_normal((records, 2, 64), dtype=np.float32))

    def apply(self, x, parameters):
        return (x[:, None] + 0.1 * parameters).flatten(0, 1)


def check_resumes(fresh, folder, source="os") -> None:
    """Another process goes on to the same sums and weights from the state after any step.

    fresh(noise, on_update): a training from the start, in a process of its own as it were.
    """

    def record(seen):
        return lambda step, sums: seen.append((step, flat(sums).clone()))

    def checkpoint(step):
        return Checkpoints(folder / f"after {step}", {"run": "one"})

    expected: list = []
    whole = fresh(Noise("digest", source), record(expected))
    checkpoint(0).save("state", *whole.state())
    for step in range(whole.steps):
        whole.step()
        checkpoint(step + 1).save("state", *whole.state())
    assert whole.steps == len(expected) > 2
    for killed_after in range(whole.steps + 1):
        seen: list = []
        second = fresh(Noise("digest", source), record(seen))
        second.restore(*checkpoint(killed_after).load("state"))
        second.run()
        rest = expected[killed_after:]
        assert [step for step, _ in seen] == [step for step, _ in rest]
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(seen, rest, strict=True))
        assert torch.equal(flat(weights(second.model)), flat(weights(whole.model)))
        if whole.ema is not None:
            assert torch.equal(flat(second.ema), flat(whole.ema))
        assert second.ledger() == whole.ledger()
    assert Ran.of(json.loads(canonical_json(whole.ran.facts()))) == whole.ran
