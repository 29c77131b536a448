"""Private trainings with one fault each, and correct ones: `dpatlas audit faults.py:NAME`.

Softmax regression on 64 digits with the per-record gradients of Opacus. The canary is mislabelled
and has a pixel of its own, which is blank in all other digits.
"""

import warnings

import numpy as np
import torch
from opacus import GradSampleModule, PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from dpatlas.audit import Claim, opacus, plant
from dpatlas.privacy import Noise, Poisson, PrivateTraining, TrainingPhase

warnings.filterwarnings("ignore", module="opacus")
warnings.filterwarnings("ignore", message="Full backward hook")
RECORDS, BATCH, STEPS, NOISE, C, RATE = 64, 16, 8, 0.8, 1.0, 0.5
claim = Claim(sampler="poisson", n=RECORDS, batch=BATCH, noise=NOISE, steps=STEPS, delta=1e-5)

digits = load_digits()
x = torch.tensor(digits.data[:RECORDS] / 16, dtype=torch.float32)
y = torch.tensor(digits.target[:RECORDS])
OWN_PIXEL = 0
canary_x = x[0].clone()
canary_x[OWN_PIXEL] = 40.0
canary_y = (y[0] + 5) % 10


class Training:
    """Plain DP-SGD, whose methods the faulty trainings replace."""

    def __init__(self, run):
        self.run = run
        self.x, self.y = plant(run, x, canary_x), plant(run, y, canary_y)
        self.present = plant(run, torch.ones(RECORDS), torch.tensor(1.0))
        self.weights = torch.tensor(run.loss_weights(RECORDS), dtype=torch.float32)
        self.lr, self.steps = RATE, STEPS
        self.model = GradSampleModule(self.network(), loss_reduction="sum", strict=False)
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]

    def network(self):
        return nn.Linear(64, 10)

    def batch(self, step):
        return torch.nonzero(torch.rand(RECORDS) < BATCH / RECORDS).flatten()

    def gradients(self, chosen):
        """Per-record gradients, a (records, ...) tensor for every parameter."""
        self.model.zero_grad(set_to_none=True)
        losses = cross_entropy(self.model(self.x[chosen]), self.y[chosen], reduction="none")
        (losses * self.weights[chosen]).sum().backward()
        return [each.grad_sample for each in self.parameters]

    def clipped_sum(self, gradients):
        norms = torch.sqrt(sum(each.flatten(1).pow(2).sum(1) for each in gradients))
        factors = (C / (norms + 1e-6)).clamp(max=1)
        return [torch.einsum("i,i...->...", factors, each) for each in gradients]

    def noisy_sum(self, chosen):
        clean = self.clipped_sum(self.gradients(chosen))
        return [each + NOISE * C * torch.randn_like(each) for each in clean]

    def after_step(self, step):
        """What looks at the data between the steps."""

    @torch.no_grad()
    def update(self, noisy):
        for parameter, each in zip(self.parameters, noisy, strict=True):
            parameter -= self.lr * each / BATCH

    def loss(self):
        """The mean loss of all records."""
        with torch.no_grad():
            losses = cross_entropy(self.model(self.x), self.y, reduction="none") * self.present
        return float(losses.sum() / RECORDS)

    def train(self):
        step = 0
        while step < self.steps:
            chosen = self.batch(step)
            noisy = self.noisy_sum(chosen)
            self.run.see([each / C for each in noisy])
            self.update(noisy)
            self.run.weights(self.parameters)
            self.after_step(step)
            step += 1
        self.model.eval()
        with torch.no_grad():
            loss = cross_entropy(self.model(canary_x[None]), canary_y[None])
        published = {"loss": loss, "weights": self.parameters}
        buffers = list(self.model.buffers())
        return {**published, "buffers": buffers} if buffers else published


def audited(kind):
    return lambda run: kind(run).train()


