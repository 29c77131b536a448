"""What a user says of a data set of his own: its classes, the shape of its images, their scaling.

Specs and the reader share the definition. Where the set lies is no part of it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.guard import integer
from dpatlas.errors import InputError

KEYS = ("classes", "image_shape", "scaling", "resize")
SCALINGS = ("unit", "centred")
# Numbers of a record: a colour image of more than 1,024 x 1,024 pixels is an absurd one.
LARGEST_RECORD = 1 << 22


def definition(place: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` in one form: class names as text, and every key of `KEYS`.

    place: where `given` stands, for messages.

    Raises InputError for a missing or unknown key, for a value of another kind, for fewer than two
    classes or two of one name, for images of an absurd size, and for `resize` to no square.
    """
    if not isinstance(given, Mapping):
        raise InputError(place, repr(given), ", ".join(KEYS))
    for key in given:
        if key not in KEYS:
            raise InputError(f"{place}.{key}", "a key that does not exist", ", ".join(KEYS))
    scaling, resize = given.get("scaling"), given.get("resize", False)
    if scaling not in SCALINGS:
        raise InputError(f"{place}.scaling", repr(scaling), "one of " + ", ".join(SCALINGS))
    if not isinstance(resize, bool):
        raise InputError(f"{place}.resize", repr(resize), "true or false")
    shape = _shape(f"{place}.image_shape", given.get("image_shape"))
    if resize and shape[1] != shape[2]:
        allowed = "a square to resize to, or no resize"
        raise InputError(f"{place}.image_shape", shape, allowed)
    classes = _classes(f"{place}.classes", given.get("classes"))
    return {"classes": classes, "image_shape": shape, "scaling": scaling, "resize": resize}


def located(path: str) -> Path | None:
    """The folder or .npz file at `path`, absolute; None where this user sees neither.

    `~` is the user's home; other paths are relative to the working folder.
    """
    try:
        place = Path(path).expanduser().absolute()
        npz = place.suffix.lower() == ".npz" and place.is_file()
        return place if npz or place.is_dir() else None
    # A folder above that is closed, or the home of a user whom there is not.
    except (OSError, RuntimeError):
        return None


def _classes(place: str, given: Any) -> list[str]:
    names = [str(name) for name in given] if isinstance(given, list) else []
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(place, repr(given), "a list of two or more different names")
    for name in names:
        if not name or name.startswith(".") or set("/\\\0") & set(name):
            allowed = "names of folders: no slash, and no dot at the beginning"
            raise InputError(place, repr(name), allowed)
    return names


def _shape(place: str, given: Any) -> list[int]:
    allowed = f"channels, height and width, {LARGEST_RECORD} numbers at most"
    if not isinstance(given, list) or len(given) != 3:
        raise InputError(place, repr(given), allowed)
    for number in given:
        integer(ge=1).check(place, number)
    if math.prod(given) > LARGEST_RECORD:
        raise InputError(place, f"{given}, {math.prod(given)} numbers", allowed)
    return list(given)
