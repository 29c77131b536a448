"""What a user meets before the first job: the locks, the other ways in, and make's complaints."""

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
LOCKS = (
    *("requirements.lock", "requirements-uv.lock"),
    *("requirements-docs.lock", "requirements-models.lock"),
)
CONDA_NAMES = {
    "torch": "pytorch",
    "ruamel-yaml": "ruamel.yaml",
    "ruamel-yaml-clib": "ruamel.yaml.clib",
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> list[str]:
    return re.findall(r"^([a-z-]+):", read("Makefile"), re.M)


def direct_requirements() -> list[Requirement]:
    lines = read("requirements.in").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def lock_entries(name: str) -> dict[str, list[str]]:
    """Requirement line -> its hashes."""
    entries: dict[str, list[str]] = {}
    for line in read(name).replace("\\\n", " ").splitlines():
        requirement, *hashes = line.split("--hash=")
        entries[requirement.strip()] = [part.strip() for part in hashes]
    return entries


def pins(python: str, system: str = "linux", machine: str = "x86_64") -> dict[str, str]:
    """Package -> version for one Python and platform; fails where the lock names two."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
    }
    found: dict[str, str] = {}
    for requirement in map(Requirement, lock_entries("requirements.lock")):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in found, f"two pins of {requirement.name} on {python}"
            (specifier,) = requirement.specifier
            assert specifier.operator == "=="
            found[requirement.name] = specifier.version
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes(name):
    entries = lock_entries(name)
    bare = [
        entry
        for entry, hashes in entries.items()
        if not hashes or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes)
    ]
    assert entries
    assert not bare


@pytest.mark.parametrize("name", [*LOCKS, "requirements.in", "environment.yml", "Makefile"])
def test_no_file_of_the_set_up_names_a_package_index(name):
    assert not re.search(r"://|--(extra-)?index|--find-links", read(name))


def test_the_address_of_torch_s_cpu_build_stands_in_one_place():
    texts = [read(name) for name in ("Makefile", "tools/setup.sh")]
    (address,) = re.findall(r"\w+://[^\s}]+", "".join(texts))
    assert address == "https://download.pytorch.org/whl/cpu"


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(
    ("system", "machine"), [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]
)
def test_the_lock_meets_every_direct_requirement(python, system, machine):
    pinned = pins(python, system, machine)
    unmet = [
        str(requirement)
        for requirement in direct_requirements()
        if pinned.get(requirement.name) is None
        or not requirement.specifier.contains(pinned[requirement.name])
    ]
    assert not unmet


def test_the_conda_environment_has_the_locks_pins():
    environment = yaml.safe_load(read("environment.yml"))
    by_pip = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    by_conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    given = dict(entry.split("==") for group in by_pip for entry in group)
    given |= dict(entry.split("=") for entry in by_conda if "=" in entry)
    pinned = pins(given.pop("python"))
    expected = {requirement.name: pinned[requirement.name] for requirement in direct_requirements()}
    assert given == {CONDA_NAMES.get(name, name): version for name, version in expected.items()}
    assert environment["variables"] == {"PYTHONPATH": "src"}


def test_a_public_host_runs_targets_of_make_on_every_python_that_is_promised():
    workflow = yaml.safe_load(read(".github/workflows/tests.yml"))
    (job,) = workflow["jobs"].values()
    promised = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"]
    assert SpecifierSet(promised) == SpecifierSet(">=3.11,<3.14")
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    targets = re.findall(r"make ([a-z-]+)", str([step.get("run") for step in job["steps"]]))
    assert {"setup", "lint", "test"} <= set(targets) <= set(make_targets())
    for test in re.findall(r"tests/\S+::(\w+)", str(job["steps"])):
        assert f"def {test}(" in read("tests/test_setup.py")


def test_a_commit_is_linted_as_make_lint_does():
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert local["repo"] == "local"
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.M)[1]
    for hook in local["hooks"]:
        command = hook["entry"].replace(" --force-exclude", "").replace(".venv/bin", "$(BIN)")
        assert f"@{command}" in lint


def make(*arguments: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    """Run make as a user would: without the settings of a make that runs these tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    inherited.pop("MFLAGS", None)
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**inherited, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_targets_expand():
    assert {"all", "help", "setup", "test", "clean"} <= set(make_targets())
    for target in make_targets():
        run = make("-n", target)
        assert run.returncode == 0, run.stderr


@pytest.fixture
def bare_checkout(tmp_path):
    """The files that set-up reads, in a folder without an environment."""
    names = ("Makefile", "pyproject.toml", "requirements.in", *LOCKS)
    for name in (*names, "tools/setup.sh", "tools/check_python.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def fake_python(folder: Path, change: str) -> str:
    """An interpreter like this one but for `change`, which runs before the script."""
    path = folder / "fake-python"
    code = f"import runpy, sys; {change}; runpy.run_path(sys.argv[1], run_name='__main__')"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("sys.version_info = (3, 10, 4)", "Python 3.10 .*install Python 3.11, 3.12 or 3.13"),
        ("sys.modules['ensurepip'] = None", "lacks venv: .*apt install python3.*-venv"),
        ("import platform; platform.machine = lambda: 'sparc'", "sparc .*use Linux"),
        (None, "/nonexistent/python not found: install Python 3.11"),
    ],
)
def test_an_unfit_python_gets_one_line_that_says_what_to_install(bare_checkout, change, complaint):
    python = fake_python(bare_checkout, change) if change else "/nonexistent/python"
    run = make("setup", folder=bare_checkout, PYTHON=python)
    assert run.returncode != 0
    (ours,) = [line for line in run.stderr.splitlines() if not line.startswith("make:")]
    assert re.search(complaint, ours)
    assert not (bare_checkout / ".venv").exists()


