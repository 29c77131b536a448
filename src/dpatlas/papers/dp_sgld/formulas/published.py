"""The settings of dp_sgld's tables, and what its formulas give at them.

From USAGE.md and the models of the authors' code (LaRiffle/langevin on GitHub). Noise is added at
every gradient step there, and the accounting is called with the number of epochs as K.
"""

from dataclasses import dataclass

from dpatlas.papers.dp_sgld.formulas.theorems import claimed_epsilon, sum_of_steps, table4_ratio

BATCH = 128
# Noise deviation over max_grad_norm of the DP-SGD rows, by data set.
DP_SGD_NOISE_MULTIPLIERS = {"CIFAR10": 1.33, "Pneumonia": 4.03}
COUNTS = ("epochs", "steps")


@dataclass(frozen=True)
class PublishedRun:
    """One DP-SGLD row of Tables 1 and 2.

    eta: the constant step size, or None for 1 / (2 beta + lam k / 2); beta as in Table 4;
    L: max_grad_norm; sigma: noise deviation, sqrt(sigma2).
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
        """Gradient steps of the run, the last batch of an epoch being smaller."""
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
        return float(claimed_epsilon(self.L, self.lam, self.n, self.sigma2, total, self.delta))


PUBLISHED_RUNS = (
    PublishedRun(1, "CIFAR10", "resnet18", 50_000, 0.018, 1e-3, 55, 15, 0.0022, 30, 1e-5),
    PublishedRun(1, "CIFAR10", "alexnet", 50_000, 0.0038, 5e-3, 259, 15, 0.001, 30, 1e-5),
    PublishedRun(1, "Pneumonia", "resnet18", 5163, 0.0014, 5e-3, 354, 18, 0.0082, 50, 1e-4),
    PublishedRun(2, "CIFAR10", "resnet18", 50_000, None, 1e-3, 55, 20, 0.0021, 30, 1e-5),
    PublishedRun(2, "CIFAR10", "alexnet", 50_000, None, 1e-3, 259, 20, 0.00095, 30, 1e-5),
    PublishedRun(2, "Pneumonia", "resnet18", 5163, None, 5e-3, 354, 18, 0.0082, 50, 1e-4),
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
        """Table 4's last column if d stands for `d`."""
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
