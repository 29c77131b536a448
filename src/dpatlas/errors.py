"""The two ways a command can fail, and the one place that turns them into exit codes."""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

EXIT_BAD_INPUT = 2
EXIT_FAILED_RUN = 1
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141
EXIT_TERMINATED = 143
# Characters of what was found that a message shows: a config may hold pages.
SHOWN = 300


class InputError(ValueError):
    """Bad input: names the key, file or argument, what was found and what is allowed."""

    def __init__(self, where: str, found: object, allowed: str):
        self.where, self.found, self.allowed = where, found, allowed
        where, found = shortened(str(where)), shortened(str(found))
        super().__init__(one_line(f"{where}: found {found}; allowed: {allowed}"))

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        """For pickle: a worker's refusal has to reach its pool."""
        return type(self), (self.where, str(self.found), self.allowed)


class RunError(RuntimeError):
    """A run that was started with good input and could not be finished."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


class Terminated(KeyboardInterrupt):
    """SIGTERM, as Ctrl-C is a KeyboardInterrupt."""


def one_line(text: object) -> str:
    """`text` with every run of white space, line ends included, folded to one space.

    What a terminal would obey or cannot show is written as its escape.
    """
    folded = " ".join(str(text).split())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in folded)


def shortened(text: str) -> str:
    """`text`, cut after `SHOWN` characters."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def refusal(error: OSError) -> str:
    """What the operating system refused, and for which file, in one line."""
    where = [str(each) for each in (error.filename, error.filename2) if each is not None]
    if error.strerror is None or not where:
        return one_line(str(error))
    return one_line(f"{' to '.join(where)}: {error.strerror}")


def run_command(main: Callable[[Sequence[str]], int | None], arguments: Sequence[str]) -> int:
    """Call `main(arguments)` and return the exit code of the contract.

    0 for success, 2 with one line on stderr for `InputError`, 1 with one line for `RunError`
    and for the operating system's refusals (a full disk, a folder without permission, no memory),
    141, as a shell has it, where the reader of the output has gone.
    SIGTERM ends it as an exception does, so that what is half written is removed.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    try:
        return main(arguments) or 0
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is left to write must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NOBODY_READS
    except InputError as error:
        said, code = str(error), EXIT_BAD_INPUT
    except RunError as error:
        said, code = str(error), EXIT_FAILED_RUN
    except OSError as error:
        said, code = refusal(error), EXIT_FAILED_RUN
    except MemoryError as error:
        said, code = f"out of memory: {one_line(error) or 'no more to be had'}", EXIT_FAILED_RUN
    except KeyboardInterrupt as error:
        said = "interrupted; a re-run goes on from the last checkpoint, if one was made"
        code = EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED
    print(f"dpatlas: {said}", file=sys.stderr)
    return code


def _terminated(number: int, frame: object) -> NoReturn:
    raise Terminated


class _Once(argparse.Action):
    """Stores the value of an option; a second one, which argparse would take, is refused."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None and isinstance(parser, ArgumentParser):
            if self.dest in parser.given:
                found = f"{_words(parser.given[self.dest])} and {_words(values)}"
                raise InputError(self.option_strings[-1], found, "one value")
            parser.given[self.dest] = values
        setattr(namespace, self.dest, values)


def _words(values: Any) -> str:
    """A value of an option, or several, as one would write them."""
    if isinstance(values, list):
        return " ".join(map(_words, values))
    return f"{values:g}" if isinstance(values, float) else str(values)


# What argparse says of a value that is no number.
NO_NUMBER = re.compile(r"argument (?P<name>\S+): invalid (?P<kind>int|float) value: (?P<found>.*)")


class ArgumentParser(argparse.ArgumentParser):
    """An argument parser whose complaints are `InputError`s: one line, exit code 2.

    An option that is given twice is refused, unless its action says that it repeats.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        # Values by option, of the arguments that are being read.
        self.given: dict[str, Any] = {}
        # The action of an option that names none.
        self.register("action", None, _Once)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """As in argparse."""
        self.given = {}
        return super().parse_known_args(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage text."""
        if wrong := NO_NUMBER.fullmatch(message):
            noun = "a whole number" if wrong["kind"] == "int" else "a number"
            raise InputError(wrong["name"], wrong["found"], noun)
        raise InputError(f"arguments of {self.prog}", message, "see --help")
