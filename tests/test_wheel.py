"""The wheel: what is in it, and its light core in an environment that has nothing else."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from test_setup import direct_requirements

# Each installs the package into an environment of its own.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc")
CLAIM = (
    *("epsilon", "--sampler", "poisson", "--n", "60000", "--batch", "256", "--noise", "1.1"),
    *("--steps", "3516", "--delta", "1e-5", "--claimed"),
)
BOUND = ("dp-sgld-claimed-rdp", "alpha=2", "L=2", "lam=1", "n=100", "sigma2=0.02", "sum_eta=0.5")


def pip(*words):
    """Runs pip without the network and without what a package depends on."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    subprocess.run([sys.executable, "-m", "pip", *words, *quiet], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy of the checkout: building leaves files behind."""
    folder, copy = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("copy")
    for name in ("src", "docs/results"):
        shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "config.yaml"):
        shutil.copy(ROOT / name, copy)
    pip("wheel", "--no-build-isolation", "-w", folder, copy)
    (built,) = folder.glob("*.whl")
    return built


def packages_of(requirements):
    """The distributions that these requirements bring, and theirs."""
    found, waiting = {}, [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        if requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            needed = map(Requirement, found[requirement.name].requires or ())
            waiting += [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found.values()


def environment(folder, wheel, requirements):
    """(programs, working folder) of an environment with the wheel and these packages alone."""
    venv.create(folder / "env", symlinks=True)
    pip("--python", folder / "env/bin/python", "install", wheel)
    (packages,) = (folder / "env/lib").glob("python*/site-packages")
    for package in packages_of(requirements):
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(package.locate_file(top))
    (folder / "work").mkdir()
    return folder / "env/bin", folder / "work"


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory):
    """The wheel with the packages of its core."""
    return environment(tmp_path_factory.mktemp("core"), wheel, PROJECT["dependencies"])


@pytest.fixture(scope="module")
def training(wheel, tmp_path_factory):
    """The wheel with the extra [train]."""
    extra = PROJECT["optional-dependencies"]["train"]
    folder = tmp_path_factory.mktemp("training")
    return environment(folder, wheel, [*PROJECT["dependencies"], *extra])


def run(core, *words):
    """(exit code, standard output, standard error) of a program of the environment."""
    programs, work = core
    program, *rest = words
    # Nothing of the checkout or of this environment is to be found.
    env = {"PATH": str(programs), "HOME": str(work), "COLUMNS": "100"}
    done = subprocess.run(
        [programs / program, *rest], capture_output=True, text=True, cwd=work, env=env
    )
    return done.returncode, done.stdout, done.stderr


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    ignored = ("__pycache__", ".egg-info")
    files = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and not any(part in str(path) for part in ignored)
    ]
    assert len(files) > 400 and not set(files) - packed
    published = {f"dpatlas/packaged/{path.parent.name}/claims.csv" for path in claims_files()}
    assert published and published | {"dpatlas/packaged/config.yaml"} <= packed


def claims_files():
    return list((ROOT / "docs/results").glob("*/claims.csv"))


def test_the_extras_together_are_the_environment_of_a_checkout():
    extras = dict(PROJECT["optional-dependencies"])
    # The weights of one backbone, and Parquet: what needs them says how to install them.
    for name in ("imagenet", "parquet"):
        del extras[name]
    texts = [*PROJECT["dependencies"], *(text for extra in extras.values() for text in extra)]
    named = [Requirement(text) for text in texts]
    outside = [str(each) for each in named if each.name != "dp-atlas"]
    assert sorted(outside) == sorted(map(str, direct_requirements()))
    assert len(PROJECT["dependencies"]) == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--version",), 0, "dp-atlas 0."),
        ((*CLAIM, "3"), 0, "GUARANTEED"),
        ((*CLAIM, "0.5"), 1, "REFUTED"),
        ((*CLAIM, "-1"), 2, "claimed"),
        (("bound", *BOUND), 0, "0.0353"),
        (("bound", "--list"), 0, "dp-sgld-claimed-rdp"),
        (("claims", "--published"), 0, "kl-1a"),
        (("claims", "--published", "--badge"), 0, "claims reproduced"),
        (("claims",), 2, "results/embedded/claims.csv"),
        (("audit",), 2, "pip install 'dp-atlas[train] @ file://"),
        (("train", "x.yaml"), 2, "pip install 'dp-atlas[train] @ file://"),
        (("bench", "kl"), 2, "pip install 'dp-atlas[dev] @ file://"),
        (("tune",), 2, "pip install 'dp-atlas[workflow] @ file://"),
        (("publish",), 2, "pip install 'dp-atlas[workflow] @ file://"),
        (("explain", "kl-5b"), 2, "no results of tier embedded"),
        (("nothing",), 2, "command: found 'nothing'"),
    ],
    ids=lambda value: "-".join(value)[:30] if isinstance(value, tuple) else None,
)
def test_a_command_of_the_light_core_works_or_names_the_extra_that_it_needs(
    core, words, code, said
):
    found, output, errors = run(core, "dpatlas", *words)
    assert found == code and said in output + errors, errors
    assert "Traceback" not in errors and (code < 2 or errors.count("\n") == 1)


def test_the_published_verdicts_of_the_wheel_are_those_of_the_checkout(core):
    _, output, _ = run(core, "dpatlas", "claims", "--published", "--json")
    tier = ROOT / "docs/results"
    words = [sys.executable, "-m", "dpatlas", "claims", "--published", "--json", "--docs", tier]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    here = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
    assert json.loads(output) == json.loads(here.stdout) != []


def test_claims_in_a_file_are_checked_by_the_core(core):
    (core[1] / "claims.yaml").write_text(
        "- {sampler: poisson, n: 600, batch: 60, noise: 1.1, steps: 10, delta: 1.0e-5, claimed: 9}"
    )
    code, output, errors = run(core, "dpatlas", "epsilon", "--batch", "claims.yaml")
    assert code == 0 and "GUARANTEED" in output, errors


def test_python_reads_the_core_without_any_extra(core):
    script = (
        "import sys; from dpatlas import check_epsilon; "
        "from dpatlas.privacy import Poisson, epsilon_lower_bound, guarantee, Phase; "
        "print(guarantee([Phase(Poisson(600, 60), 1.0, 10)], 1e-5, 'add_remove').epsilon); "
        "assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    code, output, errors = run(core, "python", "-c", script)
    assert code == 0, errors
    assert 0.5 < float(output) < 20


def test_training_in_numpy_is_audited_by_the_core(core):
    text = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    seeded = ("--premises-only", "--seed", "1")
    script = text.partition("```python\n# mine.py\n")[2].partition("```")[0]
    (core[1] / "mine.py").write_text(script)
    code, output, errors = run(core, "dpatlas", "audit", "mine.py:train", *seeded)
    assert code == 0 and "NOT CONTRADICTED" in output, errors
    (core[1] / "mine.py").write_text(script.replace("claim.noise * clip", "claim.noise / 2"))
    code, output, errors = run(core, "dpatlas", "audit", "mine.py:train", *seeded)
    assert code == 1 and "PREMISES FAIL: noise" in output, errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train",), "epsilon"),
        (("audit", "--mechanism", "dp-sgd-poisson", "--runs", "20"), "dp-sgd-poisson"),
    ],
    ids=lambda value: value[0],
)
def test_the_extra_for_training_trains_and_audits_without_a_checkout(training, words, said):
    code, output, errors = run(training, "dpatlas", *words)
    assert code == 0 and said in output, errors
