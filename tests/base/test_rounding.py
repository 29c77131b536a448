"""Bounds in words are still bounds."""

import math

import pytest

from dpatlas.base.rounding import downward, rounded_up, upward


@pytest.mark.parametrize(
    "number, said",
    [
        (1.0844049, ("1.085", "1.084", "1.08441")),
        (1.0840000001, ("1.085", "1.084", "1.08401")),
        (3.0, ("3.000", "3.000", "3")),
        (1.1, ("1.100", "1.100", "1.1")),
        (0.00123451, ("0.001235", "0.001234", "0.00123451")),
        (2345678.1, ("2345679", "2345678", "2.34568e+06")),
        (0.0, ("0", "0", "0")),
        (math.inf, ("inf", "inf", "inf")),
    ],
)
def test_a_bound_in_few_digits_stays_one(number, said):
    assert (upward(number), downward(number), rounded_up(number)) == said


def test_digits_of_a_statement_may_be_fewer():
    assert (rounded_up(1.0001, 3), rounded_up(math.exp(40), 3)) == ("1.01", "2.36e+17")


def test_the_smallest_numbers_are_rounded_outward_too():
    assert float(upward(1e-310)) >= 1e-310 >= float(downward(1e-310))
    assert float(upward(5e-324)) > 0
