"""Grids of DP-SGD's hyperparameters, and which tuples of a grid are tried (Appendix C)."""

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from dpatlas.formulas.max_information.kappa import kappa_of_form


class DpSgdTuple(NamedTuple):
    """One tuple of DP-SGD's hyperparameters in a grid, in the order in which K1 counts them."""

    zeta: float
    sigma: float
    m: int
    E: int
    lr: float


def lowest_kappa(grid: Mapping[str, Any], K1: int, n: int, beta: float) -> list[DpSgdTuple]:
    """The K1 tuples of lowest kappa at level beta / K1 (Eq. 97) on n records, or all of fewer.

    grid: `zetas`, `lrs` and `epochs`, with m records in a batch and noise of deviation sigma. Equal
    ones are in the grid's order.
    """
    m, sigma = grid["m"], grid["sigma"]
    kappas = {
        (zeta, E): float(kappa_of_form("optimised", m, zeta, sigma, n // m, E, beta / K1))
        for zeta, E in product(grid["zetas"], grid["epochs"])
    }
    tuples = product(grid["zetas"], grid["lrs"], grid["epochs"])
    tried = [DpSgdTuple(zeta, sigma, m, E, lr) for zeta, lr, E in tuples]
    return sorted(tried, key=lambda one: kappas[one.zeta, one.E])[:K1]
