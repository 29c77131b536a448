"""Checked entries: one declaration of the allowed values, used by every public function.

    @checked(eta=real(gt=0), convention=one_of("exact", "paper"))
    def kl_step(eta, sigma2, convention="exact"): ...

Scalars and numpy arrays are checked (every element). Other objects, tensors among them, pass:
they come from our own kernels, in loops where a check would cost more than the formula.
"""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dpatlas.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


def _shown(limit: float) -> str:
    """In few digits, if these are the limit: 1 - 1e-9 is not 1."""
    short = f"{limit:g}"
    return short if float(short) == limit else repr(limit)


@dataclass(frozen=True)
class Domain:
    """The values that one argument may take."""

    kind: str
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    choices: tuple[str, ...] = ()
    finite: bool = True

    def describe(self) -> str:
        """What is allowed, in words: `a number > 0 and <= 1`."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        limits = [
            f"{sign} {_shown(limit)}"
            for sign, limit in ((">", self.gt), (">=", self.ge), ("<", self.lt), ("<=", self.le))
            if limit is not None
        ]
        noun = "a whole number" if self.kind == "integer" else "a number"
        noun = noun if self.finite else f"{noun} or infinity"
        return " ".join([noun, " and ".join(limits)]).strip()

    def check(self, name: str, value: object) -> None:
        """Raise `InputError` unless `value` lies in the domain."""
        if self.kind == "choice":
            if not isinstance(value, str) or value not in self.choices:
                raise InputError(name, repr(value), self.describe())
        elif isinstance(value, np.ndarray):
            self._check_array(name, value)
        elif isinstance(value, Real) and not isinstance(value, bool):
            if not self._allows(value):
                raise InputError(name, f"{value!r}", self.describe())
        elif isinstance(value, np.generic) or not hasattr(value, "dtype"):
            raise InputError(name, repr(value), self.describe())

    def _allows(self, value: Any) -> bool:
        if self.kind == "integer":
            if not isinstance(value, Integral):
                return False
        elif not self._is_number(value):
            return False
        return (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def _is_number(self, value: Any) -> bool:
        try:
            value = float(value)
        except OverflowError:  # a whole number beyond the largest double
            return False
        return not (math.isnan(value) or (self.finite and math.isinf(value)))

    def _check_array(self, name: str, values: np.ndarray) -> None:
        if values.size == 0:
            return
        numeric = "iu" if self.kind == "integer" else "iuf"
        if values.dtype.kind not in numeric:
            raise InputError(name, f"an array of {values.dtype}", self.describe())
        with np.errstate(invalid="ignore"):
            extremes = (values.min().item(), values.max().item())
        for extreme in extremes:
            if not self._allows(extreme):
                raise InputError(name, f"an array with {extreme!r}", self.describe())


def plain(value: Any) -> Any:
    """A numpy number or a tensor of one number as Python's, which cannot change; else the value."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def single_value(name: str, value: Any, domain: Domain) -> Any:
    """One value of the domain, as `plain` has it; InputError for any other, and for arrays."""
    value = plain(value)
    if hasattr(value, "dtype"):
        raise InputError(name, f"an array of shape {tuple(value.shape)}", domain.describe())
    domain.check(name, value)
    return value


def hold(instance: object, name: str, domain: Domain, label: str | None = None) -> None:
    """Check an attribute of a frozen dataclass and keep it as `plain` has it; label: its name."""
    value = single_value(label or name, getattr(instance, name), domain)
    object.__setattr__(instance, name, value)


# Real and whole numbers between limits, such as real(gt=0) and integer(ge=1, le=9).
real = functools.partial(Domain, "real")
integer = functools.partial(Domain, "integer")


def one_of(*choices: str) -> Domain:
    """A closed list of names."""
    return Domain("choice", choices=choices)


def checked(**domains: Domain) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that each named argument is checked on every call."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        unknown = set(domains) - set(parameters)
        if unknown:
            raise TypeError(f"{function.__name__} has no argument {sorted(unknown)}")
        # Computed once: binding the signature on each call would cost more than most formulas.
        positional = [
            name
            for name, parameter in parameters.items()
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        checks = [
            (
                name,
                positional.index(name) if name in positional else len(parameters),
                parameters[name].default,
                domain,
            )
            for name, domain in domains.items()
        ]

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, position, default, domain in checks:
                value = args[position] if position < len(args) else kwargs.get(name, default)
                # A required argument that is left out: the call below raises TypeError.
                if value is not inspect.Parameter.empty:
                    domain.check(name, value)
            return function(*args, **kwargs)

        vars(wrapper)["domains"] = domains
        return wrapper

    return decorate


def number_in(text: str) -> int | float | str:
    """The number that a text is, else the text: no digits of other scripts, no underscores."""
    if "_" in text or not text.isascii():
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
