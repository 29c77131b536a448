"""`worlds.py` of a block's tests: small records whose truth is known.

`SHOWN`: for each figure and table a function that makes records and settings to show. Papers also
have `world()`, `PaperRecords` in which every claim holds, and `FALSE`: for each entry of the claims
a function that makes a world in which that entry does not hold. Entries that no records can change
stand in `PROVEN_BY_ARITHMETIC` or `REFUTED_BY_ARITHMETIC` instead.
"""

import functools
import importlib
import importlib.util
from pathlib import Path

from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.registry import all_blocks

TESTS = Path(__file__).parents[1]


@functools.cache
def worlds_of(key):
    """The module: of a block in the folder papers/KEY it is tests/papers/KEY/worlds.py."""
    folder = TESTS / all_blocks()[key].package.split(".")[1] / key
    spec = importlib.util.spec_from_file_location(f"{key}_worlds", folder / "worlds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def samples_of(name):
    """The records and settings of `SHOWN` for a figure or table; nobody may change them."""
    return worlds_of(all_products()[name][1].key).SHOWN[name]()


def shown(name, records=None):
    """A figure or table of these records, by default of its samples."""
    product, block = all_products()[name]
    samples, settings = samples_of(name)
    make = getattr(importlib.import_module(block.product_module(product.name)), name)
    return make(samples if records is None else records, settings)


@functools.cache
def sample_shown(name):
    """A figure or table of its samples."""
    return shown(name)
