"""What comes from elsewhere: packages by their hashes, files as data, nothing over the network."""

import ast
import collections
import functools
import io
import os
import pickle
import pickletools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpatlas.base.digest import reachable
from dpatlas.data.registry import find
from dpatlas.data.sets.cifar10 import _unpickle
from dpatlas.errors import InputError
from dpatlas_workflow.registry import all_blocks

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CIFAR = find("cifar10")
# The only modules that may speak to a network, and what they speak with.
FETCHERS = {"dpatlas.data.download"}
NETWORK = {
    *("urllib.request", "http", "ftplib", "smtplib", "socketserver", "ssl", "asyncio"),
    *("pooch", "requests", "urllib3", "httpx", "aiohttp", "torch.hub", "huggingface_hub"),
}
# Calls that must say this, in these words.
MUST_SAY = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "YAML": ("typ", "'safe'"),
}
NEVER_CALLED = {
    *("eval", "exec", "compile", "os.system", "os.popen", "pickle.load", "pickle.loads"),
    "pickle.Unpickler",
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "torch.hub.load"),
    *("torch.hub.load_state_dict_from_url", "np.lib.npyio.NpzFile", "subprocess.getoutput"),
}


parsed = functools.cache(ast.parse)


def installs(text: str) -> list[str]:
    """Commands of a script that install packages, each in one line."""
    joined = text.replace("\\\n", " ")
    return [
        line for line in joined.splitlines() if re.search(r"\b(pip|conda)\b.*\binstall\b", line)
    ]


def test_every_way_to_install_a_package_checks_its_hash():
    scripts = [ROOT / "Makefile", *(ROOT / "tools").glob("*"), *(ROOT / ".ci").glob("*")]
    found = [line for path in scripts if path.is_file() for line in installs(path.read_text())]
    assert len(found) >= 3
    # The project itself has no hash and takes nothing along.
    ours = [line for line in found if "--no-deps" in line and "--editable ." in line]
    assert len(ours) == 1
    # Nor has torch's CPU build, which comes from PyTorch's own index and from no other.
    ours += [line for line in found if line.strip().startswith("cpu_build()")]
    assert len(ours) == 2 and '$where "$torch_index" $pins' in ours[1]
    assert not [line for line in found if "--require-hashes" not in line and line not in ours]


def faults(source: str) -> list[str]:
    """Calls by which a file or a text could run code."""
    found = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            chooses = any(getattr(part, "name", None) == "find_class" for part in node.body)
            found += [node.name] if "pickle.Unpickler" in bases and not chooses else []
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        said = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in NEVER_CALLED or said.get("shell", "False") != "False":
            found.append(name)
        word, value = MUST_SAY.get(name, (None, None))
        if word and said.get(word) != str(value):
            found.append(f"{name} without {word}={value}")
    return found


def test_no_file_and_no_text_runs_as_code():
    found = {str(path): faults(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert not {name: calls for name, calls in found.items() if calls}


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(f, weights_only=trusted)",
        "np.load(f)",
        "yaml.load(f, yaml.Loader)",
        "YAML()",
        "subprocess.run(x, shell=True)",
        "eval(x)",
        "pickle.loads(x)",
        "pickle.Unpickler(f).load()",
        "class A(pickle.Unpickler): pass",
    ],
)
def test_what_runs_a_file_or_a_text_is_seen(source):
    assert len(faults(source)) == 1
    assert not faults(
        "torch.load(f, weights_only=True); network.eval(); np.load(f, allow_pickle=False)"
    )


def test_only_the_fetchers_know_a_network():
    knowing = set()
    for path in SOURCES:
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            if any(name == far or name.startswith(f"{far}.") for name in names for far in NETWORK):
                knowing.add(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    assert knowing == FETCHERS


def test_jobs_that_train_load_no_fetcher():
    modules = [
        block.job_module(kind)
        for key, block in all_blocks().items()
        if key != "pretrain"
        for kind in block.kinds
    ]
    assert not [each for each in modules if FETCHERS & set(reachable(each))]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert loaded > set(modules)
    assert not loaded & (
        FETCHERS | {"pooch", "requests", "urllib3", "httpx", "aiohttp", "huggingface_hub"}
    )


class Runs:
    """Pickles to a call."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def by_name(module: str, name: str, *arguments: str) -> bytes:
    """A pickle that calls `module.name`, dots in the name allowed, with texts."""
    texts = b"".join(pickle.dumps(text, 0)[:-1] for text in arguments)
    head = pickle.PROTO + b"\x04"
    return head + b"".join(
        [
            *(
                pickle.SHORT_BINUNICODE + bytes([len(part)]) + part.encode()
                for part in (module, name)
            ),
            *(pickle.STACK_GLOBAL, pickle.MARK, texts, pickle.TUPLE, pickle.REDUCE, pickle.STOP),
        ]
    )


HOSTILE = {
    "system": pickle.dumps(Runs(os.system, "touch PWNED")),
    "open": pickle.dumps(Runs(open, "PWNED", "w")),
    "in a dictionary": pickle.dumps({b"data": Runs(os.system, "touch PWNED")}),
    "numpy's own": by_name("numpy", "fromfile", "/etc/passwd"),
    "a method of what is allowed": by_name("numpy", "ndarray.tofile", "PWNED"),
    "a module of what is allowed": by_name("numpy._core.multiarray", "os.system", "touch PWNED"),
    "importer": by_name("importlib", "import_module", "os"),
    "persistent": pickle.PROTO + b"\x02" + pickle.PERSID + b"os\n" + pickle.STOP,
    "too large": pickle.PROTO + b"\x04" + pickle.BINBYTES8 + (2**40).to_bytes(8, "little") + b"x",
    "endless": pickle.PROTO + b"\x04" + pickle.EMPTY_LIST,
    "class": pickle.dumps(collections.OrderedDict(data=1)),
    "text": b"not a pickle",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_builds_nothing_but_arrays(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        _unpickle("data_batch_1", content, CIFAR, b"labels")
    assert refused.value.where == "data_batch_1"
    assert not list(tmp_path.iterdir())


def test_the_hostile_pickles_are_pickles_that_would_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("system", "open"):
        pickle.loads(HOSTILE[name])  # noqa: S301
        (tmp_path / "PWNED").unlink()
    pickletools.dis(HOSTILE["a method of what is allowed"], io.StringIO())
