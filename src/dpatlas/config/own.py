"""A user's own data sets: from the config's `data.own` into every place that names one.

The definition becomes part of a spec, so that another one is another id. The path does not: where
a set lies changes no id.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpatlas.config.sizes import INPUTS, inputs_of
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.own_data import definition, located
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


def with_definitions(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config, with the definition (`own`) in every `data` block that names an own set.

    Raises InputError for a name that another set has, for a definition that cannot be, and for
    classes that it does not have.
    """
    own = {name: _definition(name, given) for name, given in config["data"]["own"].items()}
    if not own:
        return dict(config)
    return {
        key: block if key == "data" else _filled(key, block, own) for key, block in config.items()
    }


def check_backbone(
    place: str, name: str, backbone: Mapping[str, Any], data: Mapping[str, Any]
) -> None:
    """InputError, naming the config key `place`, for a backbone that cannot see an own set.

    name, backbone: of `pretrain.backbones`. data: a data block, with the definition of the set.
    """
    source, own = backbone["source"], data["own"]
    shape = backbone.get("image_shape")
    fits = shape == own["image_shape"] if shape else INPUTS[source] == inputs_of(data)
    if not fits:
        found = f"{name}, which sees images of {shape or INPUTS[source]}"
        found += "" if shape else " numbers"
        allowed = f"one for image_shape {own['image_shape']} of data.own.{data['name']}"
        raise InputError(f"{place}.backbone", found, allowed)
    scaling = SCALINGS.get(source)
    if scaling != own["scaling"]:
        found = f"{name}, trained on {source} with scaling {scaling or 'of its own'}"
        allowed = f"one for scaling {own['scaling']} of data.own.{data['name']}"
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


def _definition(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    place = f"data.own.{name}"
    if name in INPUTS:
        raise InputError(place, "the name of a data set that the project knows", "another name")
    return definition(place, {key: value for key, value in given.items() if key != "path"})


def _filled(place: str, value: Any, own: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled(f"{place}.{i}", each, own) for i, each in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    filled = {key: _filled(f"{place}.{key}", each, own) for key, each in value.items()}
    chosen = filled.get("data")
    if isinstance(chosen, Mapping) and chosen.get("name") in own:
        known = own[chosen["name"]]
        _check_classes(f"{place}.data.classes", chosen["classes"], known["classes"])
        filled["data"] = {**chosen, "own": known}
    return filled


def _check_classes(place: str, chosen: list[Any], known: list[str]) -> None:
    for name in chosen:
        if str(name) not in known:
            raise InputError(place, repr(name), "two or more of " + ", ".join(known))
    if len({str(name) for name in chosen}) < len(chosen):
        raise InputError(place, chosen, "each class once")
