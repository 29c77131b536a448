"""All named bounds, and one checked entry to evaluate them with plain values."""

import difflib
import functools
import importlib
import math
import pkgutil
import re
import warnings
from typing import Any

from dpatlas import formulas
from dpatlas.base.formulas import REQUIRED, Argument, Bound
from dpatlas.errors import InputError

SHARED = ("dpatlas.accounting.gaussian_dp",)
# Larger whole numbers are passed as floats where a real number is asked for.
MOST_EXACT = 1000
FAILED = "inputs with which the formula fails ({})"


@functools.cache
def catalogue() -> dict[str, Bound]:
    """Every declared bound by name, in the order of `modules`."""
    bounds: dict[str, Bound] = {}
    for module_name in modules():
        for member in vars(importlib.import_module(module_name)).values():
            declaration = getattr(member, "declaration", None)
            # A formula that one module borrows from another belongs to its own module only.
            if not isinstance(declaration, Bound) or member.__module__ != module_name:
                continue
            if declaration.name in bounds:
                raise TypeError(f"two bounds are named {declaration.name}")
            bounds[declaration.name] = declaration
    return bounds


def modules() -> list[str]:
    """Modules with formulas, paper by paper, by name; what belongs to no paper alone comes last."""
    names = sorted(
        module.name
        for module in pkgutil.walk_packages(formulas.__path__, f"{formulas.__name__}.")
        if not module.ispkg
    )
    return [*names, *SHARED]


def evaluate(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Value of the bound `name`: `{"bound", "inputs", "value", "source"}`.

    `inputs` maps argument names to numbers and words; the returned ones include the defaults.
    Whole-valued floats (1e4) are taken as whole numbers where one is asked for, and the words
    "inf" and "-inf" as infinities where a number is.
    Raises `InputError` naming the argument, what was found and what is allowed.
    """
    formula = find(name)
    if not isinstance(inputs, dict):
        raise InputError(f"{name}: inputs", _shown(inputs), "a mapping of " + _names(formula))
    unknown = [key for key in inputs if key not in formula.arguments]
    if unknown:
        raise InputError(f"{name}: argument", _shown(unknown[0]), _names(formula))
    values: dict[str, Any] = {}
    for argument in formula.arguments.values():
        if argument.name in inputs:
            values[argument.name] = _plain_value(name, argument, inputs[argument.name])
        elif argument.default is not REQUIRED:
            values[argument.name] = argument.default
        else:
            raise InputError(f"{name}: {argument.name}", "nothing", argument.describe())
    value = _evaluate_checked(formula, values)
    return {"bound": name, "inputs": values, "value": value, "source": formula.source}


def find(name: str) -> Bound:
    """The bound `name`; an unknown one raises `InputError` with its nearest names, or all."""
    known = catalogue()
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(str(name), known, n=4, cutoff=0.5)
    allowed = f"{', '.join(near)} (--list names all)" if near else ", ".join(known)
    raise InputError("bound", _shown(name), allowed)


def _evaluate_checked(formula: Bound, values: dict[str, Any]) -> float:
    # numpy takes no whole numbers from 2^63 on, and exact powers with large exponents never end.
    plain = dict(values)
    for name, value in values.items():
        real = formula.arguments[name].domain.kind == "real"
        if real and isinstance(value, int) and abs(value) > MOST_EXACT:
            plain[name] = float(value)
    try:
        # Whatever overflows is refused below, or has an infinite value: no warnings beside it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            value = float(formula.function(**plain))
    except InputError as error:
        if not formula.arguments.keys() & set(re.findall(r"\w+", error.where)):
            # Of a formula within, whose argument nobody has typed.
            raise _fails(formula, FAILED.format(error)) from None
        raise InputError(f"{formula.name}: {error.where}", error.found, error.allowed) from None
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        raise _fails(formula, FAILED.format(error)) from None
    if math.isnan(value):
        raise _fails(formula, "inputs for which floating-point numbers fail")
    return value


def _fails(formula: Bound, found: str) -> InputError:
    return InputError(formula.name, found, f"smaller or larger ones of {_names(formula)}")


def _plain_value(name: str, argument: Argument, value: object) -> int | float | str:
    """`value` as the formula takes it; its range is left to the formula's own guard."""
    where = f"{name}: {argument.name}"
    if argument.domain.kind == "choice":
        if not isinstance(value, str):
            raise InputError(where, _shown(value), argument.describe())
        return value
    if isinstance(value, str) and value in ("inf", "-inf"):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(where, _shown(value), argument.describe())
    if isinstance(value, int) and value.bit_length() > 1000:
        raise InputError(where, "a whole number of over 300 digits", argument.describe())
    if argument.domain.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _names(formula: Bound) -> str:
    return ", ".join(formula.arguments)


def _shown(value: object) -> str:
    """repr, cut to a length that fits one line."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} that is nested too deep"
    return text if len(text) <= 60 else text[:57] + "..."
