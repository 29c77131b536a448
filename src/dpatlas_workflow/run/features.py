"""Features of a data set by a frozen backbone, computed once for all jobs that need them.

There is no spec and no record: the manifest names data set, backbone, code and device.
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.digest import code_digest
from dpatlas.base.files import check_writable
from dpatlas.base.progress import say
from dpatlas.base.records import versions
from dpatlas.data.features import PARTS, save
from dpatlas.data.prepared import load
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas.jobs.job import numerics, resolve_device, torch_device
from dpatlas.models import backbone as backbones
from dpatlas.models.precision import passes
from dpatlas_workflow.run.private_records import check_fits, identity

MODULE = "dpatlas_workflow.run.features"


def features(data: Path, backbone: Path, output: Path, device: str) -> dict[str, Any]:
    """Write the features of the prepared set with manifest `data` by the backbone in a folder.

    Their id is the name of the folder `output`; returns the manifest. Raises InputError for data
    whose scaling or shape differs from the backbone's, and for a backbone that gives no training
    record finite features.
    """
    check_writable(output)
    device = resolve_device(device)
    prepared, trained = load(data.parent), backbones.load(backbone)
    check_fits(trained, prepared)
    images = {part: getattr(prepared, f"x_{part}") for part in PARTS}
    with numerics(device), passes():
        network = trained.network.to(torch_device(device))
        chunks = {part: backbones.feature_chunks(network, x) for part, x in images.items()}
        # Written first, so that an unusable backbone leaves no file.
        chunks["train"] = some_finite(chunks["train"], backbone, data.parent.name)
        return save(
            output,
            chunks,
            {part: getattr(prepared, f"y_{part}") for part in PARTS},
            network.head.in_features,
            {
                "id": output.name,
                "data": {"id": data.parent.name, "sha256": prepared.sha256},
                "backbone": identity(trained),
                "code_digest": code_digest(MODULE),
                "versions": versions("torch", "numpy"),
                "device": device,
            },
        )


def some_finite(chunks: Iterable[np.ndarray], backbone: Path, data: str) -> Iterator[np.ndarray]:
    """The chunks (rows, features); InputError after the last if every row has NaN or infinity.

    A single such row passes: an error would reveal something about a private record, and training
    counts the record as zero.
    """
    any_finite = False
    for chunk in chunks:
        any_finite = any_finite or bool(np.isfinite(chunk).all(axis=1).any())
        yield chunk
    if not any_finite:
        raise InputError(
            f"--backbone {backbone}",
            f"NaN or infinity in the features of every training record of {data}",
            "a backbone with finite features; its weights may be damaged: make it again",
        )


def main(arguments: Sequence[str]) -> int:
    """Compute the features of one data set by one backbone from the command line."""
    parser = ArgumentParser(prog=f"python -m {MODULE}", description="Compute features.")
    parser.add_argument("--data", required=True, type=Path, help="manifest of the prepared data")
    parser.add_argument("--backbone", required=True, type=Path, help="folder of the backbone")
    parser.add_argument("--output", required=True, type=Path, help="folder to write to")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, auto; with -tf32")
    options = parser.parse_args(arguments)
    manifest = features(options.data, options.backbone, options.output, options.device)
    records, width = manifest["arrays"]["x_train"]["shape"]
    say(f"{manifest['id']}: {records} training records, {width} features each")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
