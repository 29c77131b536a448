"""Reading files that come from elsewhere: regular ones, within limits, and perhaps damaged."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dpatlas.errors import InputError

# Errors whose cause is the user's file or folder, not the machine.
UNREADABLE = (PermissionError, IsADirectoryError, NotADirectoryError, FileNotFoundError)


@contextlib.contextmanager
def readable(path: Path | None = None) -> Iterator[None]:
    """Turn a file or folder that may not be read, or is not there, into an InputError."""
    try:
        yield
    except UNREADABLE as error:
        where = str(error.filename or path or "data.root")
        found = error.strerror or type(error).__name__
        raise InputError(where, found, "something that this user may read") from None


@contextlib.contextmanager
def undamaged(where: str, found: str, allowed: str) -> Iterator[None]:
    """Turn all that damaged bytes raise inside into one InputError; other InputErrors pass."""
    try:
        yield
    except InputError:
        raise
    # Damaged bytes can raise nearly anything, and every one of them means the same.
    except Exception:
        raise InputError(where, found, allowed) from None


def check_kind(path: Path, *, folder: bool) -> None:
    """InputError for a folder where a file is expected, or the reverse, and for device nodes."""
    if not (path.is_dir() if folder else path.is_file()):
        found = "a folder" if path.is_dir() else "a file" if path.is_file() else "a special file"
        raise InputError(str(path), found, "a folder" if folder else "a file")


def check_size(where: str, size: int, limit: int) -> None:
    """InputError for a size, in bytes, beyond `limit` or below zero."""
    if not 0 <= size <= limit:
        raise InputError(where, f"{size} bytes", f"{limit} bytes at most")


def read_file(path: Path, limit: int) -> bytes:
    """All of a regular file; InputError for any other kind and for more than `limit` bytes."""
    check_kind(path, folder=False)
    with path.open("rb") as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise InputError(str(path), f"more than {limit} bytes", f"{limit} bytes at most")
    return content


class Bounded:
    """A binary stream that refuses, by InputError, to give more than `limit` bytes in all."""

    def __init__(self, stream: IO[bytes], limit: int, where: str):
        self.stream, self.limit, self.where = stream, limit, where
        self.delivered = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        content = self.stream.read(size)
        self.delivered += len(content)
        if self.delivered > self.limit:
            found = f"more than {self.limit} bytes when unpacked"
            raise InputError(self.where, found, f"{self.limit} bytes at most")
        return content


@contextlib.contextmanager
def jpeg(where: str, content: bytes, allowed: str) -> Iterator[Any]:
    """A JPEG image whose pixels are not decoded yet; InputError if it cannot be, now or inside."""
    from PIL import Image

    with undamaged(where, "an image that cannot be decoded", allowed), warnings.catch_warnings():
        # Of sizes, which are refused by the caller, and of odd metadata.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            yield image


def central_square(image: Any, width: int, height: int) -> Any:
    """The central square of an image of Pillow's, resized by a bicubic filter.

    Not torchvision's CenterCrop, which rounds half of an odd margin to the even number: prepared
    sets would differ by a pixel from those of the published runs.
    """
    from PIL import Image

    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = (left, top, left + side, top + side)
    return image.resize((width, height), Image.Resampling.BICUBIC, box=square)
