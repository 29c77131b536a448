"""The settings of dp_sgld's tables, and what its formulas give at them.

From USAGE.md and the models of the authors' code (LaRiffle/langevin on GitHub). Noise is added at
every gradient step there, and the accounting is called with the number of epochs as K.
"""

from dataclasses import dataclass
from typing import Any

from dpatlas.formulas.dp_sgld.theorems import claimed_epsilon_real, sum_of_steps, table4_ratio

BATCH = 128
# Noise multipliers of the DP-SGD rows: noise deviation over max_grad_norm, by data set.
DP_SGD_NOISE_MULTIPLIERS = {"CIFAR10": 1.33, "Pneumonia": 4.03}
COUNTS = ("epochs", "steps")


@dataclass(frozen=True)
class PublishedRun:
    """One DP-SGLD row of Tables 1 and 2.

    eta: the constant step size, or None for 1 / (2 beta + lam k / 2). beta: as in Table 4. L: the
    clip bound max_grad_norm. sigma: noise deviation, sqrt(sigma2).
    """

    table: int
    dataset: str
    backbone: str
    n: int
    eta: float | None
    lam: float
    beta: float
    L: float
    sigma: float
    epochs: int
    delta: float
    printed_epsilon: float = 1.0

    @property
    def sigma2(self) -> float:
        """Noise variance in the formulas' notation."""
        return self.sigma**2

    @property
    def steps(self) -> int:
        """Gradient steps of the run; the last batch of an epoch is smaller than the others."""
        return self.epochs * -(-self.n // BATCH)

    def claimed_epsilon(self, count: str) -> float:
        """Thm 3.2's eps at delta where K counts the run's `epochs` or its `steps`.

        Decreasing steps: by the closed form of Cor. 3.3, as in the authors' code.
        """
        K = {"epochs": self.epochs, "steps": self.steps}[count]
        if self.eta is None:
            total = sum_of_steps(self.beta, self.lam, K, "closed-form")
        else:
            total = self.eta * K
        return float(claimed_epsilon_real(self.L, self.lam, self.n, self.sigma2, total, self.delta))


def _cifar10(table: int, backbone: str, **settings: Any) -> PublishedRun:
    shared: dict[str, Any] = {"n": 50_000, "epochs": 30, "delta": 1e-5}
    return PublishedRun(table, "CIFAR10", backbone, **shared, **settings)


def _pneumonia(table: int, eta: float | None) -> PublishedRun:
    model: dict[str, Any] = {"n": 5163, "lam": 5e-3, "beta": 354, "L": 18}
    training: dict[str, Any] = {"sigma": 0.0082, "epochs": 50, "delta": 1e-4}
    return PublishedRun(table, "Pneumonia", "resnet18", eta=eta, **model, **training)


PUBLISHED_RUNS = (
    _cifar10(1, "resnet18", eta=0.018, lam=1e-3, beta=55, L=15, sigma=0.0022),
    _cifar10(1, "alexnet", eta=0.0038, lam=5e-3, beta=259, L=15, sigma=0.001),
    _pneumonia(1, eta=0.0014),
    _cifar10(2, "resnet18", eta=None, lam=1e-3, beta=55, L=20, sigma=0.0021),
    _cifar10(2, "alexnet", eta=None, lam=1e-3, beta=259, L=20, sigma=0.00095),
    _pneumonia(2, eta=None),
)


@dataclass(frozen=True)
class Problem:
    """One row of Table 4: softmax regression on `features` features of n records."""

    dataset: str
    backbone: str
    n: int
    classes: int
    features: int
    beta: float
    lam: float

    @property
    def parameters(self) -> int:
        """Entries of the weight matrix: d of the theorems."""
        return self.classes * self.features

    def ratio(self, d: int, eps: float = 1.0, delta: float = 1e-5) -> float:
        """Table 4's last column where d counts `d` entries: classes, or parameters."""
        return float(table4_ratio(self.n, eps, delta, d, self.beta / self.lam))


TABLE_4 = (
    Problem("CIFAR10", "resnet18", 50_000, 10, 512, 55, 1e-3),
    Problem("CIFAR10", "alexnet", 50_000, 10, 256, 259, 1e-3),
    Problem("Pneumonia", "resnet18", 5163, 3, 512, 354, 5e-3),
)
# Table 4 as printed: (beta, beta / lambda, last column).
PRINTED_TABLE_4 = {
    ("CIFAR10", "resnet18"): (55.0, 5.5e4, 3.2e-3),
    ("CIFAR10", "alexnet"): (259.0, 2.6e5, 1.5e-4),
    ("Pneumonia", "resnet18"): (354.0, 7.1e4, 6.8e-5),
}
