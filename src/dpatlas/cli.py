"""`python -m dpatlas COMMAND`: finds the command's module and maps failures to exit codes."""

import errno
import functools
import importlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import NamedTuple

from dpatlas import __version__
from dpatlas.errors import InputError, run_command

# Entry points of this group are dicts of further commands, of packages that build on this one.
GROUP = "dpatlas.commands"
ABOUT = "Check a claimed epsilon; audit, train and certify privately; five papers reproduced."


class Command(NamedTuple):
    """about: one line of help; none for a part of another command. extra: of packages it needs."""

    about: str
    module: str
    extra: str


COMMANDS = {
    name: Command(about, f"dpatlas.commands.{name}", extra)
    for name, about, extra in (
        ("epsilon", "check a claimed epsilon: valid accountings, and the likely slip", "train"),
        ("bound", "evaluate one of the papers' formulas, or list them", "train"),
        ("audit", "does a training keep its epsilon? Of FILE.py:FUNCTION, or our own", "train"),
        ("certify", "an upper bound on the error of one's own network, made random", "train"),
        ("train", "train privately, as FILE.yaml says; resumable, with its guarantee", "train"),
        ("bench", "time our kernels against a plain step and against peers", "dev"),
    )
}


@functools.cache
def commands() -> Mapping[str, Command]:
    """The library's commands, and those of what is installed beside it."""
    known = dict(COMMANDS)
    for entry in metadata.entry_points(group=GROUP):
        known |= entry.load()
    return known


def listed() -> dict[str, str]:
    """What the help lists: a line for every command."""
    return {name: command.about for name, command in commands().items() if command.about}


def usage() -> str:
    """The help text: one line per command."""
    width = max(map(len, listed()))
    lines = [f"  {name:<{width}}  {about}" for name, about in listed().items()]
    return "\n".join(
        ["usage: dpatlas COMMAND [arguments]   (COMMAND --help tells more)", "", ABOUT, "", *lines]
    )


def dispatch(arguments: Sequence[str]) -> int | None:
    """Run the command named by the first argument with the others.

    Raises InputError for an unknown command, and for one whose packages are not installed.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"dp-atlas {__version__}")
        return 0
    name, *rest = arguments
    command = COMMANDS.get(name) or commands().get(name)
    if command is None:
        raise InputError("command", repr(name), "one of " + ", ".join(listed()))
    try:
        return importlib.import_module(command.module).main(rest)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("dpatlas"):
            raise
        allowed = f"what it needs: pip install '{requirement(command.extra)}'"
        raise InputError(f"dpatlas {name}", f"no package {package}", allowed) from None
    except OSError as error:
        # The project makes no such names: it was typed.
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise InputError(str(error.filename), "too long a name", "a name of a file") from None


def requirement(extra: str) -> str:
    """What pip installs the extra from: the index, file or repository that this package is of."""
    try:
        origin = metadata.distribution("dp-atlas").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return f".[{extra}]"
    if origin is None:
        return f"dp-atlas[{extra}]"
    facts = json.loads(origin)
    of = facts.get("vcs_info")
    url = f"{of['vcs']}+{facts['url']}@{of['commit_id']}" if of else facts["url"]
    return f"dp-atlas[{extra}] @ {url}"


def main() -> int:
    """Entry point of the console script and of `python -m dpatlas`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks are written as escapes, as Python does on
        # stderr: an exception would end with the exit code of a claim that is not guaranteed.
        sys.stdout.reconfigure(errors="backslashreplace")
    return run_command(dispatch, sys.argv[1:])
