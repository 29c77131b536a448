"""What the paper prints: the settings of its experiments (Appendix C), Table 1 and its kappas."""

from dataclasses import dataclass

from dpatlas.formulas.max_information.certificates import certificate, certificate_monte_carlo
from dpatlas.formulas.max_information.kappa import kappa_of_form

RECORDS = {"MNIST": 60_000, "CIFAR-10": 50_000}


@dataclass(frozen=True)
class PaperGrid:
    """The grid of DP-SGD priors, and the union bound that pays for the choice among them.

    It pays for K1 tuples of `zetas`, `lrs` and `epochs`, and for K2 values of tau. m: records in a
    batch; sigma: standard deviation of the noise; draws: of the Monte Carlo step.
    """

    zetas: tuple[float, ...] = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05)
    lrs: tuple[float, ...] = (5, 20, 50, 100)
    epochs: tuple[int, ...] = (1, 3, 5, 10, 20)
    taus: tuple[float, ...] = (0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08)
    m: int = 5000
    sigma: float = 1.0
    K1: int = 100
    K2: int = 7
    delta: float = 0.05
    delta_mc: float = 0.0125
    beta: float = 0.025
    draws: int = 150_000

    def kappa(self, zeta: float, E: int, T: int, form: str = "optimised") -> float:
        """Max-information of one tuple at its share of beta, beta / K1."""
        return float(kappa_of_form(form, self.m, zeta, self.sigma, T, E, self.beta / self.K1))


PAPER_GRID = PaperGrid()


@dataclass(frozen=True)
class PublishedCertificates:
    """One row of Table 1: risks on the records, kappa, KL and the bounds, as printed.

    zeta and E of a DP-SGD prior are not printed: they are the only pair of the paper's grid that
    gives the printed kappa.
    """

    dataset: str
    prior: str
    risk_prior: float
    bound_prior: float
    risk_posterior: float
    kappa: float
    kl: float
    bound_posterior: float
    zeta: float | None = None
    E: int | None = None

    @property
    def n(self) -> int:
        """Number of records."""
        return RECORDS[self.dataset]

    @property
    def T(self) -> int:
        """Steps of an epoch that uses all records."""
        return self.n // PAPER_GRID.m

    def kappa_of_form(self, form: str) -> float:
        """kappa at the row's setting; 0 for a prior that is independent of the records."""
        if self.zeta is None or self.E is None:
            return 0.0
        return PAPER_GRID.kappa(self.zeta, self.E, self.T, form)

    def bound(self, risk: float, kl: float, kappa: float, monte_carlo: bool = False) -> float:
        """Eq. 97 under the paper's union bound, for the row's n.

        With `monte_carlo`, Eqs. 97 and 98: `risk` is an estimate from the paper's number of draws.
        """
        grid = PAPER_GRID
        budget = (self.n, grid.K1, grid.K2, grid.delta, grid.delta_mc, grid.beta)
        if monte_carlo:
            return float(certificate_monte_carlo(risk, grid.draws, kl, kappa, *budget))
        return float(certificate(risk, kl, kappa, *budget))


TABLE_1 = (
    PublishedCertificates("MNIST", "data-independent", 0.90, 0.90, 0.10, 0, 8155, 0.32),
    PublishedCertificates("MNIST", "DP-SGD", 0.55, 0.58, 0.12, 42, 5020, 0.29, 0.01, 1),
    PublishedCertificates("CIFAR-10", "data-independent", 0.90, 0.91, 0.76, 0, 4829, 0.91),
    PublishedCertificates("CIFAR-10", "DP-SGD", 0.83, 0.87, 0.58, 447, 9037, 0.84, 0.01, 10),
)
