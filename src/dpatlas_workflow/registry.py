"""Every block that there is, found by its folder: nothing else registers one."""

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from dpatlas.base.guard import one_of
from dpatlas_workflow import checks, papers
from dpatlas_workflow.blocks import Block


@functools.cache
def all_blocks() -> dict[str, Block]:
    """Papers and checks by key, in the order of their positions."""
    blocks = sorted((*_blocks_of(papers), *_blocks_of(checks)), key=lambda block: block.position)
    return {block.key: block for block in blocks}


@functools.cache
def all_papers() -> dict[str, Block]:
    """Papers alone."""
    folder = papers.__name__
    return {key: block for key, block in all_blocks().items() if block.package.startswith(folder)}


def block_of(key: str) -> Block:
    """The block of this key; InputError for a key of none."""
    one_of(*all_blocks()).check("key", key)
    return all_blocks()[key]


def _blocks_of(package: ModuleType) -> Iterable[Block]:
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg:
            yield importlib.import_module(f"{package.__name__}.{module.name}.block").BLOCK
