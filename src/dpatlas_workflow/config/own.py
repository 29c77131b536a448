"""A user's own data sets: which backbones take their images, and their files."""

import math
import os
from pathlib import Path

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.networks import IMPORTED
from dpatlas.base.own_data import located
from dpatlas.data import own
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas_workflow.config.sizes import INPUTS
from dpatlas_workflow.config.types import DataSet

# Names of the scalings that an own set can have.
SCALINGS = {scaling: name for name, scaling in own.SCALINGS.items()}
# Depths at which files of a folder lie: CLASS/FILE, or the same under train/ and test/.
DEPTHS = ("*", "*/*", "*/*/*")


def check_backbone(
    place: str, name: str, source: str, shape: list[int] | None, data: DataSet
) -> None:
    """InputError, naming the config key `place`, for a backbone that cannot take an own set.

    name, source, shape: of an entry of `pretrain.backbones`; only imported ones have a shape.
    """
    wanted = data.definition or {}
    own_shape = wanted["image_shape"]
    fits = shape == own_shape if shape else INPUTS[source] == math.prod(own_shape)
    if not fits:
        found = f"{name}, which sees images of {shape or INPUTS[source]}"
        found += "" if shape else " numbers"
        allowed = f"one for image_shape {own_shape} of data.own.{data.name}"
        raise InputError(f"{place}.backbone", found, allowed)
    scaling = "unit" if source in IMPORTED else SCALINGS.get(DATA_SETS[source].scaling)
    if scaling != wanted["scaling"]:
        found = f"{name}, trained on {source} with scaling {scaling or 'of its own'}"
        allowed = f"one for scaling {wanted['scaling']} of data.own.{data.name}"
        raise InputError(f"{place}.backbone", found, allowed)


def path_error(path: str) -> str | None:
    """What is wrong with the path of an own set, in words; None if it can be read."""
    if (file := located(path)) is None:
        return "no folder and no .npz file"
    needed = os.R_OK | (os.X_OK if file.is_dir() else 0)
    return None if os.access(file, needed) else "no permission to read it"


def state(path: str) -> str:
    """A digest of the names, sizes and times of a set's files; when it changes they are re-read."""
    root = located(path)
    if root is None:
        return "missing"
    files = [root] if root.is_file() else [file for glob in DEPTHS for file in root.glob(glob)]
    states = sorted((str(file.relative_to(root)), *size_and_time(file)) for file in files)
    return sha256(canonical_json(states))


def size_and_time(path: Path) -> tuple[int, int]:
    """Size and time of change of a file; zeros for a folder and for what cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
