"""Every formula says where it stands and what it refuses; ruff asks for the docstring itself.

Read from the syntax alone: no module is imported, so torch is not either.
"""

import ast
import functools
import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"
FORMULAS = SOURCES / "dpatlas" / "formulas"
GAUSSIAN_DP = SOURCES / "dpatlas" / "accounting" / "gaussian_dp.py"
BOUNDS = [*sorted(FORMULAS.rglob("*.py")), GAUSSIAN_DP]
# Sets of domains, and the general law of a link: nothing of a paper in them.
NO_FORMULA = {("theorems", "symbols"), ("single_index", "link")}
# A numbered place of the paper, or another work by its authors and year.
SOURCE = re.compile(
    r"\b(?:Eqs?\.|Thms?|Theorem|Lemmas?|Props?\.|Cors?\.|Conjecture|Algorithm|Assumptions?|Secs?\.|"
    r"Apps?\.|Appendix|Tables?|Figs?\.) ?[A-Z]?\.?\d+(?:\.\d+)*|\b[A-Z][a-z]+,? \(?(?:19|20)\d\d\b"
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def public(module: ast.Module) -> list[Function]:
    """Functions whose names have no underscore in front."""
    nodes = (node for node in module.body if isinstance(node, Function))
    return [node for node in nodes if not node.name.startswith("_")]


def decorators(node: Function) -> dict[str, ast.expr]:
    """Decorators by name, whether called or not."""
    found = {}
    for each in node.decorator_list:
        function = each.func if isinstance(each, ast.Call) else each
        found[function.attr if isinstance(function, ast.Attribute) else function.id] = each
    return found


def source_of(node: Function) -> str | None:
    """The place that `@bound(..., source=...)` declares, or that the docstring names."""
    declared = decorators(node).get("bound")
    if isinstance(declared, ast.Call):
        given = {each.arg: ast.literal_eval(each.value) for each in declared.keywords}
        return given.get("source")
    found = SOURCE.search(ast.get_docstring(node) or "")
    return found and found.group()


def formulas(path: Path) -> list[Function]:
    """Public functions of a module of bounds that compute something of a paper."""
    return [
        node
        for node in public(tree(path))
        if (path.stem, node.name) not in NO_FORMULA
        # Conditions on several arguments at once: they return nothing.
        and not node.name.startswith("check_")
    ]


def silent_about_errors(module: ast.Module) -> list[str]:
    """Public functions that refuse input and say so neither themselves nor in the module's words.

    A `checked` one refuses what lies outside its domains, which a module may say once for all; one
    with a `raise InputError` of its own has a condition of its own.
    """
    shared = "InputError" in (ast.get_docstring(module) or "")
    found = []
    for node in public(module):
        if "InputError" in (ast.get_docstring(node) or ""):
            continue
        raises = any(
            isinstance(each, ast.Raise)
            and each.exc is not None
            and "InputError(" in ast.unparse(each)
            for each in ast.walk(node)
        )
        if raises or ("checked" in decorators(node) and not shared):
            found.append(node.name)
    return found


def test_every_formula_names_where_it_stands_and_what_it_refuses():
    sources = {(path, node.name): source_of(node) for path in BOUNDS for node in formulas(path)}
    assert len(sources) > 100
    assert [place for place, source in sources.items() if not source] == []
    assert [(path.stem, name) for path in BOUNDS for name in silent_about_errors(tree(path))] == []


def test_what_is_missing_is_seen():
    numbered, unnumbered = ast.parse(
        'def f():\n    """As in Thm 3.2."""\ndef g():\n    """The Table of contents of 2024."""'
    ).body
    assert (source_of(numbered), source_of(unnumbered)) == ("Thm 3.2", None)
    for text in (
        '"""M."""\n@checked(a=1)\ndef f(a):\n    """F."""',
        '"""M."""\ndef f(a):\n    """F."""\n    raise InputError("a", a, "b")',
    ):
        assert silent_about_errors(ast.parse(text)) == ["f"]