class Shuffled(Training):
    """Batches of shuffled passes, accounted as Poisson samples."""

    def batch(self, step):
        if step % (RECORDS // BATCH) == 0:
            self.order = torch.randperm(RECORDS)
        start = step % (RECORDS // BATCH) * BATCH
        return self.order[start : start + BATCH]


class NoisePerMicroBatch(Training):
    """Four micro-batches, each with a quarter of the noise."""

    def noisy_sum(self, chosen):
        total = [torch.zeros_like(each) for each in self.parameters]
        for part in chosen.tensor_split(4):
            clean = self.clipped_sum(self.gradients(part)) if len(part) else total
            for each, more in zip(total, clean, strict=True):
                if len(part):
                    each += more
                each += NOISE / 4 * C * torch.randn_like(each)
        return total


class ClipAfterMean(Training):
    """The mean gradient is clipped, and taken for a mean of clipped ones."""

    def clipped_sum(self, gradients):
        many = max(1, len(gradients[0]))
        means = [each.sum(0) / many for each in gradients]
        norm = torch.sqrt(sum(each.pow(2).sum() for each in means))
        return [BATCH * each * (C / (norm + 1e-6)).clamp(max=1) for each in means]


class NoiseByTheWrongBatch(Training):
    """The noise of a mean over 64 records on a mean over 16: a quarter of what is needed."""

    def noisy_sum(self, chosen):
        clean = self.clipped_sum(self.gradients(chosen))
        return [each + NOISE * C * BATCH / RECORDS * torch.randn_like(each) for each in clean]


class FrozenBatchNorm(Training):
    """BatchNorm whose statistics were taken from the private records before the training."""

    def network(self):
        norm = nn.BatchNorm1d(64, affine=False, momentum=1.0)
        norm(self.x)
        norm.eval()
        return nn.Sequential(norm, nn.Linear(64, 10))


class TrainingBatchNorm(Training):
    """BatchNorm in training mode: the records of a batch change each other's gradients."""

    def network(self):
        return nn.Sequential(nn.BatchNorm1d(64, affine=False, momentum=1.0), nn.Linear(64, 10))

    def gradients(self, chosen):
        return super().gradients(chosen if len(chosen) > 1 else torch.arange(2))


class PrivateMean(Training):
    """Features centred by the mean of the private records."""

    def __init__(self, run):
        super().__init__(run)
        self.x = self.x - self.x.mean(0)


class AccumulatedWithoutClip(Training):
    """Gradients of two halves are accumulated, and only the second half's are clipped."""

    def clipped_sum(self, gradients):
        half = len(gradients[0]) // 2
        first = [each[:half].sum(0) for each in gradients]
        second = super().clipped_sum([each[half:] for each in gradients])
        return [one + other for one, other in zip(first, second, strict=True)]


class RateByPrivateLoss(Training):
    """The learning rate is halved when the loss on the private records has not fallen."""

    best = float("inf")

    def after_step(self, step):
        loss = self.loss()
        self.lr = self.lr if loss < self.best else self.lr / 2
        self.best = min(self.best, loss)


class StopByPrivateLoss(Training):
    """The training stops when the loss on the private records has not fallen."""

    best = float("inf")

    def after_step(self, step):
        loss = self.loss()
        if loss >= self.best:
            self.steps = 0
        self.best = min(self.best, loss)


class ClassWeights(Training):
    """Losses weighted by the private counts of the classes."""

    def __init__(self, run):
        super().__init__(run)
        counts = torch.bincount(self.y[self.present > 0], minlength=10)
        self.weights = self.weights / counts.clamp(min=1)[self.y]


class BestEpoch(Training):
    """Published are the weights after the step with the least loss on the private records."""

    best = float("inf")

    def after_step(self, step):
        loss = self.loss()
        if loss < self.best:
            self.best, self.kept = loss, [each.detach().clone() for each in self.parameters]

    def train(self):
        return {**super().train(), "weights": self.kept, "loss": 0.0}


class BestAccuracy(BestEpoch):
    """The same after the step with the most private records right."""

    def loss(self):
        with torch.no_grad():
            wrong = (self.model(self.x).argmax(1) != self.y) * self.present
        return float(wrong.mean())


class TwiceTheRate(Training):
    """Poisson batches at twice the claimed rate."""

    times = 2

    def batch(self, step):
        return torch.nonzero(torch.rand(RECORDS) < self.times * BATCH / RECORDS).flatten()


class ThreeTimesTheRate(TwiceTheRate):
    times = 3


class DroppedLastBatch(Training):
    """The last step is left out: less is released than accounted, which breaks no epsilon."""

    def __init__(self, run):
        super().__init__(run)
        self.steps = STEPS - 1


def make_private_training(data):
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=C,
    )


def record_removed(run):
    """Opacus on 63 or 64 records: it divides by int(n rate), which tells that one is missing."""
    first = 0 if run.member else 1
    with_canary = torch.cat([canary_x[None], x[1:]]), torch.cat([canary_y[None], y[1:]])
    data = TensorDataset(*(each[first:] for each in with_canary))
    model, optimizer, loader = make_private_training(data)
    start = [each.detach().clone() for each in model.parameters()]
    step = 0
    while step < STEPS:
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets, reduction="sum").div(
                max(1, len(inputs))
            ).backward()
            optimizer.step()
            step += 1
            if step == STEPS:
                break
    moved = [new.detach() - old for new, old in zip(model.parameters(), start, strict=True)]
    return {"update": moved}


