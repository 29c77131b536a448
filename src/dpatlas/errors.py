"""The two ways a command can fail, and the one place that turns them into exit codes."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

EXIT_BAD_INPUT = 2
EXIT_FAILED_RUN = 1


class InputError(ValueError):
    """Bad input: names the key, file or argument, what was found and what is allowed."""

    def __init__(self, where: str, found: object, allowed: str):
        self.where, self.found, self.allowed = where, found, allowed
        super().__init__(one_line(f"{where}: found {found}; allowed: {allowed}"))


class RunError(RuntimeError):
    """A run that was started with good input and could not be finished."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """`text` with every run of white space, line ends included, folded to one space."""
    return " ".join(str(text).split())


def run_command(main: Callable[[Sequence[str]], int | None], arguments: Sequence[str]) -> int:
    """Call `main(arguments)` and return the exit code of the contract.

    0 for success, 2 with one line on stderr for `InputError`, 1 with one line for `RunError`
    and for the operating system's refusals (a full disk, a folder without permission).
    """
    try:
        return main(arguments) or 0
    except InputError as error:
        print(f"dpatlas: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is left to write must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED_RUN
    except (RunError, OSError) as error:
        print(f"dpatlas: {one_line(str(error))}", file=sys.stderr)
        return EXIT_FAILED_RUN
    except KeyboardInterrupt:
        print("dpatlas: interrupted; a re-run goes on from the last checkpoint", file=sys.stderr)
        return 130


class ArgumentParser(argparse.ArgumentParser):
    """An argument parser whose complaints are `InputError`s: one line, exit code 2."""

    def error(self, message: str):
        """Raise instead of printing the usage text."""
        raise InputError(f"arguments of {self.prog}", message, "see --help")
