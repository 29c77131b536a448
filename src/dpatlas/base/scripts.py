"""Other people's Python files: a function of one by its name, and their errors in a line."""

import contextlib
import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpatlas.base.canonical import sha256
from dpatlas.errors import InputError

# Name of the module that such a file becomes.
NAME = "dpatlas_script"
# By path and digest of the text: functions of one file share what it defines.
_modules: dict[tuple[Path, str], Any] = {}


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
    key = file.resolve(), sha256(file.read_bytes())
    if key not in _modules:
        _modules[key] = _executed(file)
    module = _modules[key]
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, each in vars(module).items() if callable(each) and key[0] != "_"]
        found = f"no function {name}" if function is None else f"{name}, which is no function"
        raise InputError(f"script {path}", found, f"one of its functions: {', '.join(names[:20])}")
    return function, module, file


@contextlib.contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send what other people's code prints to the standard error: the output is the report's.

    That of their child processes and C libraries too: file descriptor 1 is redirected for a while.
    """
    real = sys.stdout
    with contextlib.ExitStack() as stack:
        _flush(real)
        with contextlib.suppress(OSError):  # one of the two is closed
            saved = os.dup(1)
            stack.callback(os.close, saved)
            os.dup2(2, 1)
            stack.callback(os.dup2, saved, 1)
        # Before the descriptor is restored: their code may have written to the stream itself.
        stack.callback(_flush, real)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def _flush(stream: Any) -> None:
    """Write out what the stream, and the output of C, hold back."""
    if stream is not None:
        stream.flush()
    ctypes.CDLL(None).fflush(None)


def _executed(file: Path) -> Any:
    specification = importlib.util.spec_from_file_location(NAME, file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Dataclasses and pickling look their module up.
    sys.modules[NAME] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        with printing_to_stderr():
            specification.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"script {file}: {error.where}", error.found, error.allowed) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's code raises
        raise InputError(f"script {file}", error_place(error), "a file that loads") from None
    return module


def imported_from(folder: Path) -> dict[str, str]:
    """Digests of the modules under `folder` that are loaded, by path, but for installed ones."""
    digests, folder, others = {}, folder.resolve(), {"site-packages", __name__.partition(".")[0]}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # By name first: of two thousand loaded modules nearly all are installed.
        installed = isinstance(file, str) and "site-packages" in file
        if not isinstance(file, str) or (installed and "site-packages" not in folder.parts):
            continue
        path = Path(os.path.realpath(file))
        if path.is_relative_to(folder) and path.is_file():
            name = path.relative_to(folder)
            if not others & set(name.parts):
                digests[name.as_posix()] = sha256(path.read_bytes())
    return digests


def error_place(error: BaseException) -> str:
    """An exception of other people's code in a line: type, message, file and line."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        line = f" at {name.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{line}"
