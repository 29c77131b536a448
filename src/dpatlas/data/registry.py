"""Every data set that the project knows, by name; none is redistributed.

A set is a module in the folder `sets` with its entry in `SETS`. The module of a published set also
has `locate(data_set, folders)`, which finds a copy, and `read(source, data_set, classes)`. Modules
are found by their folder, so that a new one re-runs nothing: a prepared set depends on the code of
its `module_of` alone.
"""

import importlib
import pkgutil
from types import ModuleType

from dpatlas.data import sets
from dpatlas.data.definitions import DataSet
from dpatlas.errors import InputError

DATA_SETS: dict[str, DataSet] = {}
_MODULES: dict[str, str] = {}
for _module in pkgutil.iter_modules(sets.__path__):
    _name = f"{sets.__name__}.{_module.name}"
    for _data_set in importlib.import_module(_name).SETS:
        DATA_SETS[_data_set.name] = _data_set
        _MODULES[_data_set.name] = _name


def find(name: str) -> DataSet:
    """The entry called `name`; InputError with the known names if there is none."""
    if name not in DATA_SETS:
        raise InputError("data set", repr(name), "one of " + ", ".join(DATA_SETS))
    return DATA_SETS[name]


def module_of(name: str) -> str:
    """Name of the module that has the set and, if it is published, reads it."""
    find(name)
    return _MODULES[name]


def reader(name: str) -> ModuleType:
    """The module that finds and reads a published set."""
    return importlib.import_module(module_of(name))
