"""The training named by `FILE.py:FUNCTION`, and the claim that stands beside it."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path

from dpatlas.audit.claim import Claim
from dpatlas.audit.run import Train
from dpatlas.base.canonical import sha256
from dpatlas.base.scripts import imported_from, named_function
from dpatlas.errors import InputError

ALLOWED = "FILE.py:FUNCTION, such as mine.py:train"
ADD = (
    "these lines (docs/audit.md): from dpatlas.audit import Claim, plant, watch_opacus | "
    "claim = Claim(sampler=..., n=..., batch=..., noise=..., steps=..., delta=...) | "
    "def train(run): around the training | data = plant(run, data, canary) | "
    "watch_opacus(run, optimizer) | return model"
)
# What is audited, as digests by name; called with the names that an earlier audit knew.
Code = Callable[[Iterable[str]], dict[str, str]]


def load(target: str) -> tuple[Train, Claim, Code]:
    """The function (`train` if none is named), its claim, and what it consists of.

    The claim is the function's attribute `claim`, which adapters set, or the file's variable
    `claim`. The file's folder comes first on the path of imports, as if it were run as a script.
    Raises InputError for a file that cannot be loaded, and one without such a function or claim.
    """
    if target.endswith(".py"):
        target += ":train"
    try:
        train, module, file = named_function(target, ALLOWED)
    except InputError as error:
        if not str(error.found).startswith("no function"):
            raise
        raise InputError(error.where, error.found, f"{error.allowed}; or {ADD}") from None
    claim = getattr(train, "claim", None) or getattr(module, "claim", None)
    if not isinstance(claim, Claim):
        found = "no claim" if claim is None else f"claim of type {type(claim).__name__}"
        raise InputError(f"script {file}", found, ADD)
    return train, claim, _code(target.rpartition(":")[2], file.resolve().parent)


def _code(function: str, folder: Path) -> Code:
    """The function's name, and the text of every file in the folder that is imported by now."""

    def code(known: Iterable[str]) -> dict[str, str]:
        files = imported_from(folder)
        # A file that the training itself imports may not be loaded yet.
        for name in known:
            path = folder / name
            if name not in files and path.is_file():
                files[name] = sha256(path.read_bytes())
        return {"function": function, **files}

    return code


def code_of(train: Train) -> Code:
    """The name and the text of a function that is given from Python, as far as it has one."""
    name = f"{train.__module__}.{getattr(train, '__qualname__', type(train).__qualname__)}"
    try:
        text = inspect.getsource(train)
    except (OSError, TypeError):
        text = ""
    facts = {"function": name, "text": sha256(text.encode())}
    return lambda _: facts
