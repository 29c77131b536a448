"""The definition of a user's own data set: its classes, the shape of its images, their scaling.

Specs and the reader share the definition. The path of the set is no part of it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.guard import integer
from dpatlas.errors import InputError

KEYS = ("classes", "image_shape", "scaling", "resize")
SCALINGS = ("unit", "centred")
# Largest number of values of a record, above that of a colour image of 1,024 x 1,024 pixels.
LARGEST_RECORD = 1 << 22


def definition(key_path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The definition `fields` in normal form: class names as text, and every key of `KEYS`.

    key_path: config key of `fields`, for messages.

    Raises InputError for a missing or unknown key, for a value of another kind, for fewer than two
    classes or two with one name, for images that are too large, and for `resize` to a shape that is
    not square.
    """
    if not isinstance(fields, Mapping):
        raise InputError(key_path, repr(fields), ", ".join(KEYS))
    for key in fields:
        if key not in KEYS:
            raise InputError(f"{key_path}.{key}", "a key that does not exist", ", ".join(KEYS))
    scaling, resize = fields.get("scaling"), fields.get("resize", False)
    if scaling not in SCALINGS:
        raise InputError(f"{key_path}.scaling", repr(scaling), "one of " + ", ".join(SCALINGS))
    if not isinstance(resize, bool):
        raise InputError(f"{key_path}.resize", repr(resize), "true or false")
    shape = _shape(f"{key_path}.image_shape", fields.get("image_shape"))
    if resize and shape[1] != shape[2]:
        allowed = "a square to resize to, or no resize"
        raise InputError(f"{key_path}.image_shape", shape, allowed)
    classes = _classes(f"{key_path}.classes", fields.get("classes"))
    return {"classes": classes, "image_shape": shape, "scaling": scaling, "resize": resize}


def located(path: str) -> Path | None:
    """The absolute path of the folder or .npz file at `path`; None where this user sees neither.

    `~` is the user's home; other paths are relative to the working folder.
    """
    try:
        absolute = Path(path).expanduser().absolute()
        npz = absolute.suffix.lower() == ".npz" and absolute.is_file()
        return absolute if npz or absolute.is_dir() else None
    # A folder above without permission to enter, or the home of an unknown user.
    except (OSError, RuntimeError):
        return None


def _classes(key_path: str, classes: Any) -> list[str]:
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(key_path, repr(classes), "a list of two or more different names")
    for name in names:
        if not name or name.startswith(".") or set("/\\\0") & set(name):
            allowed = "names of folders: no slash, and no dot at the beginning"
            raise InputError(key_path, repr(name), allowed)
    return names


def _shape(key_path: str, shape: Any) -> list[int]:
    allowed = f"channels, height and width, {LARGEST_RECORD} numbers at most"
    if not isinstance(shape, list) or len(shape) != 3:
        raise InputError(key_path, repr(shape), allowed)
    for number in shape:
        integer(ge=1).check(key_path, number)
    if math.prod(shape) > LARGEST_RECORD:
        raise InputError(key_path, f"{shape}, {math.prod(shape)} numbers", allowed)
    return list(shape)
