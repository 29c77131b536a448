"""Write down what a change of structure must not move, as text files that `diff -r` compares.

    python tools/frozen.py write DIR                      ids, products, bounds, refusals, rules
    python tools/frozen.py write DIR --only ids           one part: seconds
    python tools/frozen.py write DIR --results RUN        also every csv, made again from records
    python tools/frozen.py write DIR --only wheel         the file list of the wheel
    python tools/frozen.py digests                        write tests/reference/frozen.txt

Write a folder before the change and one after it, then `diff -r BEFORE AFTER`. The code that is
frozen is that of the package that Python imports: set PYTHONPATH to the src of a checkout. RUN is
the folder of a finished run, such as results/smoke, or of an opened bundle; nothing is trained.
"""

import argparse
import contextlib
import hashlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import dpatlas

ROOT = Path(dpatlas.__file__).resolve().parents[2]
DIGESTS = Path("tests/reference/frozen.txt")
VECTORS = Path("tests/reference/vectors.json")
# Of numerical integrals, other machines have other last digits.
DIGITS = 8
BAD_CONFIG = {"kl_privacy": {"sigma": -1}}
# Arguments that each command refuses, whatever was run before.
REFUSED = {
    "epsilon": "--sampler poisson --n 600 --batch 60 --noise 1.1 --steps 10 --delta 2 --claimed 3",
    "bound": "kl-step eta=-1 sigma2=1e-4 delta_norm2=1e-6 convention=exact",
    "audit": "nowhere.py:train",
    "certify": "nowhere.py:network --data nowhere.npz --prior zero",
    "train": "bad.json",
    "bench": "nothing",
    "claims": "--paper nothing",
    "decide": "--hours 0",
    "explain": "nothing",
    "verify": "nothing",
    "plan": "--config bad.json",
    "tune": "--tier nothing",
    "config": "nothing",
    "data": "--tier nothing",
    "new-paper": "No",
    "bundle": "--margin-factor 2",
    "publish": "--tier nothing",
}
Files = Iterator[tuple[str, str]]


def ids() -> Files:
    """Per tier: block, group and id of every spec in order, of tunings, data sets and features."""
    from dpatlas_workflow.config.atlas import Atlas
    from dpatlas_workflow.config.load import load_tier, tiers

    for tier in tiers():
        atlas = Atlas(load_tier(tier))
        lines = [
            f"{key} {group} {spec.id}"
            for key, groups in atlas.groups.items()
            for group, specs in groups.items()
            for spec in specs
        ]
        lines += [f"tuning {name}" for name in sorted(atlas.tunings)]
        lines += [f"data {name}" for name in sorted(atlas.data_sets)]
        lines += [f"features {name}" for name in sorted(atlas.frozen_features)]
        yield f"ids/{tier}.txt", text(lines)


def products() -> Files:
    """The files for readers that the default tier makes."""
    from dpatlas_workflow.config.atlas import Atlas
    from dpatlas_workflow.config.load import load_config

    yield "products.txt", text(sorted(Atlas(load_config()).product_files()))


def bounds() -> Files:
    """The value of every reference vector."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        command("bound", "--batch", str(ROOT / VECTORS))
    lines = []
    for entry in json.loads(output.getvalue()):
        value = entry.get("value", entry.get("error"))
        shown = f"{value:.{DIGITS}g}" if isinstance(value, float) else json.dumps(value)
        lines.append(f"{entry['bound']} {json.dumps(entry['inputs'])} = {shown}")
    yield "bounds.txt", text(lines)


def refusals() -> Files:
    """What each command says to arguments that it refuses, and its exit code."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("bad.json").write_text(json.dumps(BAD_CONFIG))
        for name, words in REFUSED.items():
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = command(name, *words.split())
            yield f"refusals/{name}.txt", f"{name} {words}\n{said.getvalue()}exit code {code}\n"


def command(*words: str) -> int:
    """The exit code of `dpatlas WORDS`."""
    from dpatlas.cli import dispatch
    from dpatlas.errors import run_command

    return run_command(dispatch, words)