def wheel(folder: Path, name: str, version: str) -> str:
    """Write a wheel of one empty module; returns its sha256."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
        record = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
        archive.writestr(f"{about}/RECORD", record)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def torch_checkout(bare_checkout):
    """A checkout with uv, a lock of torch's builds and of one more package, and their wheels."""
    uv = pytest.importorskip("uv", reason="the set-up installs it")
    wheels = bare_checkout / "wheels"
    wheels.mkdir()
    sha256 = wheel(wheels, "harmless", "1.0")
    lock = read("requirements.lock").splitlines(keepends=True)
    starts = [number for number, line in enumerate(lock) if line[0].isalpha()] + [len(lock)]
    blocks = ["".join(lock[start:end]) for start, end in itertools.pairwise(starts)]
    builds = [block for block in blocks if re.match("torch|triton|cuda-|nvidia-", block)]
    (torch, torchvision) = (pins("3.11")[name] for name in ("torch", "torchvision"))
    wheel(wheels, "torch", f"{torch}+cpu")
    wheel(wheels, "torchvision", f"{torchvision}+cpu")
    rest = f"harmless==1.0 \\\n    --hash=sha256:{sha256}\n"
    (bare_checkout / "requirements.lock").write_text("".join([*builds[:3], rest, *builds[3:]]))
    environment = bare_checkout / ".venv"
    venv.create(environment, with_pip=True)
    # An environment whose set-up with the CPU build was cut short, so that it is not made anew.
    (environment / ".setup-started").write_text("torch cpu\n")
    command = (
        f'#!/bin/sh\ncase "$*" in *--editable*) ;; *) exec "{uv.find_uv_bin()}" "$@" ;; esac\n'
    )
    (environment / "bin/uv").write_text(command)
    (environment / "bin/uv").chmod(0o755)
    return bare_checkout


def test_torch_s_cpu_build_comes_from_its_index_and_the_rest_from_the_lock(torch_checkout):
    """From a folder of wheels: the index itself is not asked here."""
    wheels = torch_checkout / "wheels"
    variables = {"UV_CACHE_DIR": str(torch_checkout / "cache"), "UV_HTTP_RETRIES": "0"}
    variables |= {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1"}
    settings = {"folder": torch_checkout, **variables}
    refused = make("setup", "TORCH=gpu", **settings)
    assert refused.returncode == 2
    assert "TORCH: found 'gpu'; allowed: cpu, or lock" in refused.stderr
    (elsewhere := torch_checkout / "elsewhere").mkdir()
    absent = make("setup", f"TORCH_INDEX={elsewhere}", **settings)
    (line,) = [line for line in absent.stderr.splitlines() if not line.startswith("make:")]
    assert re.search(f"no torch==.* torchvision==.* at {elsewhere}: is it reachable", line)
    lock = torch_checkout / "requirements.lock"
    right = lock.read_text()
    sha256 = hashlib.sha256((wheels / "harmless-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    lock.write_text(right.replace(sha256, 64 * "0"))
    tampered = make("setup", f"TORCH_INDEX={wheels}", **settings)
    assert tampered.returncode != 0 and "Hash mismatch" in tampered.stderr
    lock.write_text(right)
    done = make("setup", f"TORCH_INDEX={wheels}", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    python = torch_checkout / ".venv/bin/python"
    listed = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True).stdout
    assert re.findall(r"^(harmless|torch\w*|nvidia\S*|triton) +(\S+)", listed, re.M) == [
        ("harmless", "1.0"),
        *((name, f"{pins('3.11')[name]}+cpu") for name in ("torch", "torchvision")),
    ]
    assert "nothing to do" in make("setup", **settings).stdout


def test_results_are_not_removed_without_a_yes(bare_checkout):
    kept = bare_checkout / "results" / "embedded" / "claims.csv"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert make("clean", "clean-results", folder=bare_checkout).returncode == 0
    assert make("clean-results", "TIER=../results", folder=bare_checkout).returncode != 0
    assert kept.exists()
