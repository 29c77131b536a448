"""max_information: specs and metrics of kind `certificates`, Tables 1 to 3."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from dpatlas.core.records import RunsFields, Typed
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.kappa import Standing
from dpatlas.papers.max_information.records.certified import (
    MAX_RUNS,
    CertifiedFields,
    CertifiedMetrics,
    Hyperparameters,
    Kappas,
    LookLabel,
    unlimited,
)


class Spec(CertifiedFields, RunsFields):
    """All of `taus` for each of `priors`, in every run."""

    kind: Literal["certificates"]

    @model_validator(mode="after")
    def _numbers_its_runs(self) -> "Spec":
        if self.first_run + self.runs > MAX_RUNS:
            raise InputError("runs", self.first_run + self.runs, f"at most {MAX_RUNS} in all")
        return self


class Universe(Typed):
    """Cost of a setting in the universe of all settings that could have been chosen.

    nats: log(1 / weight). kappa: the smallest proven one at level beta weight, nats; None if
    infinite.
    """

    weight: float
    nats: float
    kappa: float | None

    @property
    def paid_kappa(self) -> float:
        """kappa as a float, which may be inf."""
        return unlimited(self.kappa)


class Row(LookLabel, Hyperparameters):
    """One prior and the posterior that was trained from it, at one tau in one run.

    kappa: max-information of the prior. standing: whether the proof of the paid form covers its
    epochs. risk_*: share of errors_* among `draws` pairs of a training record and weights;
    *test_error: share of errors among test_draws pairs of a test record and weights. kl: of the
    posterior from the prior, nats. certificate_prior, certificate_posterior: Eqs. 97 and 98 with
    the form of kappa that is paid. certificate_tight: with kappa-tight and Clopper-Pearson.
    certificate_rigorous: with the smallest proven kappa and Clopper-Pearson at delta_mc / (K1 K2),
    which also holds for the row with the smallest certificate. certificate_universe: pays for every
    setting that could have been chosen, after any looks. diverged: step, from 1, at which training
    ceased to be finite, else None; then certificates of the posterior are 1 and its other fields
    None. skipped_records: how often DP-SGD left out a record because its gradient was not finite.
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


class Metrics(CertifiedMetrics):
    """A row for every run, prior and tau, in this order."""

    VERSION: ClassVar[int] = 2
    rows: list[Row]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all blocks, one after the other; all else has to be equal."""
        shared = super().joined([part.model_copy(update={"rows": []}) for part in parts])
        return shared.model_copy(update={"rows": [row for part in parts for row in part.rows]})

    def cut(self, runs: int) -> Self:
        """The rows of the first `runs` runs."""
        return self.model_copy(update={"rows": [row for row in self.rows if row.run < runs]})
