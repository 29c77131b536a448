"""Trained backbones on disk: `weights.npz`, and beside it `manifest.json` with its checksum.

The manifest says what the network is (architecture, image shape, classes) and how it was trained.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpatlas.base.arrays import packed, read_arrays
from dpatlas.base.files import remove_parts, write_atomic, write_json
from dpatlas.base.guard import checked, integer
from dpatlas.data.prepared import MANIFEST, content_sha256, read_manifest
from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.models.network import Network

SCHEMA_VERSION = 1
WEIGHTS = "weights.npz"
# Records in memory at a time while features are taken.
CHUNK = 1024


@dataclass(frozen=True)
class Backbone:
    """A trained network and its manifest.

    The manifest holds architecture, options, image_shape, classes (of the head, in the order of its
    outputs), features (their number), parameters, training (as it was given to `save`), sha256 (of
    the weights' content).
    """

    network: Network
    manifest: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """The name that `build` knows it by."""
        return self.manifest["architecture"]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the head, in the order of its outputs."""
        return tuple(self.manifest["classes"])

    @property
    def sha256(self) -> str:
        """The digest of the weights, for a run's record."""
        return self.manifest["sha256"]

    def with_new_head(self, outputs: int, *, key: str, run: int, base_seed: int) -> Network:
        """A fresh network with the trained body and a head of its own initial weights."""
        network = _built(self.manifest, outputs, key=key, run=run, base_seed=base_seed)
        trained = self.network.state_dict()
        body = {name: value for name, value in trained.items() if not name.startswith("head.")}
        network.load_state_dict(body, strict=False)
        return network


@checked(chunk=integer(ge=1))
def features(network: Network, x: np.ndarray, chunk: int = CHUNK) -> np.ndarray:
    """The input of the head for records x (n, d), float32 (n, features)."""
    parts = list(feature_chunks(network, x, chunk))
    return np.concatenate(parts) if parts else np.zeros((0, network.head.in_features), np.float32)


def feature_chunks(network: Network, x: np.ndarray, chunk: int = CHUNK) -> Iterator[np.ndarray]:
    """The same, `chunk` records at a time."""
    device = next(network.parameters()).device
    for start in range(0, len(x), chunk):
        with torch.no_grad():
            rows = torch.from_numpy(x[start : start + chunk]).to(device)
            yield network.features(rows).cpu().numpy()


def save(
    folder: Path | str,
    network: Network,
    *,
    architecture: str,
    options: Mapping[str, Any],
    image_shape: Sequence[int],
    classes: Sequence[str],
    training: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the network's weights and their manifest; returns the manifest.

    `training` is anything JSON holds. Each file appears by rename, the manifest last; equal weights
    give equal bytes.
    """
    weights = _weights(network)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "architecture": architecture,
        "options": dict(options),
        "image_shape": list(image_shape),
        "classes": list(classes),
        "features": network.head.in_features,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "training": dict(training),
        "sha256": content_sha256(weights),
    }
    folder = Path(folder)
    remove_parts(folder)
    write_atomic(folder / WEIGHTS, packed(weights))
    write_json(folder / MANIFEST, manifest)
    return manifest


def load(folder: Path | str) -> Backbone:
    """Read a backbone, on the CPU and in evaluation mode.

    Raises InputError if a file is missing or damaged, or if weights and manifest do not belong
    together.
    """
    folder = Path(folder)
    manifest = read_manifest(
        folder, SCHEMA_VERSION, ("architecture", "options", "image_shape", "classes")
    )
    weights = _read_weights(folder / WEIGHTS, manifest["sha256"])
    network = _built(manifest, len(manifest["classes"]), key="backbone", run=0, base_seed=0)
    shapes = {name: value.shape for name, value in _weights(network).items()}
    if shapes != {name: value.shape for name, value in weights.items()}:
        allowed = f"those of a {manifest['architecture']}"
        raise InputError(str(folder / WEIGHTS), "weights of another network", allowed)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return Backbone(network.eval(), manifest)


def _built(manifest: Mapping[str, Any], outputs: int, **axes: Any) -> Network:
    shape, options = manifest["image_shape"], manifest["options"]
    return build(manifest["architecture"], shape, outputs, **axes, **options)


def _weights(network: Network) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def _read_weights(path: Path, expected: str) -> dict[str, np.ndarray]:
    try:
        weights = read_arrays(path)
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a readable file") from None
    except ValueError:
        raise InputError(str(path), "a damaged file", "the weights of a backbone") from None
    digest = content_sha256(weights)
    if digest != expected:
        found = f"content with sha256 {digest[:16]}"
        raise InputError(str(path), found, f"{expected[:16]} as in {MANIFEST}")
    return weights
