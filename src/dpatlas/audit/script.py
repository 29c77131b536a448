"""The training named by `FILE.py:FUNCTION`, and the claim that stands beside it."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from dpatlas.audit.claim import Claim
from dpatlas.audit.run import Train, error_place
from dpatlas.core.canonical import sha256
from dpatlas.errors import InputError

ALLOWED = "FILE.py:FUNCTION, such as mine.py:train"
NAME = "dpatlas_audited"


def load(target: str) -> tuple[Train, Claim, str]:
    """The function, its claim and a digest of the file's text.

    The claim is the function's attribute `claim`, which adapters set, or the file's variable
    `claim`. The file's folder comes first on the path of imports, as if it were run as a script.
    Raises InputError for a file that cannot be loaded, and one without such a function or claim.
    """
    train, module, file = named_function(target, ALLOWED)
    claim = getattr(train, "claim", None) or getattr(module, "claim", None)
    if not isinstance(claim, Claim):
        found = "no claim" if claim is None else f"claim of type {type(claim).__name__}"
        allowed = "claim = Claim(sampler=..., n=..., batch=..., noise=..., steps=..., delta=...)"
        raise InputError(f"script {file}", found, allowed)
    return train, claim, sha256(file.read_bytes())


def named_function(target: str, allowed: str) -> tuple[Any, Any, Path]:
    """The function of `FILE.py:FUNCTION`, the file's module after it has run, and the file.

    `allowed` says what is wanted. Raises InputError where there is no such function.
    """
    path, separator, name = target.rpartition(":")
    if not separator or not path.endswith(".py") or not name.isidentifier():
        raise InputError("script", repr(target), allowed)
    file = Path(path)
    if not file.is_file():
        raise InputError("script", f"no file {path}", allowed)
    module = _executed(file)
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, each in vars(module).items() if callable(each) and key[0] != "_"]
        found = f"no function {name}" if function is None else f"{name}, which is no function"
        raise InputError(f"script {path}", found, f"one of its functions: {', '.join(names[:20])}")
    return function, module, file


def _executed(file: Path) -> Any:
    specification = importlib.util.spec_from_file_location(NAME, file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Dataclasses and pickling look their module up.
    sys.modules[NAME] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        specification.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"script {file}: {error.where}", error.found, error.allowed) from None
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        raise InputError(f"script {file}", error_place(error), "a file that loads") from None
    return module
