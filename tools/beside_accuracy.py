"""Train the same networks with the same settings by dpatlas and Opacus, and print the table.

python tools/beside_accuracy.py mnist|cifar10 FOLDER    (minutes; FOLDER holds copies as in
docs/data.md: the idx files of MNIST, or a tar of CIFAR-10 as an image folder)
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import gzip
import statistics
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpatlas.privacy import Noise, Phase, Poisson, PrivateTraining, TrainingPhase, calibrate

EPSILONS, DELTA, SEEDS, CLIP = (3.0, 8.0), 1e-5, range(3), 1.0
Records = tuple[Tensor, Tensor, Tensor, Tensor]


def mnist(folder: Path) -> Records:
    """Images (n, 1, 28, 28) in [0, 1] and labels, of the training and the test part."""

    def read(name: str, header: int) -> np.ndarray:
        (path,) = folder.glob(f"{name}*")
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        return np.frombuffer(data, np.uint8, offset=header)

    parts = []
    for part in ("train", "t10k"):
        images = read(f"{part}-images", 16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
        labels = read(f"{part}-labels", 8).astype(np.int64)
        parts += [torch.from_numpy(images), torch.from_numpy(labels)]
    return tuple(parts)


def cifar10(folder: Path) -> Records:
    """Features by fixed random filters, (n, 1024) of norm 1, which no private record touches."""
    (path,) = folder.glob("*.tar*")
    images: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    labels: dict[str, list[str]] = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".jpg"):
                part, name = Path(member.name).parts[-3:-1]
                file = archive.extractfile(member)
                assert file is not None
                images[part].append(np.asarray(Image.open(file).convert("RGB")))
                labels[part].append(name)
    classes = sorted(set(labels["test"]))
    draws = torch.Generator().manual_seed(0)
    filters = torch.randn(128, 3, 6, 6, generator=draws)
    filters -= filters.mean((2, 3), keepdim=True)
    parts = []
    for part in ("train", "test"):
        pixels = torch.from_numpy(np.stack(images[part])).permute(0, 3, 1, 2)
        rows = []
        for some in pixels.split(1000):
            maps = F.conv2d(some.float() / 255, filters, stride=2)
            both = torch.cat([F.relu(maps), F.relu(-maps)], 1)
            rows.append(F.normalize(F.adaptive_avg_pool2d(both, 2).flatten(1)))
        parts += [torch.cat(rows), torch.tensor([classes.index(name) for name in labels[part]])]
    return tuple(parts)


def small_cnn() -> nn.Module:
    """Two convolutions and two linear layers, 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


# Reader, network, batch (which divides n: Opacus has the rate 1 / number of batches), steps, lr.
SETTINGS: dict[str, tuple[Callable[[Path], Records], Callable[[], nn.Module], int, int, float]] = {
    "mnist": (mnist, small_cnn, 240, 100, 1.0),
    "cifar10": (cifar10, lambda: nn.Linear(1024, 10), 250, 400, 8.0),
}


def by_dpatlas(model: nn.Module, records: Records, batch: int, steps: int, lr: float, sigma: float):
    """Train, and return the epsilon stated."""
    x, labels, *_ = records
    phase = TrainingPhase(Poisson(len(x), batch), sigma, CLIP, steps, lr=lr)
    training = PrivateTraining(model, [phase], x, labels, noise=Noise())
    training.run()
    return lambda: training.guarantee(DELTA, "add_remove").epsilon


def by_opacus(model: nn.Module, records: Records, batch: int, steps: int, lr: float, sigma: float):
    """Train, and return the epsilon stated."""
    engine = PrivacyEngine()
    wrapped, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=lr),
        data_loader=DataLoader(TensorDataset(*records[:2]), batch_size=batch),
        noise_multiplier=sigma,
        max_grad_norm=CLIP,
    )
    done = 0
    while done < steps:
        for x, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(wrapped(x), labels).backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
    return lambda: engine.get_epsilon(DELTA)


TOOLS = {"dpatlas": by_dpatlas, "Opacus": by_opacus}


def main(name: str, folder: str) -> None:
    """Print one row for each epsilon and tool."""
    warnings.filterwarnings("ignore")
    read, make, batch, steps, lr = SETTINGS[name]
    records = read(Path(folder))
    sampler = Poisson(len(records[0]), batch)
    for target in EPSILONS:
        sigma = calibrate(lambda s: [Phase(sampler, s, steps)], target, DELTA, "add_remove")
        accuracies: dict[str, list[float]] = {tool: [] for tool in TOOLS}
        seconds: dict[str, list[float]] = {tool: [] for tool in TOOLS}
        stated = {}
        for seed in SEEDS:
            for tool, train in TOOLS.items():
                torch.manual_seed(seed)
                model = make()
                began = time.process_time()
                epsilon = train(model, records, batch, steps, lr, sigma)
                seconds[tool].append(time.process_time() - began)
                with torch.no_grad():
                    correct = model.eval()(records[2]).argmax(1) == records[3]
                accuracies[tool].append(100 * float(correct.float().mean()))
                stated[tool] = epsilon()
        for tool, each in accuracies.items():
            accuracy = f"{statistics.mean(each):.2f} ({min(each):.2f} to {max(each):.2f})"
            cost = f"{statistics.median(seconds[tool]):.1f}"
            cells = name, f"{target:g}", f"{sigma:.4f}", tool, f"{stated[tool]:.4f}", accuracy, cost
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
