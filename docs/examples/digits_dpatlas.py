"""A small CNN on scikit-learn's digits, trained privately with dpatlas."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from dpatlas.privacy import (
    Noise,
    Poisson,
    PrivateTraining,
    TrainingPhase,
    at_epsilon,
    to_group_norm,
)

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
train, test = (x[:1500], y[:1500]), (x[1500:], y[1500:])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 10),
)
model = to_group_norm(model)
batches = Poisson(n=1500, batch=100)
steps = 10 * batches.steps_per_epoch
phase = TrainingPhase(
    batches, 1.0, max_grad_norm=1.0, steps=steps, lr=1.0, momentum=0.5, max_physical_batch=64
)
phases = at_epsilon([phase], epsilon=3.0, delta=1e-5)
training = PrivateTraining(model, phases, *train, noise=Noise())


def report(step):
    if step % batches.steps_per_epoch == 0:
        epoch = step // batches.steps_per_epoch - 1
        print(f"epoch {epoch}: epsilon {training.guarantee(1e-5).epsilon:.3f}")


training.run(after_step=report)

model.eval()
with torch.no_grad():
    accuracy = float((model(test[0]).argmax(1) == test[1]).float().mean())
print(f"noise multiplier {phases[0].noise_multiplier:.4f}")
print(f"epsilon {training.guarantee(1e-5).epsilon:.3f}, accuracy {accuracy:.3f}")