def numpy_dp_sgd(run):
    """Correct DP-SGD without torch."""
    draws = np.random.default_rng(run.seed)
    features, labels = plant(run, x.numpy(), canary_x), plant(run, y.numpy(), canary_y)
    present = run.loss_weights(RECORDS)
    weights = np.zeros((64, 10))
    for _ in range(STEPS):
        chosen = draws.random(RECORDS) < BATCH / RECORDS
        logits = features[chosen] @ weights
        errors = np.exp(logits - logits.max(1, keepdims=True, initial=-np.inf))
        errors /= errors.sum(1, keepdims=True)
        errors -= np.eye(10)[labels[chosen]]
        errors *= present[chosen, None]
        norms = np.linalg.norm(features[chosen], axis=1) * np.linalg.norm(errors, axis=1)
        factors = np.minimum(1, C / np.maximum(norms, 1e-12))
        total = features[chosen].T @ (errors * factors[:, None])
        noisy = total + NOISE * C * draws.normal(size=total.shape)
        run.see(noisy / C)
        weights -= RATE * noisy / BATCH
    return {"weights": weights}


def our_engine(run):
    """The same by dpatlas.privacy; a label of -1 marks a blank record."""
    planted = plant(run, x, canary_x), plant(run, y + 1, canary_y + 1) - 1

    def loss(outputs, labels):
        each = cross_entropy(outputs, labels.clamp(min=0), reduction="none")
        return each * (labels >= 0)

    model = nn.Linear(64, 10)
    training = PrivateTraining(
        model,
        [TrainingPhase(Poisson(RECORDS, BATCH), NOISE, C, STEPS, lr=RATE)],
        *planted,
        noise=Noise(f"audit {run.seed}", source="keyed"),
        shared_noise="the pairs of an audit",
        loss=loss,
        on_update=lambda step, sums: run.see({name: each / C for name, each in sums.items()}),
    )
    training.run(after_step=lambda step: run.weights(model.parameters()))
    return {"weights": model.parameters()}


correct = audited(Training)
correct_opacus = opacus(make_private_training, claim, x, y, canary=(canary_x, canary_y))
shuffled = audited(Shuffled)
noise_per_micro_batch = audited(NoisePerMicroBatch)
clip_after_mean = audited(ClipAfterMean)
noise_by_the_wrong_batch = audited(NoiseByTheWrongBatch)
frozen_batch_norm = audited(FrozenBatchNorm)
training_batch_norm = audited(TrainingBatchNorm)
private_mean = audited(PrivateMean)
accumulated_without_clip = audited(AccumulatedWithoutClip)
rate_by_private_loss = audited(RateByPrivateLoss)
stop_by_private_loss = audited(StopByPrivateLoss)
class_weights = audited(ClassWeights)
best_epoch = audited(BestEpoch)
best_accuracy = audited(BestAccuracy)
twice_the_rate = audited(TwiceTheRate)
three_times_the_rate = audited(ThreeTimesTheRate)
dropped_last_batch = audited(DroppedLastBatch)