def rules() -> Files:
    """The names of all rules of the default tier."""
    words = [sys.executable, "-m", "snakemake", "--list-rules"]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    yield "rules.txt", text(sorted(line.partition(" ")[0] for line in done.stdout.splitlines()))


def numbers(run: Path) -> Files:
    """Every csv of a finished run, made again from its records by the code at hand."""
    from dpatlas_workflow.config.atlas import Atlas
    from dpatlas_workflow.config.load import load_config
    from dpatlas_workflow.evidence import claims
    from dpatlas_workflow.show import make

    logging.getLogger("fontTools").setLevel(logging.ERROR)
    config = load_config([run / "config.json"])
    with tempfile.TemporaryDirectory() as results:
        folder = Path(results) / config.tier
        folder.mkdir()
        for path in (run / "runs", run / "more_runs.json"):
            if path.exists():
                (folder / path.name).symlink_to(path.resolve())
        atlas = Atlas(config, Path(results))
        atlas.write_lists()
        lists = folder / "lists"
        for name, product in atlas.products.items():
            block = atlas.block_of_product[name]
            words = [block.product_module(name), "--tier", atlas.tier]
            words += ["--settings", atlas.settings(block.key), "--records", f"{lists}/{name}.txt"]
            words += ["--output", f"{folder}/{product.folder}"]
            make.main([*words, "--lineage", f"{folder}/lineage/{name}.json"])
        words = ["--tier", atlas.tier, "--settings", f"{lists}/claims.json"]
        words += ["--records", f"{lists}/claims.txt", "--products", f"{lists}/products.txt"]
        # Those that the run judged by: estimates of costs may move.
        words += ["--costs", str(run / "lists/costs.json"), "--output", f"{folder}/claims.csv"]
        with contextlib.redirect_stdout(io.StringIO()):
            claims.main(words)
        for path in sorted(folder.glob("**/*.csv")):
            yield f"csv/{path.relative_to(folder)}", path.read_text()


def wheel() -> Files:
    """The names of all files in the wheel."""
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc")
    with tempfile.TemporaryDirectory() as folder:
        # Building leaves files behind.
        for name in ("src", "docs/results"):
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=left_out)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "config.yaml"):
            shutil.copy(ROOT / name, folder)
        words = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        words += ["--no-index", "--no-build-isolation", "-w", folder, folder]
        subprocess.run([sys.executable, *words], check=True)
        (built,) = Path(folder).glob("*.whl")
        yield "wheel.txt", text(sorted(zipfile.ZipFile(built).namelist()))


# The parts that a test compares with their digests, and those that take longer or a run.
QUICK: dict[str, Callable[[], Files]] = {
    "ids": ids,
    "products": products,
    "bounds": bounds,
    "refusals": refusals,
}
SLOW: dict[str, Callable[[], Files]] = {"rules": rules, "wheel": wheel}


def digests() -> str:
    """A line for each file of the quick parts: the first digits of its sha256, and its name."""
    return text(
        f"{hashlib.sha256(content.encode()).hexdigest()[:16]}  {name}"
        for part in QUICK.values()
        for name, content in part()
    )


def text(lines: Iterable[str]) -> str:
    """The lines as one text."""
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the folder or the digests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["write", "digests"])
    parser.add_argument("folder", nargs="?", type=Path, help="to write to; must not exist")
    parser.add_argument("--only", nargs="+", choices=[*QUICK, *SLOW, "csv"], help="these parts")
    parser.add_argument("--results", type=Path, metavar="RUN", help="folder of a finished run")
    options = parser.parse_args()
    if options.what == "digests":
        (ROOT / DIGESTS).write_text(digests())
        return
    if options.folder is None or options.folder.exists():
        parser.error(f"folder: found {options.folder}; allowed: one that does not exist")
    parts = options.only or [*QUICK, "rules", *(["csv"] if options.results else [])]
    if "csv" in parts and options.results is None:
        parser.error("--only csv: found no --results; allowed: with the folder of a run")
    folder, run = options.folder.absolute(), options.results and options.results.absolute()
    os.chdir(ROOT)
    for part in parts:
        for name, content in numbers(run) if part == "csv" else {**QUICK, **SLOW}[part]():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)


if __name__ == "__main__":
    main()
