"""`python -m dpatlas COMMAND`: finds the command's module and maps failures to exit codes."""

import errno
import importlib
import io
import sys
from collections.abc import Sequence

from dpatlas import __version__
from dpatlas.errors import InputError, run_command

COMMANDS = {
    "epsilon": "check a claimed epsilon: every valid accounting, and the likely slip",
    "bound": "evaluate one of the papers' formulas, or list them",
    "audit": "does a training keep its epsilon? Of FILE.py:FUNCTION, or of our own mechanisms",
    "certify": "an upper bound on the error of one's own network, made random",
    "train": "train privately, as FILE.yaml says; resumable, with its guarantee",
    "bench": "time our kernels against a plain step and against peers",
    "claims": "the verdict on every claim of a run; or what changed since it was published",
    "decide": "spend CPU hours on more runs where they decide most inconclusive claims",
    "explain": "trace a figure, table, record or claim back to what made it; or compare two",
    "verify": "check that every result is still what was made",
    "plan": "count jobs and estimate their cost before anything runs",
    "tune": "list the tunings of a tier, or write their outcomes beside the papers",
    "config": "print the config that results of files, or its schema; or write the reference pages",
    "data": "published and own files that a tier needs, and where they are or belong",
    "new-paper": "write the folder of a new paper, with a small complete example",
    "bundle": "one archive of a run's raw records; from it, verdicts, figures and page again",
    "publish": "copy the summaries of a complete run to docs/results",
}

# The extra that a command needs, if it is not `workflow`; the core has what some need.
EXTRAS = {"audit": "train", "certify": "train", "train": "train", "bench": "dev"}


def usage() -> str:
    """The help text: one line per command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {sentence}" for name, sentence in COMMANDS.items()]
    return "\n".join(
        ["usage: dpatlas COMMAND [arguments]   (COMMAND --help tells more)", "", *lines]
    )


def dispatch(arguments: Sequence[str]) -> int | None:
    """Run the command named by the first argument with the others."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"dp-atlas {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise InputError("command", repr(name), "one of " + ", ".join(COMMANDS))
    try:
        return importlib.import_module(f"dpatlas.commands.{name.replace('-', '_')}").main(rest)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "dpatlas":
            raise
        allowed = f"what it needs: pip install 'dp-atlas[{EXTRAS.get(name, 'workflow')}]'"
        raise InputError(f"dpatlas {name}", f"no package {package}", allowed) from None
    except OSError as error:
        # The project makes no such names: it was typed.
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise InputError(str(error.filename), "too long a name", "a name of a file") from None


def main() -> int:
    """Entry point of the console script and of `python -m dpatlas`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks are written as escapes, as Python does on
        # stderr: an exception would end with the exit code of a claim that is not guaranteed.
        sys.stdout.reconfigure(errors="backslashreplace")
    return run_command(dispatch, sys.argv[1:])
