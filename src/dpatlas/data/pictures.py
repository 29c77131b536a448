"""Image files of other people: decoded within limits, and cut to their central squares."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

from dpatlas.data.bounded import undamaged


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
