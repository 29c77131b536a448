"""A plain Opacus training with its own loop, and the lines that an audit needs: `# audit`."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpatlas.audit import Claim, plant, watch_opacus  # audit

claim = Claim(sampler="poisson", n=64, batch=16, noise=0.8, steps=8, delta=1e-5)  # audit
canary = (torch.eye(64)[0] * 40, torch.tensor(3))  # audit: an input and a label


def train(run):  # audit
    digits = load_digits()
    x = torch.tensor(digits.data[:64] / 16, dtype=torch.float32)
    data = TensorDataset(x, torch.tensor(digits.target[:64]))
    data = plant(run, data, canary)  # audit
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        data_loader=DataLoader(data, batch_size=16),
        noise_multiplier=0.8,
        max_grad_norm=1.0,
    )
    watch_opacus(run, optimizer)  # audit
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)
    for _ in range(2):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=8, optimizer=optimizer
        ) as batches:
            for inputs, labels in batches:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
        schedule.step()
    return model  # audit: what is published
