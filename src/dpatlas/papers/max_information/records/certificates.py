"""max_information: specs and metrics of kind `certificates`, Tables 1 to 3."""

from typing import Literal

from dpatlas.core.records import Typed
from dpatlas.papers.max_information.formulas.kappa import Standing
from dpatlas.papers.max_information.formulas.universe import PriorKind
from dpatlas.papers.max_information.records.certified import (
    CertifiedFields,
    CertifiedMetrics,
    Hyperparameters,
    Kappas,
    LookLabel,
    unlimited,
)


class Spec(CertifiedFields):
    """All of `taus` for each of `priors`, `runs` times."""

    kind: Literal["certificates"]


class Universe(Typed):
    """What a setting costs in the universe of all that could have been chosen.

    nats: log(1 / weight). kappa: the proven one at level beta weight, nats; None is beyond all
    numbers.
    """

    weight: float
    nats: float
    kappa: float | None

    @property
    def paid_kappa(self) -> float:
        """kappa, inf where it is beyond all numbers."""
        return unlimited(self.kappa)


class Row(LookLabel, Hyperparameters):
    """One prior and the posterior that was trained from it, at one tau in one run.

    kappa: what the prior costs. standing: whether the proof of the paid form covers its epochs.
    risk_*: share of errors_* among `draws` pairs of a training record and weights; *test_error:
    among test_draws pairs of a test record and weights. kl: of posterior from prior, nats.
    certificate_prior, certificate_posterior: Eqs. 97 and 98 with kappa of the form that is paid;
    tight: kappa-tight and Clopper-Pearson; rigorous: the least proven kappa and Clopper-Pearson
    at delta_mc / (K1 K2), which holds for the row of least certificate too; universe: pays for
    every setting that could have been chosen, after whatever look. diverged: step, from 1 on, at
    which training ended in no number, else None; then certificates of the posterior are 1 and the
    rest of it None. skipped_records: of which DP-SGD took no gradient, since it was no number.
    """

    tau: float
    run: int
    kappa: Kappas
    universe: Universe
    standing: Standing
    risk_prior: float
    errors_prior: int
    certificate_prior: float
    prior_test_error: float
    test_draws: int
    diverged: int | None
    skipped_records: int
    risk_posterior: float | None
    errors_posterior: int | None
    kl: float | None
    certificate_posterior: float
    certificate_tight: float
    certificate_rigorous: float
    certificate_universe: float
    test_error: float | None


class Selected(Typed):
    """Place in `rows` of the least certificate_posterior of a run and kind of prior."""

    run: int
    prior: PriorKind
    row: int


class Metrics(CertifiedMetrics):
    """A row for every run, prior and tau, in this order."""

    rows: list[Row]
    selected: list[Selected]
