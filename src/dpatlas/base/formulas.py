"""How a formula becomes a named bound: a decorator that leaves the function as it is.

No list is kept here: the catalogue collects the declarations from the papers' modules. So the
module of one paper knows nothing of the others, and neither does the code digest of its
experiments.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dpatlas.base.guard import Domain

REQUIRED = inspect.Parameter.empty
Formula = TypeVar("Formula", bound=Callable[..., Any])


@dataclass(frozen=True)
class Argument:
    """One argument of a bound; `default` is `REQUIRED` where there is none."""

    name: str
    domain: Domain
    default: object = REQUIRED

    def describe(self) -> str:
        """What is allowed, in words, with the default."""
        words = self.domain.describe()
        return words if self.default is REQUIRED else f"{words} (default {self.default})"


@dataclass(frozen=True)
class Bound:
    """A formula with its public name and the place in the paper where it stands."""

    name: str
    source: str
    function: Callable[..., Any]

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """The formula's arguments by name, in its own order."""
        parameters = inspect.signature(self.function).parameters
        return {
            name: Argument(name, vars(self.function)["domains"][name], parameter.default)
            for name, parameter in parameters.items()
        }

    @property
    def summary(self) -> str:
        """The first line of the formula's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


def bound(name: str, *, source: str) -> Callable[[Formula], Formula]:
    """Declare a `checked` formula as the bound `name`; `source` is `<key> <place>`.

    Raises TypeError where an argument has no declared domain: such an argument could not be
    refused when it comes from the command line.
    """

    def declare(function: Formula) -> Formula:
        unguarded = set(inspect.signature(function).parameters) - set(
            getattr(function, "domains", {})
        )
        if unguarded:
            raise TypeError(f"bound {name}: no domain declared for {sorted(unguarded)}")
        vars(function)["declaration"] = Bound(name, source, function)
        return function

    return declare
