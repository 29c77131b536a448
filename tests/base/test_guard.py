"""Domains of arguments: what passes, what is refused, and how a refusal is worded."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

NAN, INF = math.nan, math.inf
RATE = real(gt=0, le=1)

INSIDE = [1e-300, 1, np.float32(0.5), np.int64(1), Fraction(1, 3)]
INSIDE += [np.array(values) for values in ([0.5, 1.0], [], [[0.1], [0.2]], 0.3, [1])]
OUTSIDE = [0, -1.0, 1.0000001, NAN, INF, 10**400, np.float32(NAN)]
NO_NUMBERS = [True, np.True_, "0.5", None, 0.5j]
ARRAYS = [np.array(values) for values in ([0.5, 0.0], [[0.5], [NAN]], [True], ["0.5"])]
WHOLE, LIMIT = integer(ge=1), real(gt=0, finite=False)
REFUSED = [
    (RATE, OUTSIDE + NO_NUMBERS, r"^x: found .*; allowed: a number > 0 and <= 1$"),
    # Every element is looked at.
    (RATE, ARRAYS, "found an array"),
    (WHOLE, [*NO_NUMBERS, 2.0, NAN, np.float64(2), np.array([1.0, 2.0])], "a whole number >= 1"),
    (LIMIT, [NAN, -INF, np.array([1.0, NAN])], "a number or infinity > 0"),
    # Where no limit stands that nan would fail.
    *((domain, [NAN, np.array([1.0, NAN])], "a number") for domain in (real(), real(finite=False))),
]


def test_numbers_and_arrays_inside_the_limits_pass():
    for domain, values in (
        (RATE, INSIDE),
        (WHOLE, [3, 10**30, np.int32(3), np.array([1, 2]), np.array(5)]),
        (LIMIT, [np.array([1.0, INF])]),
    ):
        for value in values:
            domain.check("x", value)


@pytest.mark.parametrize(("domain", "values", "words"), REFUSED)
def test_what_is_no_number_inside_the_limits_is_refused(domain, values, words):
    for value in values:
        with pytest.raises(InputError, match=words):
            domain.check("x", value)


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (real(gt=2), np.nextafter(2, 3), 2),
        (real(ge=2), 2, np.nextafter(2, 1)),
        (real(le=2), 2, np.nextafter(2, 3)),
        (real(lt=2), np.nextafter(2, 1), 2),
        (integer(gt=2), 3, 2),
        (integer(le=2), 2, 3),
    ],
)
def test_limits_are_sharp(domain, inside, outside):
    domain.check("x", inside)
    domain.check("x", np.array([inside]))
    for refused in (outside, np.array([inside, outside])):
        with pytest.raises(InputError):
            domain.check("x", refused)


@checked(eta=real(gt=0), steps=integer(ge=1), convention=one_of("exact", "paper"))
def paid(eta, steps=1, *, convention="exact"):
    """Documented."""
    return eta * steps, convention


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((), {"eta": NAN}, "eta"),
        ((0.5, 0), {}, "steps"),
        ((0.5,), {"convention": "both"}, "convention"),
    ],
)
def test_the_wrong_argument_is_named_however_it_was_passed(arguments, options, name):
    with pytest.raises(InputError, match=f"^{name}: found") as caught:
        paid(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_a_wrong_default_does_not_escape():
    @checked(eta=real(gt=0))
    def broken(eta=0):
        return eta

    with pytest.raises(InputError, match="eta"):
        broken()
