"""Code digests: a hash of the syntax trees of a module and of its imports from the project.

Docstrings, comments, formatting and the sentences of fields (`base.fields.setting`) take no part:
an edit of a comment re-runs nothing. Any other edit re-runs exactly the jobs whose module imports
the edited one, directly or not. A table that a module names, a csv file in its folder or below, is
a part of it.

Taking the trees of a whole project costs a second. `remember_code` keeps what was found in a file
of the folder that the environment variable `CACHE` names, under a hash of each source text.
"""

import ast
import contextlib
import functools
import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import dpatlas
from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.files import write_atomic
from dpatlas.errors import InputError

CACHE = "DPATLAS_CODE_CACHE"

LIBRARY = dpatlas.__name__
# The library and what it may not import; other packages are known by their versions.
ROOTS = (LIBRARY, f"{LIBRARY}_workflow")
IMPORTS = (ast.Import, ast.ImportFrom)
# What is loaded by such a text, `dpatlas.module:name`, counts as imported.
ENTRY_POINT = re.compile(rf"((?:{'|'.join(ROOTS)})(?:\.\w+)+):\w+")
# The name of a table, such as of printed values.
TABLE = re.compile(r"[\w-]+\.csv")
# A call of this name has a field's sentence as its first argument.
SENTENCE = "setting"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Meaning(NamedTuple):
    """What a source text says: its syntax tree, and what it names outside of itself."""

    # The tree itself where the text names tables, which are hashed together with it; else its hash.
    tree: str
    imports: list[str]
    tables: list[str]


def code_digest(*modules: str) -> str:
    """16 hex digits for these modules and every module of the project that they import.

    Several modules are for code that is loaded by name, without an import statement.
    """
    meanings = {name: _read(name)[0] for module in modules for name in reachable(module)}
    return sha256(canonical_json(meanings))[:16]


def reachable(module: str) -> list[str]:
    """The project's modules that `module` imports, directly or not, itself included; sorted."""
    if _source(module) is None:
        raise InputError("module", module, f"a module of {' or '.join(ROOTS)}")
    seen: set[str] = set()
    waiting = _with_parents(module)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_read(name)[1])
    return sorted(seen)


def check_code_of(checkout: Path) -> None:
    """InputError unless the imported packages are the code of this checkout, or equal to it."""
    ours, theirs = Path(dpatlas.__file__).parents[1], checkout / "src"
    if theirs.is_dir() and not theirs.samefile(ours) and _sources(ours) != _sources(theirs):
        allowed = f"that of {theirs}: run make setup here, or set PYTHONPATH={theirs}"
        raise InputError("code", f"that of {ours}, which differs", allowed)


def _sources(folder: Path) -> dict[Path, bytes]:
    paths = (path for root in ROOTS for path in (folder / root).rglob("*.py"))
    return {path.relative_to(folder): path.read_bytes() for path in paths}


@functools.cache
def _source(module: str) -> Path | None:
    # By path: importlib.util.find_spec would import the parent packages, and torch with them.
    package, *parts = module.split(".")
    if package not in ROOTS:
        return None
    folder = Path(dpatlas.__file__).parents[1].joinpath(package, *parts)
    for path in (folder / "__init__.py", folder.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _read(module: str) -> tuple[str, frozenset[str]]:
    """Hash of a module's syntax tree and tables, and the project's modules that it imports."""
    source = _source(module)
    assert source is not None, module
    text = source.read_text(encoding="utf-8")
    key = sha256(_reader() + text)
    meaning = _meanings[key] = _meanings.get(key) or _remembered().get(key) or _meaning(text)
    imports = {each for name in meaning.imports for each in _with_parents(name)}
    tables = {table for name in meaning.tables for table in source.parent.rglob(name)}
    digest = meaning.tree
    if meaning.tables:
        texts = [table.read_text(encoding="utf-8") for table in sorted(tables)]
        digest = sha256("\n".join([meaning.tree, *texts]))
    return digest, frozenset(imports - {module})


def _meaning(text: str) -> Meaning:
    """All of it in one walk, because a dry run reads every module of the project."""
    tree = ast.parse(text)
    imports: set[str] = set()
    tables: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, IMPORTS):
            imports.update(_imported(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if match := ENTRY_POINT.fullmatch(node.value):
                imports.add(match[1])
            elif TABLE.fullmatch(node.value):
                tables.add(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == SENTENCE:
            node.args[:1] = []
        elif isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    dumped = ast.dump(tree, include_attributes=False)
    return Meaning(dumped if tables else sha256(dumped), sorted(imports), sorted(tables))


# By the hash of this reader and of the text.
_meanings: dict[str, Meaning] = {}


@functools.cache
def _reader() -> str:
    return sha256(sys.version + Path(__file__).read_text(encoding="utf-8"))


@functools.cache
def _remembered() -> dict[str, Meaning]:
    # Absent, or damaged: then it is written anew.
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        kept = json.loads(_cache().read_text(encoding="utf-8"))
        return {key: Meaning(*each) for key, each in kept.items()}
    return {}


def remember_code() -> None:
    """Keep what this process found of the sources that it read, for the next; see `CACHE`."""
    if not _meanings.keys() <= _remembered().keys():
        # Where it cannot be written, that costs time only.
        with contextlib.suppress(OSError):
            write_atomic(_cache(), json.dumps(_meanings))


def _cache() -> Path:
    """The file; FileNotFoundError where no folder is named."""
    if not os.environ.get(CACHE):
        raise FileNotFoundError(CACHE)
    return Path(os.environ[CACHE], "meanings.json")


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level == 0 and node.module:
        # `from package import name` may name a module or something inside one.
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.split(".")[0] in ROOTS]


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    candidates = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return [candidate for candidate in candidates if _source(candidate) is not None]
