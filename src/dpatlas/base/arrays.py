"""Arrays in npz files: the same bytes for the same arrays, and read without trusting them."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file of these arrays, in their order."""
    buffer = io.BytesIO()
    # numpy gives every member the same date, so the bytes do not depend on the clock.
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """Every array of an npz file, by name; pickles are refused.

    Raises ValueError for a damaged file and OSError for one that cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            # Whole members, whose checksums are compared: numpy stops where a header says so, and a
            # damaged header may name a smaller array.
            content = {name.removesuffix(".npy"): packed.read(name) for name in packed.namelist()}
        return {
            name: np.lib.format.read_array(io.BytesIO(of_name), allow_pickle=False)
            for name, of_name in content.items()
        }
    except (OSError, MemoryError):
        raise
    # zipfile, zlib and numpy raise nearly anything for bytes that do not fit.
    except Exception as error:
        raise ValueError(f"{path}: a damaged file ({type(error).__name__})") from None
