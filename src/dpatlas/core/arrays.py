"""Arrays in npz files, read without trusting them."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

# What zipfile, zlib and numpy raise for bytes that are not what the file's headers say.
_DAMAGE = (
    AttributeError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """Every array of an npz file, by name; pickles are refused.

    Raises ValueError for a damaged file and OSError for one that cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as packed:
            return {name: packed[name] for name in packed.files}
    except _DAMAGE as error:
        raise ValueError(f"{path}: a damaged file ({type(error).__name__})") from None
