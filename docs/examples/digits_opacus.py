"""A small CNN on scikit-learn's digits, trained privately with Opacus."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.validators import ModuleValidator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
train, test = TensorDataset(x[:1500], y[:1500]), (x[1500:], y[1500:])

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
model = ModuleValidator.fix(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
loader = DataLoader(train, batch_size=100)
engine = PrivacyEngine(accountant="prv")
model, optimizer, loader = engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=loader,
    target_epsilon=3.0,
    target_delta=1e-5,
    epochs=10,
    max_grad_norm=1.0,
)
criterion = nn.CrossEntropyLoss()

for epoch in range(10):
    model.train()
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=64, optimizer=optimizer
    ) as batches:
        for images, labels in batches:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
    print(f"epoch {epoch}: epsilon {engine.get_epsilon(1e-5):.3f}")

model.eval()
with torch.no_grad():
    accuracy = float((model(test[0]).argmax(1) == test[1]).float().mean())
print(f"noise multiplier {optimizer.noise_multiplier:.4f}")
print(f"epsilon {engine.get_epsilon(1e-5):.3f}, accuracy {accuracy:.3f}")
