"""Numbers in words that stay bounds: rounded up or down to few digits."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context

DIGITS = 4
# Digits beyond these are the rounding of a double.
EXACT_DIGITS = 15
# Below it the powers of ten that round have no doubles.
LEAST = 1e-300


def upward(number: float) -> str:
    """Four significant digits, rounded up: an upper bound stays one."""
    return _rounded(number, math.ceil)


def downward(number: float) -> str:
    """Four significant digits, rounded down."""
    return _rounded(number, math.floor)


def _rounded(number: float, way: Callable[[float], int]) -> str:
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    if 0 < number < LEAST:
        number = LEAST if way is math.ceil else 0.0
        return f"{number:g}"
    places = max(0, DIGITS - 1 - math.floor(math.log10(number)))
    scaled = round(number * 10.0**places, EXACT_DIGITS - DIGITS)
    return f"{way(scaled) / 10.0**places:.{places}f}"


def rounded_up(number: float, digits: int = 6) -> str:
    """At most so many significant digits, rounded up, for a sentence: 3, 1.08441, 2.36e+17."""
    value = Context(prec=EXACT_DIGITS).create_decimal_from_float(float(number))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(value)):.{digits}g}"
