"""Grids of DP-SGD's hyperparameters, and which tuples of a grid are tried (Appendix C)."""

from dataclasses import dataclass
from itertools import product, starmap

from dpatlas.formulas.max_information.kappa import kappa_of_form


@dataclass(frozen=True)
class Hyperparameters:
    """One tuple of DP-SGD's hyperparameters in a grid."""

    zeta: float
    learning_rate: float
    E: int


@dataclass(frozen=True)
class PriorGrid:
    """DP-SGD priors from which the one with the best certificate is chosen, and the union bound.

    K1 tuples of `zetas`, `learning_rates` and `epochs`, and K2 = len(taus) standard deviations of
    the prior, are paid for. m: records in a batch; sigma: standard deviation of the noise; draws:
    of the Monte Carlo step.
    """

    zetas: tuple[float, ...]
    learning_rates: tuple[float, ...]
    epochs: tuple[int, ...]
    taus: tuple[float, ...]
    m: int
    sigma: float
    K1: int
    delta: float
    delta_mc: float
    beta: float
    draws: int

    @property
    def K2(self) -> int:
        """Number of standard deviations of the prior."""
        return len(self.taus)

    def kappa(self, zeta: float, E: int, T: int, form: str = "optimised") -> float:
        """Max-information of one tuple at its share of beta, beta / K1."""
        return float(kappa_of_form(form, self.m, zeta, self.sigma, T, E, self.beta / self.K1))

    def lowest_kappa(self, T: int, form: str = "optimised") -> list[Hyperparameters]:
        """The K1 tuples of lowest kappa, or all if there are fewer; ties in the grid's order."""
        kappas = {
            (zeta, E): self.kappa(zeta, E, T, form) for zeta, E in product(self.zetas, self.epochs)
        }
        tuples = product(self.zetas, self.learning_rates, self.epochs)
        ranked = sorted(
            starmap(Hyperparameters, tuples), key=lambda prior: kappas[prior.zeta, prior.E]
        )
        return ranked[: self.K1]
