"""What the paper tier reads, in miniature: data sets in their published formats, and weight files.

Weights are of the real networks, drawn at random. No miniature has the published checksum or size:
`expected` says what it has, for the run's processes, whose `sitecustomize` believes it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from miniatures import Cifar10, Cifar100, Mnist, Stl10, Xrays
from torch import Tensor

from dpatlas.base.networks import PUBLISHED
from dpatlas.data.definitions import DataSet
from dpatlas.models import deit
from dpatlas.models.imagenet import SIDE
from dpatlas_workflow.checks.pretrain.jobs.imported import DEIT, listed

OUTPUTS = 1000
# How many digits of its sha256 a file has in its name.
DIGITS = 8


class Entries(dict):
    """What a miniature makes of the registry, which itself stays as it is."""

    def setitem(self, registry: Mapping[str, DataSet], name: str, entry: DataSet) -> None:
        """As pytest's monkeypatch has it."""
        self[name] = entry


def write_data(served: Path, root: Path) -> dict[str, DataSet]:
    """Archives into `served`, the X-rays', which is never fetched, into `root`; their entries."""
    entries = Entries()
    photographs = Cifar10(entries)
    # No two images alike, which kernels of records need.
    random = np.random.default_rng(3)
    photographs.batches = {
        name: (random.integers(0, 256, data.shape, dtype=np.uint8), labels)
        for name, (data, labels) in photographs.batches.items()
    }
    photographs.write_archive(served)
    for official in (Cifar100(entries), Stl10(entries)):
        official.write_archive(served)
    Mnist(entries).write_archives(served)
    Xrays(entries).write_archive(root)
    return entries


def expected(entries: Mapping[str, DataSet], address: str) -> dict[str, Any]:
    """Counts, checksums and files below `address`, by data set."""
    return {
        name: {
            "counts": dict(entry.counts),
            "unpacked_md5": dict(entry.unpacked_md5),
            "files": [
                {**asdict(file), "address": f"{address}/{file.name}"} for file in entry.files
            ],
        }
        for name, entry in entries.items()
    }


def write_weights(model: str, served: Path) -> tuple[str, str]:
    """A file for the network `model` into `served`; its published address, and the file's name."""
    address, classes = listed(model)
    assert len(classes) == OUTPUTS
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        content = published(model)
    torch.save(content, served / "new")
    digest = hashlib.sha256((served / "new").read_bytes()).hexdigest()[:DIGITS]
    name = re.sub(r"-[0-9a-f]+\.pth$", f"-{digest}.pth", address.rpartition("/")[2])
    (served / "new").rename(served / name)
    return address, name


def published(model: str) -> dict[str, Any]:
    """What the file of that network holds, with weights drawn at random."""
    from torchvision.models import get_model

    if model == DEIT:
        return {deit.ENTRY: {name: _drawn(name, shape) for name, shape in deit_shapes().items()}}
    return get_model(PUBLISHED[model].name, num_classes=OUTPUTS).state_dict()


def deit_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of DeiT-tiny's tensors, as published."""
    width, tokens = deit.DIM, (SIDE // deit.PATCH) ** 2 + 1
    layers: dict[str, tuple[int, ...]] = {
        "patch_embed.proj": (width, 3, deit.PATCH, deit.PATCH),
        "head": (OUTPUTS, width),
    }
    for block in range(deit.DEPTH):
        layers[f"blocks.{block}.attn.qkv"] = (3 * width, width)
        layers[f"blocks.{block}.attn.proj"] = (width, width)
        layers[f"blocks.{block}.mlp.fc1"] = (deit.MLP_RATIO * width, width)
        layers[f"blocks.{block}.mlp.fc2"] = (width, deit.MLP_RATIO * width)
        layers |= {f"blocks.{block}.{name}": (width,) for name in ("norm1", "norm2")}
    layers["norm"] = (width,)
    shapes = {"cls_token": (1, 1, width), "pos_embed": (1, tokens, width)}
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def _drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    if "norm" in name:
        return (torch.ones if name.endswith("weight") else torch.zeros)(shape)
    return 0.02 * torch.randn(shape)
