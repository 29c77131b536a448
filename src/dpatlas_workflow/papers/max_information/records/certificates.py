"""Records of kind `certificates`, Tables 1 to 3: a prior and its posterior, by run, prior and tau.

prior: its kind; zeta, sigma, m, E, lr, T: its hyperparameters, None for an independent one.
kappa_FORM: max-information of the prior at level beta / K1, nats; 0 for a prior that ignores the
records, None for infinity; kappa_rigorous: the smallest without a gap in its proof for E > 1.
universe_weight, universe_nats: weight w of the setting among all that could have been chosen, and
log(1 / w); universe_kappa: the smallest proven kappa at level beta w. standing: whether the proof
of the paid form covers its epochs. risk_*: share of errors_* among `draws` pairs of a training
record and weights; *test_error: share of errors among test_draws pairs of a test record and
weights. kl: of the posterior from the prior, nats. certificate_prior, certificate_posterior: Eqs.
97 and 98 with the form of kappa that is paid. certificate_tight: with kappa-tight and
Clopper-Pearson. certificate_rigorous: with the smallest proven kappa and Clopper-Pearson at
delta_mc / (K1 K2), which also holds for the row with the smallest certificate.
certificate_universe: pays for every setting that could have been chosen, after any looks. diverged:
step, from 1, at which the posterior's training ceased to be finite, else None; then its
certificates are 1 and its other numbers None.
skipped_records: how often DP-SGD left out a record because its gradient was not finite.
"""

from typing import Literal

from pydantic import model_validator

from dpatlas.base.records import RecordShape, RunsFields
from dpatlas.errors import InputError
from dpatlas_workflow.papers.max_information.records.certified import (
    FACTS,
    MAX_RUNS,
    CertifiedFields,
)


class CertificatesSpec(CertifiedFields, RunsFields):
    """All of `taus` for each of `priors`, in every run."""

    kind: Literal["certificates"]

    @model_validator(mode="after")
    def _numbers_its_runs(self) -> "CertificatesSpec":
        if self.first_run + self.runs > MAX_RUNS:
            raise InputError("runs", self.first_run + self.runs, f"at most {MAX_RUNS} in all")
        return self


RECORD = RecordShape(
    CertificatesSpec,
    version=3,
    facts=FACTS,
    tables={
        "rows": "run prior zeta sigma m E lr T tau "
        "kappa_optimised kappa_explicit kappa_tight kappa_repaired kappa_rigorous "
        "universe_weight universe_nats universe_kappa standing "
        "risk_prior errors_prior certificate_prior prior_test_error test_draws "
        "diverged skipped_records risk_posterior errors_posterior kl certificate_posterior "
        "certificate_tight certificate_rigorous certificate_universe test_error"
    },
)
