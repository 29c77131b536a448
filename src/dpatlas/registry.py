"""Every block that there is, found by its folder: nothing else registers one."""

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from dpatlas import checks, papers
from dpatlas.core.blocks import Block
from dpatlas.core.guard import one_of


@functools.cache
def all_blocks() -> dict[str, Block]:
    """Papers and checks by key, in the order of their positions."""
    found = sorted((*_blocks_of(papers), *_blocks_of(checks)), key=lambda each: each.position)
    return {each.key: each for each in found}


@functools.cache
def all_papers() -> dict[str, Block]:
    """Papers alone."""
    return {
        key: each for key, each in all_blocks().items() if each.package.startswith(papers.__name__)
    }


def block_of(key: str) -> Block:
    """The block of this key; InputError for a key of none."""
    one_of(*all_blocks()).check("key", key)
    return all_blocks()[key]


def _blocks_of(package: ModuleType) -> Iterable[Block]:
    for found in pkgutil.iter_modules(package.__path__):
        if found.ispkg:
            yield importlib.import_module(f"{package.__name__}.{found.name}.block").BLOCK
