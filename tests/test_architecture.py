"""Who may not import whom, and what modules may not do. The tables come first."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
ROOTS = ("dpatlas", "dpatlas_workflow")
# Of a block: what its jobs import, whose code they then run again.
OF_JOBS = r"(?!settings|products|printed|cost|figures|claims|block)\w+"
BLOCK = r"dpatlas_workflow\.(?:papers|checks)\.(\w+)"
# Modules by a pattern; a pattern of what they never import, in which \1 is the block's key; why.
NEVER = [
    (r"dpatlas\b(?!_)", r"dpatlas_workflow", "the library stands alone"),
    (r"dpatlas\.(base|errors)\b", r"dpatlas\.(?!base|errors|__version__)", "the base stands alone"),
    (
        r"dpatlas\.formulas\.",
        r"dpatlas\.(?!formulas|errors|base\.(formulas|guard)|accounting\.gaussian_dp)"
        r"|(?!dpatlas|numpy|scipy)\w",
        "formulas need numpy and scipy alone",
    ),
    # Checks a claim in an environment of numpy, scipy, dp-accounting and pydantic.
    (
        r"dpatlas\.(epsilon|accounting)\b",
        r"dpatlas\.(privacy|models|data|jobs|audit|train)\b"
        r"|(?!dpatlas|numpy|scipy|pydantic|dp_accounting)\w",
        "the accounting knows no training",
    ),
    (
        r"dpatlas\.(privacy|models|data|jobs)\b",
        r"dpatlas\.(epsilon|audit|train|bench|certify|commands|cli)\b",
        "the engine knows none of its users",
    ),
    # Audits other people's code.
    (
        r"dpatlas\.audit\b",
        r"dpatlas\.(privacy|models\.(?!side_door)|data|jobs|train|bench)",
        "an audit trusts no code of ours",
    ),
    (
        rf"{BLOCK}\.(jobs|records|{OF_JOBS}$)|dpatlas_workflow\.run\b",
        r"dpatlas_workflow\.(config|cost|show|report|evidence|commands)\b"
        r"|dpatlas_workflow\.\w+\.\w+\.(settings|products|cost|figures|claims|block)\b",
        "an edit there would run jobs again",
    ),
    (
        rf"{BLOCK}\.(figures|claims|settings|records|cost|products|block)\b",
        rf"{BLOCK}\.jobs\b",
        "what is shown needs no training code",
    ),
    (
        r"dpatlas_workflow\.papers\.(\w+)",
        r"dpatlas_workflow\.(papers\.(?!\1\b)|checks\.)",
        "papers never import each other",
    ),
    (
        r"dpatlas_workflow\.(?!papers|checks|registry|commands|run\.private)",
        r"dpatlas_workflow\.(papers|checks)\.",
        "blocks are found by the registry",
    ),
    (r"(?!dpatlas\.loops\b)", r"dpatlas\.loops\b", "they need packages that may not be there"),
    ("", r"snakemake\b", "the workflow knows the packages, not the other way round"),
    # Files that come from elsewhere could run code; test_supply_chain.py has a rule for pickle.
    ("", r"(cloudpickle|dill|joblib|marshal|shelve|_pickle)\b|pickle\.", "no unpickling"),
]
# Every cluster job parses the Snakefile again, which imports these: torch would cost it seconds.
LIGHT = re.compile(
    rf"{BLOCK}\.(figures|claims|settings|records|cost|products|block)\b"
    r"|dpatlas_workflow\.(?!papers|checks|run)"
    r"|dpatlas\.(base|formulas|accounting|epsilon|audit|commands|cli|catalogue|errors)\b"
    r"|dpatlas\.data\.(fetch_weights|prepared)\b"
)
HEAVY = re.compile(r"(torch|torchvision|opacus|umap)\b")
# Modules that need packages of requirements-models.in.
OPTIONAL = re.compile(r"dpatlas\.loops\.(huggingface|lightning)$")
MAY_PRINT = re.compile(
    r"\w+\.commands\.|dpatlas\.(cli|errors|base\.progress|data\.prepare)$"
    r"|dpatlas_workflow\.evidence\.(claims|errata)$"
)


def imports_of(tree: ast.AST, package: str) -> Iterator[tuple[str, int, bool]]:
    """Every import: its target, its line, and whether it is done when the module is imported."""
    later = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or (isinstance(outer, ast.If) and getattr(outer.test, "id", None) == "TYPE_CHECKING")
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        for target in targets(node, package):
            yield target, node.lineno, id(node) not in later


def targets(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{base}.{name.name}" for name in node.names]
    if isinstance(node, ast.Call) and node.args:
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        if called in ("import_module", "__import__"):
            argument = node.args[0]
            if isinstance(argument, ast.JoinedStr):
                argument = argument.values[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return [argument.value]
    return []


def import_faults(module: str, source: str) -> list[str]:
    package = module.rpartition(".")[0]
    faults = []
    for target, line, at_import in imports_of(parsed(source), package):
        for who, never, why in NEVER:
            if match := re.match(who, module):
                key = next((each for each in match.groups() if each), "")
                if re.match(never.replace(r"\1", key), target) and not standard(target):
                    faults.append(f"{module}:{line}: imports {target}: {why}")
        if LIGHT.match(module) and HEAVY.match(target) and at_import:
            faults.append(f"{module}:{line}: imports {target}: only inside functions")
    return faults


def standard(target: str) -> bool:
    return target.partition(".")[0] in sys.stdlib_module_names and not target.startswith(
        ("marshal", "shelve", "_pickle", "pickle.")
    )


def print_faults(module: str, source: str) -> list[str]:
    return [
        f"{module}:{node.lineno}: print: only commands print"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
        if not MAY_PRINT.match(module)
    ]


parsed = functools.cache(ast.parse)


@functools.cache
def modules() -> dict[str, str]:
    """Sources by the names of their modules."""
    return {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for root in ROOTS
        for path in sorted((SRC / root).rglob("*.py"))
    }


@pytest.mark.parametrize("check", [import_faults, print_faults])
def test_the_packages_keep_their_rules(check):
    faults = [fault for module, source in modules().items() for fault in check(module, source)]
    assert not faults, "\n" + "\n".join(faults)


X = "dpatlas_workflow.papers.x"


@pytest.mark.parametrize(
    ("check", "module", "source"),
    [
        (import_faults, "dpatlas.train.a", "from dpatlas_workflow.records import Record"),
        (import_faults, "dpatlas.formulas.x.a", "import torch"),
        (import_faults, "dpatlas.formulas.x.a", "from dpatlas.base import seeds"),
        (import_faults, "dpatlas.base.a", "import torch.nn"),
        (import_faults, "dpatlas.base.a", "from dpatlas.privacy import Noise"),
        (import_faults, "dpatlas.privacy.a", "from dpatlas.audit import Claim"),
        (import_faults, "dpatlas.audit.a", "from dpatlas.privacy.noise import noisy_sum"),
        (import_faults, "dpatlas.data.a", "from pickle import loads"),
        (import_faults, "dpatlas.train.a", "from dpatlas.loops.shared import Items"),
        (import_faults, f"{X}.jobs.a", "import dpatlas_workflow.show.style"),
        (import_faults, f"{X}.jobs.a", "import_module(f'dpatlas_workflow.report.{name}')"),
        (import_faults, f"{X}.jobs.a", "from dpatlas_workflow.papers.x.settings import b"),
        (import_faults, f"{X}.jobs.a", "from dpatlas_workflow.papers.y.jobs import b"),
        (import_faults, f"{X}.arms", "from dpatlas_workflow.papers.x.settings import b"),
        (import_faults, f"{X}.figures.a", "from dpatlas_workflow.papers.x.jobs import b"),
        (import_faults, f"{X}.settings", "from dpatlas_workflow.checks.y.settings import b"),
        (import_faults, "dpatlas_workflow.report.a", "import dpatlas_workflow.papers.x.claims"),
        (import_faults, "dpatlas_workflow.show.a", "import umap"),
        (import_faults, "dpatlas_workflow.commands.a", "from snakemake.utils import validate"),
        (print_faults, "dpatlas.data.a", "def f():\n    print('x')"),
    ],
)
def test_a_planted_fault_is_found(check, module, source):
    found = check(module, source)
    assert found and all(fault.startswith(f"{module}:") for fault in found)


# Those of that name run their command when they are imported.
IMPORTABLE = [name for name in modules() if not name.endswith("__main__")]


@pytest.mark.parametrize(
    ("names", "never"),
    [
        ([name for name in IMPORTABLE if LIGHT.match(name)], {"torch", "umap", "snakemake"}),
        (
            [n for n in IMPORTABLE if n.startswith("dpatlas.") and not OPTIONAL.match(n)],
            {"dpatlas_workflow"},
        ),
    ],
    ids=["light modules", "the library"],
)
def test_modules_load_at_no_remove_what_they_may_not(names, never):
    # One process for all: the first module after which one is there is the one to name.
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        f"    found = {never} & set(sys.modules)\n"
        "    assert not found, f'importing {name} loads {found}'\n"
    )
    run = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_third_party_imports_are_direct_requirements():
    required, optional = (
        {Requirement(line).name for line in lines if line and not line.startswith(("#", "-"))}
        for name in ("requirements.in", "requirements-models.in")
        for lines in [(ROOT / name).read_text(encoding="utf-8").splitlines()]
    )
    providers = metadata.packages_distributions()
    undeclared = [
        f"{module}:{line}: imports {target}, not in requirements.in"
        for module, source in modules().items()
        for target, line, _ in imports_of(parsed(source), module)
        if (top := target.partition(".")[0]) not in {*sys.stdlib_module_names, *ROOTS}
        and not {canonicalize_name(name) for name in providers.get(top, [])} & required
        and not (top in optional and (OPTIONAL.match(module) or module == "dpatlas.train.files"))
    ]
    assert not undeclared, "\n" + "\n".join(undeclared)


@pytest.mark.parametrize("root", ROOTS)
def test_no_two_public_classes_share_a_name(root):
    places: dict[str, list[str]] = {}
    for module, source in modules().items():
        if module.partition(".")[0] == root:
            for node in parsed(source).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(module)
    assert not {name: there for name, there in places.items() if len(there) > 1}
