"""A user's own data sets: which backbones can see them, and the files they lie in."""

import math
import os
from pathlib import Path

from dpatlas.config.sizes import INPUTS
from dpatlas.config.types import DataSet
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.own_data import located
from dpatlas.errors import InputError

# How images are scaled that backbones are trained on, where an own set can be scaled so too.
SCALINGS = {
    "mnist": "unit",
    "leaves-grey": "unit",
    "imagenet": "unit",
    "moco": "unit",
    "leaves": "centred",
    "styles": "centred",
    "cifar10": "centred",
    "cifar100": "centred",
}
# A folder's files: CLASS/FILE, or under train/ and test/.
DEPTHS = ("*", "*/*", "*/*/*")


def check_backbone(
    place: str, name: str, source: str, shape: list[int] | None, data: DataSet
) -> None:
    """InputError, naming the config key `place`, for a backbone that cannot see an own set.

    name, source, shape: of `pretrain.backbones`; only an imported one has a shape.
    """
    own = data.definition or {}
    fits = shape == own["image_shape"] if shape else INPUTS[source] == math.prod(own["image_shape"])
    if not fits:
        found = f"{name}, which sees images of {shape or INPUTS[source]}"
        found += "" if shape else " numbers"
        allowed = f"one for image_shape {own['image_shape']} of data.own.{data.name}"
        raise InputError(f"{place}.backbone", found, allowed)
    scaling = SCALINGS.get(source)
    if scaling != own["scaling"]:
        found = f"{name}, trained on {source} with scaling {scaling or 'of its own'}"
        allowed = f"one for scaling {own['scaling']} of data.own.{data.name}"
        raise InputError(f"{place}.backbone", found, allowed)


def trouble(path: str) -> str | None:
    """What is wrong with the path of an own set, in words; None if it can be read."""
    place = located(path)
    if place is None:
        return "no folder and no .npz file"
    needed = os.R_OK | (os.X_OK if place.is_dir() else 0)
    return None if os.access(place, needed) else "no permission to read it"


def state(path: str) -> str:
    """A digest of names, sizes and times of its files: another one means to read them again."""
    place = located(path)
    if place is None:
        return "missing"
    files = [place] if place.is_file() else [each for glob in DEPTHS for each in place.glob(glob)]
    found = sorted((str(each.relative_to(place)), *_size_and_time(each)) for each in files)
    return sha256(canonical_json(found))


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return (0, 0) if path.is_dir() else (found.st_size, found.st_mtime_ns)
