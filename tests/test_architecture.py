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
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dpatlas"


@dataclass(frozen=True)
class Layer:
    """What the modules of one room may import.

    `own`: rooms of dpatlas beside the room itself and errors; None for all. Of papers and checks
    `block.X` is part X of the same block, `formulas` the formulas of any.
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
    "core": layer("", "inside functions"),
    "registry": layer("core papers checks", "never", ""),
    "records": layer("core registry old_records", "never", "pydantic"),
    "old_records": layer("core", "never", ""),
    "rows": layer("core records", "never", "pandas"),
    "catalogue": layer("core registry", "never", ""),
    "accounting": layer("formulas core", "never", "numpy scipy dp_accounting"),
    "data": layer("core", "anywhere"),
    "models": layer("formulas core data", "anywhere"),
    "privacy": layer("formulas core data models accounting", "anywhere"),
    # Checks a claim in an environment of numpy, scipy, dp-accounting and pydantic.
    "epsilon": layer(
        "config.model core.fields core.guard core.rounding accounting.accountants "
        "accounting.guarantees accounting.gaussian_dp accounting.samplers",
        "never",
        "numpy scipy pydantic",
    ),
    # Audits other people's code: only its adapters know torch.
    "audit": layer(
        "core epsilon accounting.audit_statistics accounting.one_run privacy.side_door",
        "inside functions",
        "numpy scipy torch",
    ),
    # Certifies other people's networks, by the formulas and passes of max_information.
    "certify": layer("formulas core models accounting privacy", "anywhere", "numpy torch"),
    "config": layer("core cost.counting data records registry", "never"),
    "cost": layer("core config records registry", "never"),
    "show": layer("core records registry", "never"),
    "evidence": layer("core config records registry rows", "never"),
    "report": layer("core config cost evidence records registry", "never"),
    "jobs": layer("formulas core data models accounting privacy registry", "anywhere"),
    # Trains other people's networks, as a settings file says.
    "train": layer("core config data jobs models accounting privacy", "anywhere"),
    "papers": layer("", "never", ""),
    "checks": layer("", "never", ""),
    "commands": layer(None, "inside functions"),
    "bench": layer(None, "anywhere"),
    # Parts of a block. What jobs import re-runs them: neither settings nor products nor cost.
    "block.__init__": layer("", "never", ""),
    "block.block": layer("core.blocks", "never", ""),
    "block.formulas": layer(
        "core.formulas core.guard accounting.gaussian_dp", "never", "numpy scipy"
    ),
    "block.shared": layer("block.kinds block.records formulas core records rows", "never"),
    "block.printed": layer("core.files core.statistics evidence.printed", "never", ""),
    "block.settings": layer("block.shared block.records formulas core config", "never"),
    "block.cost": layer("block.shared block.records formulas core config cost", "never", ""),
    "block.records": layer("block.shared formulas core", "never"),
    "block.jobs": layer(
        "block.shared block.records formulas core data models accounting privacy jobs train",
        "anywhere",
    ),
    # The records of each kind, for those who read them.
    "block.kinds": layer("block.records records", "never", ""),
    "block.figures": layer(
        "block.shared block.records block.kinds formulas core records show rows", "never"
    ),
    "block.claims": layer(
        "block.shared block.records block.kinds formulas core accounting.gaussian_dp records "
        "rows evidence",
        "never",
    ),
}
PARTS = {name.partition(".")[2] for name in LAYERS if name.startswith("block.")} - {"shared"}
BLOCKS = ("papers", "checks")
# The workflow knows the package, never the other way round.
FORBIDDEN = {"snakemake"}
# Files that come from elsewhere could run code; test_supply_chain.py has a rule for pickle.
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
    "evidence/errata.py",
)
# Every cluster job parses the Snakefile again, which imports these: torch would cost it seconds.
LIGHT = tuple(name for name, rules in LAYERS.items() if rules.torch != "anywhere")


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    at_import: bool


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import of a module of `package`, those inside functions and by name included."""
    inside = {
        id(node)
        for later in ast.walk(tree)
        if isinstance(later, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or (isinstance(later, ast.If) and getattr(later.test, "id", None) == "TYPE_CHECKING")
        for node in ast.walk(later)
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


def room_of(path: str) -> tuple[str, str]:
    """Room of a module, and the block that it belongs to, if any: `papers/KEY/jobs/training.py`."""
    first, *rest = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if first not in BLOCKS or not rest:
        return first, ""
    part = rest[1].removesuffix("_exact") if len(rest) > 1 else "__init__"
    return f"block.{part if part in PARTS else 'shared'}", f"{first}.{rest[0]}"


def allowed(target: str, rules: Layer, room: str, block: str) -> bool:
    """Whether a module of `room` (and `block`) may import `target`, a path without dpatlas."""
    if rules.own is None or target.split(".")[0] == "errors":
        return True
    there, other = room_of(target.replace(".", "/"))
    if other:
        # Attacks on a paper's mechanisms run its jobs.
        attacked = block.startswith("checks.") and other.startswith("papers.")
        same = other == block or (attacked and there == room == "block.jobs")
        if there == "block.formulas":
            return bool({"formulas", "block.formulas"} & rules.own) or (same and there == room)
        return same and (there == room or there in rules.own)
    if block:
        return any(target == name or target.startswith(f"{name}.") for name in rules.own)
    return there == room or any(
        target == name or target.startswith(f"{name}.") for name in rules.own
    )


def import_faults(path: str, source: str) -> list[str]:
    """`path` is relative to the package; each fault names file, line and rule."""
    room, block = room_of(path)
    rules = LAYERS[room]
    package = ".".join(["dpatlas", *path.split("/")[:-1]])
    faults = []
    for found in imports_of(ast.parse(source), package):
        top, _, rest = found.target.partition(".")
        rule = None
        if top == "dpatlas":
            # Names that are no layer are attributes of the package, its version for one.
            if rest.split(".")[0] in LAYERS and not allowed(rest, rules, room, block):
                rule = f"{room} may import of dpatlas only {', '.join(sorted(rules.own))}"
        elif top in FORBIDDEN:
            rule = "nothing in src imports snakemake"
        elif top in UNSAFE or found.target.startswith("pickle."):
            rule = "no unpickling (only `import pickle`, for a restricted Unpickler)"
        elif top in ("torch", "torchvision", "opacus") and (
            rules.torch == "never" or (rules.torch == "inside functions" and found.at_import)
        ):
            rule = f"{room} imports torch {rules.torch}"
        elif top in SLOW_TO_IMPORT and found.at_import:
            rule = f"{top} takes seconds to import: import it in the function that needs it"
        elif rules.foreign is not None and top not in rules.foreign | sys.stdlib_module_names:
            foreign = ", ".join(sorted(rules.foreign)) or "nothing"
            rule = f"{room} may import of third parties only {foreign}"
        if rule:
            faults.append(f"src/dpatlas/{path}:{found.line}: imports {found.target}: {rule}")
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
    homeless = {path for path in modules() if room_of(path)[0] not in LAYERS}
    assert not homeless, f"add to LAYERS in {Path(__file__).name}: {sorted(homeless)}"


@pytest.mark.parametrize("check", [import_faults, print_faults])
def test_the_package_keeps_its_rules(check):
    faults = [fault for path, source in modules().items() for fault in check(path, source)]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("check", "path", "source"),
    [
        (import_faults, "papers/x/formulas/a.py", "import torch"),
        (import_faults, "papers/x/formulas/a.py", "from dpatlas.core import seeds"),
        (import_faults, "core/a.py", "import torch.nn"),
        (import_faults, "papers/x/jobs/a.py", "import dpatlas.show.style"),
        (import_faults, "papers/x/jobs/a.py", "import_module(f'dpatlas.report.{name}')"),
        (import_faults, "papers/x/figures/a.py", "def f():\n    import torch"),
        (import_faults, "papers/x/jobs/a.py", "from dpatlas.papers.x import settings"),
        (import_faults, "papers/x/jobs/a.py", "from dpatlas.papers.y.jobs import b"),
        (import_faults, "papers/x/figures/a.py", "from dpatlas.papers.x.jobs import b"),
        (import_faults, "papers/x/settings.py", "from dpatlas.checks.y.settings import b"),
        (import_faults, "commands/a.py", "from snakemake.utils import validate"),
        (import_faults, "models/a.py", "import umap"),
        (import_faults, "data/a.py", "from pickle import loads"),
        (print_faults, "data/a.py", "def f():\n    print('x')"),
    ],
)
def test_a_planted_fault_is_found(check, path, source):
    (fault,) = check(path, source)
    assert re.match(rf"src/dpatlas/{path}:\d+: .+", fault)


def test_light_modules_load_no_torch_at_any_remove():
    names = [
        ".".join(["dpatlas", *path.removesuffix(".py").removesuffix("/__init__").split("/")])
        for path in modules()
        # The three of that name run their command when they are imported.
        if not path.endswith("__main__.py") and room_of(path)[0] in LIGHT
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
        and not {canonicalize_name(name) for name in providers.get(top, [])} & required
    ]
    assert not undeclared, "\n" + "\n".join(undeclared)
