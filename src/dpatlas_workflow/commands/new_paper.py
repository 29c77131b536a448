"""`python -m dpatlas new-paper KEY`: the folder of a new paper, with a small complete example."""

import importlib
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.files import write_atomic
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.config import reference
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.config.root import General, config_model
from dpatlas_workflow.evidence import errata
from dpatlas_workflow.registry import all_blocks, all_papers
from dpatlas_workflow.report.page import INDEX, RUNS

EXAMPLE = Path(__file__).parents[1] / "example"
ENDING = ".txt"
KEY = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*")
PREFIX = re.compile("[a-z]{1,12}")
LONGEST = 24
TITLE = "The noise of the Gaussian mechanism (Dwork, Roth, 2014, Theorem A.1)"


def main(arguments: Sequence[str]) -> int:
    """Write the folders KEY of papers, of formulas and of tests; no other file is changed."""
    parser = ArgumentParser(prog="dpatlas new-paper", description=__doc__, allow_abbrev=False)
    parser.add_argument("key", help="of the config, of rules and folders: such as my_paper")
    parser.add_argument("--prefix", help="of the ids of its claims; without it the letters of KEY")
    options = parser.parse_args(arguments)
    letters = re.sub("[^a-z]", "", options.key)[:12]
    prefix = letters if options.prefix is None else options.prefix
    _check(options.key, prefix)
    root = project_root()
    folders = {
        "paper": root / "src" / "dpatlas_workflow" / "papers" / options.key,
        "formulas": root / "src" / "dpatlas" / "formulas" / options.key,
        "tests": root / "tests" / "papers" / options.key,
    }
    for folder in folders.values():
        if folder.exists():
            found = f"{options.key!r}, and {folder} is there"
            raise InputError("KEY", found, "a key without files")
    names = {
        "@KEY@": options.key,
        "@PREFIX@": prefix,
        "@NAME@": options.key,
        "@TITLE@": TITLE,
        "@CLASS@": "".join(word.capitalize() for word in options.key.split("_")),
        "@POSITION@": str(10 + max(block.position for block in all_blocks().values())),
    }
    for part, folder in folders.items():
        for path in sorted((EXAMPLE / part).rglob(f"*{ENDING}")):
            name = _filled(str(path.relative_to(EXAMPLE / part)), names)
            target = folder / name.removesuffix(ENDING)
            write_atomic(target, _filled(path.read_text(encoding="utf-8"), names))
            print(target.relative_to(root))
    for path, text in _generated(folders["paper"]).items():
        write_atomic(path, text)
        print(path.relative_to(root))
    print(f"next: snakemake --cores 1 {options.key}_error, and docs/extending.md")
    return 0


def _generated(folder: Path) -> dict[Path, str]:
    """Pages that are made of what was just written, which the registry has yet to see."""
    importlib.invalidate_caches()
    for cached in (all_blocks, all_papers, config_model):
        cached.cache_clear()
    pages = {**reference.written(), **errata.written()}
    return {path: text for path, text in pages.items() if path.parent == folder}


def _check(key: str, prefix: str) -> None:
    if not KEY.fullmatch(key) or len(key) > LONGEST:
        allowed = f"lower-case words joined by _, at most {LONGEST} letters and digits"
        raise InputError("KEY", repr(key), allowed)
    if not PREFIX.fullmatch(prefix):
        raise InputError("--prefix", repr(prefix), "1 to 12 lower-case letters")
    taken = [*all_blocks(), *General.model_fields, INDEX, RUNS]
    if key in taken or keyword.iskeyword(key):
        allowed = f"no word of Python, and none of {', '.join(taken)}"
        raise InputError("KEY", repr(key), allowed)
    for block in all_blocks().values():
        if prefix == block.prefix:
            raise InputError("--prefix", repr(prefix), f"another one than that of {block.key}")


def _filled(text: str, names: dict[str, str]) -> str:
    for token, value in names.items():
        text = text.replace(token, value)
    return text
