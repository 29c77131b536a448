"""max_information, Fig. 1: the coefficients of Prop. 1 beside those of pure privacy."""

import numpy as np

from dpatlas.base.records import rows_of
from dpatlas.formulas.max_information.mechanisms import (
    gaussian_leading_coefficient,
    gaussian_root_coefficient,
    pure_dp_leading_coefficient,
    pure_dp_root_coefficient,
)
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.max_information.jobs.theory import LEDGER
from dpatlas_workflow.papers.max_information.records.coefficients import RECORD, CoefficientsSpec


def coefficients(job: Job) -> Outcome:
    """Coefficients at every alpha for all levels beta, and those of pure privacy at delta = beta.

    Raises InputError for an alpha outside the domain of Prop. 1 at some beta.
    """
    fields: CoefficientsSpec = job.fields
    betas = np.array(fields.betas, float)
    pure = {
        "pure_dp_leading": pure_dp_leading_coefficient(betas),
        "pure_dp_root": pure_dp_root_coefficient(betas, betas),
    }
    rows = [
        {"alpha": alpha, **row}
        for alpha in fields.alphas
        for row in rows_of(
            {"beta": betas.tolist()},
            gaussian_leading=gaussian_leading_coefficient(alpha, betas),
            gaussian_root=gaussian_root_coefficient(alpha, betas),
            **pure,
        )
    ]
    return Outcome({"rows": rows}, LEDGER)


KIND = Kind(coefficients, record=RECORD, packages=("numpy", "scipy"))
