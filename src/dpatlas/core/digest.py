"""Code digests: a hash of the syntax trees of a module and of its imports from the project.

Docstrings, comments and formatting take no part, so an edit of a comment re-runs nothing. Any other
edit re-runs exactly the jobs whose module imports the edited one, directly or not. A table that a
module names, a csv file in its folder or below, is a part of it.
"""

import ast
import functools
import re
from pathlib import Path

import dpatlas
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.errors import InputError

PACKAGE = dpatlas.__name__
IMPORTS = (ast.Import, ast.ImportFrom)
# What is loaded by such a text, `dpatlas.module:name`, counts as imported.
ENTRY_POINT = re.compile(rf"({PACKAGE}(?:\.\w+)+):\w+")
# The name of a table, such as of printed values.
TABLE = re.compile(r"[\w-]+\.csv")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_digest(*modules: str) -> str:
    """16 hex digits for these modules and every module of the project that they import.

    Several modules are for code that is loaded by name, without an import statement.
    """
    meanings = {name: _read(name)[0] for module in modules for name in reachable(module)}
    return sha256(canonical_json(meanings))[:16]


def reachable(module: str) -> list[str]:
    """The project's modules that `module` imports, directly or not, itself included; sorted."""
    if _source(module) is None:
        raise InputError("module", module, f"a module of {PACKAGE}")
    seen: set[str] = set()
    waiting = _with_parents(module)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_read(name)[1])
    return sorted(seen)


@functools.cache
def _source(module: str) -> Path | None:
    # By path: importlib.util.find_spec would import the parent packages, and torch with them.
    package, *parts = module.split(".")
    if package != PACKAGE:
        return None
    folder = Path(dpatlas.__file__).parent.joinpath(*parts)
    for path in (folder / "__init__.py", folder.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _read(module: str) -> tuple[str, frozenset[str]]:
    """Hash of a module's syntax tree and tables, and the project's modules that it imports.

    Both are read in one walk, because a dry run reads every module of the project.
    """
    source = _source(module)
    assert source is not None, module
    tree = ast.parse(source.read_text(encoding="utf-8"))
    imports: set[str] = set()
    tables: set[Path] = set()
    for node in ast.walk(tree):
        if isinstance(node, IMPORTS):
            imports.update(_imported(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if match := ENTRY_POINT.fullmatch(node.value):
                imports.update(_with_parents(match[1]))
            elif TABLE.fullmatch(node.value):
                tables.update(source.parent.rglob(node.value))
        elif isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    meaning = [ast.dump(tree, include_attributes=False)]
    meaning += [table.read_text(encoding="utf-8") for table in sorted(tables)]
    return sha256("\n".join(meaning)), frozenset(imports - {module})


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level == 0 and node.module:
        # `from package import name` may name a module or something inside one.
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    of_project = [name for name in names if name.split(".")[0] == PACKAGE]
    return [module for name in of_project for module in _with_parents(name)]


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    candidates = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return [candidate for candidate in candidates if _source(candidate) is not None]
