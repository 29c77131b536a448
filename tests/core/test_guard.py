import math
from fractions import Fraction

import numpy as np
import pytest

from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

NAN, INF = math.nan, math.inf
RATE = real(gt=0, le=1)


@pytest.mark.parametrize(
    "value", [1e-300, 0.5, 1, 1.0, np.float32(0.5), np.int64(1), Fraction(1, 3)]
)
def test_numbers_inside_the_limits_pass(value):
    RATE.check("rate", value)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1.0,
        1.0000001,
        NAN,
        INF,
        -INF,
        pytest.param(10**400, id="long"),
        np.float64(2),
        np.float32(NAN),
    ],
)
def test_numbers_outside_the_limits_are_refused(value):
    with pytest.raises(InputError, match=r"^rate: found .*; allowed: a number > 0 and <= 1$"):
        RATE.check("rate", value)


@pytest.mark.parametrize("value", [True, False, np.True_, "1", "0.5", None, 0.5j])
@pytest.mark.parametrize("domain", [RATE, integer(ge=0)])
def test_what_is_no_number_is_refused(domain, value):
    with pytest.raises(InputError, match="allowed: a"):
        domain.check("rate", value)


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (real(gt=2), np.nextafter(2, 3), 2),
        (real(ge=2), 2, np.nextafter(2, 1)),
        (real(lt=2), np.nextafter(2, 1), 2),
        (real(le=2), 2, np.nextafter(2, 3)),
        (integer(gt=2), 3, 2),
        (integer(ge=2), 2, 1),
        (integer(lt=2), 1, 2),
        (integer(le=2), 2, 3),
    ],
)
def test_limits_are_sharp(domain, inside, outside):
    domain.check("x", inside)
    domain.check("x", np.array([inside]))
    for refused in (outside, np.array([inside, outside])):
        with pytest.raises(InputError):
            domain.check("x", refused)


def test_infinity_is_allowed_where_it_is_declared_and_nan_never():
    limit = real(gt=0, finite=False)
    limit.check("alpha", INF)
    limit.check("alpha", np.array([1.0, INF]))
    for value in (NAN, -INF, np.array([1.0, NAN])):
        with pytest.raises(InputError, match="a number or infinity > 0"):
            limit.check("alpha", value)


@pytest.mark.parametrize("value", [2.0, 2.5, NAN, np.float64(2)])
def test_whole_numbers_are_not_floats(value):
    with pytest.raises(InputError, match="allowed: a whole number >= 1"):
        integer(ge=1).check("depth", value)


@pytest.mark.parametrize("value", [3, 10**30, np.int32(3), np.array([1, 2]), np.array(5)])
def test_whole_numbers_pass(value):
    integer(ge=1).check("depth", value)


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 0.0],
        [0.5, NAN, 0.5],
        [[0.5], [INF]],
        [True, True],
        ["0.5"],
        [0.5, None],
    ],
)
def test_every_element_of_an_array_is_checked(values):
    with pytest.raises(InputError, match="found an array"):
        RATE.check("rate", np.array(values))


@pytest.mark.parametrize("values", [[0.5, 1.0], [], [[0.1], [0.2]], 0.3, np.float32([0.5]), [1]])
def test_arrays_inside_the_limits_pass(values):
    RATE.check("rate", np.array(values))


def test_an_array_of_floats_is_no_array_of_whole_numbers():
    with pytest.raises(InputError, match="an array of float64"):
        integer(ge=1).check("depth", np.array([1.0, 2.0]))


@pytest.mark.parametrize("value", ["papers", "", None, 1, True])
def test_a_name_that_is_not_listed_is_refused(value):
    with pytest.raises(InputError, match=r"allowed: one of exact, paper$"):
        one_of("exact", "paper").check("convention", value)


@checked(eta=real(gt=0), steps=integer(ge=1), convention=one_of("exact", "paper"))
def paid(eta, steps=1, *, convention="exact"):
    """Documented."""
    return eta * steps, convention


def test_a_checked_function_behaves_as_before():
    assert paid(0.5) == (0.5, "exact")
    assert paid(0.5, 3, convention="paper") == (1.5, "paper")
    assert paid(eta=0.5, steps=3) == (1.5, "exact")
    assert paid.__doc__ == "Documented."
    assert set(paid.domains) == {"eta", "steps", "convention"}


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((0,), {}, "eta"),
        ((), {"eta": NAN}, "eta"),
        ((0.5, 0), {}, "steps"),
        ((0.5,), {"steps": True}, "steps"),
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


def test_a_domain_for_an_argument_that_does_not_exist_is_a_mistake_of_ours():
    with pytest.raises(TypeError, match="no argument"):
        checked(rate=RATE)(lambda eta: eta)
