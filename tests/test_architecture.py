"""Who may import whom, and what library code may not do. The table comes first."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dpatlas"


@dataclass(frozen=True)
class Layer:
    """What the modules of one folder (or one module) may import.

    `own`: parts of dpatlas beside the layer itself and errors; None for all.
    `foreign`: the only third-party packages; None for all.
    `torch`: "never", "inside functions" or "anywhere".
    """

    own: frozenset[str] | None
    torch: str
    foreign: frozenset[str] | None = None


def layer(own: str | None, torch: str, foreign: str | None = None) -> Layer:
    return Layer(
        None if own is None else frozenset(own.split()),
        torch,
        None if foreign is None else frozenset(foreign.split()),
    )


LAYERS = {
    "__init__": layer("", "never", ""),
    "__main__": layer("cli", "never", ""),
    "errors": layer("", "never", ""),
    "cli": layer("commands", "never", ""),
    "bounds": layer("core.guard", "never", "numpy scipy"),
    "core": layer("bounds", "inside functions"),
    "specs": layer("bounds core", "never"),
    "data": layer("bounds core", "anywhere"),
    "models": layer("bounds core data", "anywhere"),
    "privacy": layer("bounds core data models", "anywhere"),
    "experiments": layer("bounds core specs data models privacy", "anywhere"),
    "figures": layer("bounds core specs", "never"),
    "report": layer("bounds core specs", "never"),
    "commands": layer(None, "inside functions"),
    "bench": layer(None, "anywhere"),
}
# The workflow knows the package, never the other way round.
FORBIDDEN = {"snakemake"}
# Files that come from elsewhere could run code; pickle has a rule of its own below.
UNSAFE = {"cloudpickle", "dill", "joblib", "marshal", "shelve", "_pickle"}
# Seconds to import, so only where it is used.
SLOW_TO_IMPORT = {"umap"}
MAY_PRINT = (
    "commands/",
    "cli.py",
    "errors.py",
    "core/progress.py",
    "data/prepare.py",
    "evidence/claims.py",
)
# Every cluster job parses the Snakefile again, which imports these: torch would cost it seconds.
LIGHT = ("bounds", "core", "specs", "figures", "report", "cli", "errors", "commands")


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    at_import: bool


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import of a module of `package`, those inside functions and by name included."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for target in import_targets(node, package):
            yield Import(target, node.lineno, id(node) not in inside)


def import_targets(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{base}.{name.name}" for name in node.names]
    if isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in ("import_module", "__import__"):
            argument = node.args[0]
            if isinstance(argument, ast.JoinedStr):
                argument = argument.values[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return [argument.value.rstrip(".")]
    return []


def within(target: str, names: frozenset[str]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in names)


def import_faults(path: str, source: str) -> list[str]:
    """`path` is relative to the package; each fault names file, line and rule."""
    home = path.split("/")[0].removesuffix(".py")
    rules = LAYERS[home]
    package = ".".join(["dpatlas", *path.split("/")[:-1]])
    faults = []
    for found in imports_of(ast.parse(source), package):
        top, _, rest = found.target.partition(".")
        rule = None
        if top == "dpatlas":
            # Names that are no layer are attributes of the package, its version for one.
            is_part = rest.split(".")[0] in LAYERS
            if is_part and rules.own is not None and not within(rest, rules.own | {home, "errors"}):
                allowed = sorted(rules.own | {home, "errors"})
                rule = f"{home} may import of dpatlas only {', '.join(allowed)}"
        elif top in FORBIDDEN:
            rule = "nothing in src imports snakemake"
        elif top in UNSAFE or found.target.startswith("pickle."):
            rule = "no unpickling (only `import pickle`, for a restricted Unpickler)"
        elif top in ("torch", "torchvision", "opacus") and (
            rules.torch == "never" or (rules.torch == "inside functions" and found.at_import)
        ):
            rule = f"{home} imports torch {rules.torch}"
        elif top in SLOW_TO_IMPORT and found.at_import:
            rule = f"{top} takes seconds to import: import it in the function that needs it"
        elif rules.foreign is not None and top not in rules.foreign | sys.stdlib_module_names:
            allowed = ", ".join(sorted(rules.foreign)) or "nothing"
            rule = f"{home} may import of third parties only {allowed}"
        if rule:
            faults.append(f"src/dpatlas/{path}:{found.line}: imports {found.target}: {rule}")
    return faults


def pickle_faults(path: str, source: str) -> list[str]:
    """Pickle may serve only as the base of an Unpickler that says which classes it builds."""
    tree = ast.parse(source)
    restricted = {
        id(base)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(part, ast.FunctionDef) and part.name == "find_class" for part in node.body
        )
        for base in node.bases
    }
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            unsafe = (node.arg, value) in {("allow_pickle", True), ("weights_only", False)}
        else:
            unsafe = (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "pickle"
                and node.attr not in ("PickleError", "UnpicklingError")
                and id(node) not in restricted
            )
        if unsafe:
            faults.append(
                f"src/dpatlas/{path}:{node.value.lineno}: {ast.unparse(node)}: "
                "unpickle only through an Unpickler with its own find_class"
            )
    return faults


def print_faults(path: str, source: str) -> list[str]:
    if path.startswith(MAY_PRINT):
        return []
    return [
        f"src/dpatlas/{path}:{node.lineno}: print: only {', '.join(MAY_PRINT)} may print"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def modules() -> dict[str, str]:
    """Path relative to the package -> source, for every module."""
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_every_module_belongs_to_a_layer():
    homeless = {path for path in modules() if path.split("/")[0].removesuffix(".py") not in LAYERS}
    assert not homeless, f"add to LAYERS in {Path(__file__).name}: {sorted(homeless)}"


@pytest.mark.parametrize("check", [import_faults, pickle_faults, print_faults])
def test_the_package_keeps_its_rules(check):
    faults = [fault for path, source in modules().items() for fault in check(path, source)]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("check", "path", "source"),
    [
        (import_faults, "bounds/a.py", "import torch"),
        (import_faults, "bounds/a.py", "import pandas"),
        (import_faults, "bounds/a.py", "from dpatlas.core import seeds"),
        (import_faults, "bounds/a.py", "from ..core.seeds import seed"),
        (import_faults, "core/a.py", "import torch.nn"),
        (import_faults, "core/a.py", "def f():\n    from dpatlas.models import mlp"),
        (import_faults, "models/a.py", "from dpatlas import privacy"),
        (import_faults, "experiments/a.py", "import dpatlas.show.style"),
        (import_faults, "experiments/a.py", "import_module(f'dpatlas.figures.{name}')"),
        (import_faults, "figures/a.py", "def f():\n    import torch"),
        (import_faults, "report/a.py", "importlib.import_module('torch')"),
        (import_faults, "report/a.py", "from dpatlas.figures import style"),
        (import_faults, "commands/a.py", "from torch import nn"),
        (import_faults, "commands/a.py", "from snakemake.utils import validate"),
        (import_faults, "models/a.py", "import umap"),
        (import_faults, "data/a.py", "from pickle import loads"),
        (import_faults, "data/a.py", "import joblib"),
        (pickle_faults, "data/a.py", "import pickle\npickle.load(f)"),
        (pickle_faults, "data/a.py", "import pickle\npickle.Unpickler(f).load()"),
        (pickle_faults, "data/a.py", "import pickle\nclass A(pickle.Unpickler): pass"),
        (pickle_faults, "data/a.py", "np.load(f, allow_pickle=True)"),
        (pickle_faults, "models/a.py", "torch.load(f, weights_only=False)"),
        (print_faults, "data/a.py", "def f():\n    print('x')"),
    ],
)
def test_a_planted_fault_is_found(check, path, source):
    (fault,) = check(path, source)
    assert re.match(rf"src/dpatlas/{path}:\d+: .+", fault)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bounds/a.py", "import math\nimport numpy as np\nfrom dpatlas.core.guard import real"),
        ("bounds/a.py", "from dpatlas.core import guard\nfrom . import b"),
        ("core/a.py", "from dpatlas import __version__\ndef f():\n    import torch"),
        ("experiments/a.py", "import torch\nfrom dpatlas.models.mlp import init"),
        ("figures/a.py", "import pandas\nfrom dpatlas.bounds import kl_privacy"),
        (
            "data/a.py",
            "import pickle\nclass A(pickle.Unpickler):\n def find_class(s, m, n): 0",
        ),
        ("commands/a.py", "print('x')\nfrom dpatlas.experiments import kl_privacy"),
    ],
)
def test_what_the_layers_allow_is_no_fault(path, source):
    checks = (import_faults, pickle_faults, print_faults)
    assert not [fault for check in checks for fault in check(path, source)]


def test_light_modules_load_no_torch_at_any_remove():
    names = [
        ".".join(["dpatlas", *path.removesuffix(".py").removesuffix("/__init__").split("/")])
        for path in modules()
        if path.split("/")[0].removesuffix(".py") in LIGHT
    ]
    # One process for all: the first module after which torch is there is the one to name.
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    heavy = {'torch', 'umap', 'snakemake'} & set(sys.modules)\n"
        "    assert not heavy, f'importing {name} loads {heavy}'\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, *names], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_third_party_imports_are_direct_requirements():
    lines = (ROOT / "requirements.in").read_text(encoding="utf-8").splitlines()
    required = {Requirement(line).name for line in lines if line and not line.startswith("#")}
    providers = metadata.packages_distributions()
    undeclared = [
        f"src/dpatlas/{path}:{found.line}: imports {found.target}, not in requirements.in"
        for path, source in modules().items()
        for found in imports_of(ast.parse(source), "dpatlas")
        if (top := found.target.partition(".")[0]) not in {*sys.stdlib_module_names, "dpatlas"}
        and not {name.lower() for name in providers.get(top, [])} & required
    ]
    assert not undeclared, "\n" + "\n".join(undeclared)
