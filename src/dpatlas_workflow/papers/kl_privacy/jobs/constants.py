"""kl_privacy: Monte Carlo check of the gradient-norm constant B (Eq. 7)."""

import numpy as np
import torch

from dpatlas.base.progress import Progress
from dpatlas.formulas.kl_privacy.theorems import gradient_norm_constant
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mlp import initial_weights, output_gradient_norms
from dpatlas_workflow.papers.kl_privacy.records.constants import RECORD, ConstantsSpec


def constants(job: Job) -> Outcome:
    """Monte Carlo estimate of E||grad f||_F^2 beside B, every init and depth."""
    fields: ConstantsSpec = job.fields
    x = torch.from_numpy(job.prepared.x_train[:1].astype(np.float64))
    d, width, outputs, draws = x.shape[1], fields.width, fields.outputs, fields.draws
    # Eq. 7 is for ||x||^2 = d; E||grad f||^2 is proportional to ||x||^2.
    scale = d / float(x.square().sum())

    def squared_norm(init: str, depth: int, run: int) -> float:
        weights = initial_weights(
            init, d, width, depth, outputs, key=fields.key, run=run, base_seed=fields.seed
        )
        tensors = [torch.from_numpy(weight).double() for weight in weights]
        return scale * float(output_gradient_norms(tensors, x))

    rows = []
    with Progress(len(fields.inits) * len(fields.depths), job.spec.id) as progress:
        for init in fields.inits:
            for depth in fields.depths:
                values = [squared_norm(init, depth, run) for run in range(draws)]
                rows.append(
                    {
                        "init": init,
                        "depth": depth,
                        "B": float(gradient_norm_constant(init, d, width, depth, outputs)),
                        "mean": float(np.mean(values)),
                        "standard_error": float(np.std(values, ddof=1) / np.sqrt(draws)),
                        "draws": draws,
                    }
                )
                progress.advance(f"{init} depth {depth}")
    ledger = {"mechanism": "none: nothing is trained and nothing of the data is released"}
    return Outcome({"inputs": d, "rows": rows}, ledger)


KIND = Kind(constants, record=RECORD, packages=("torch", "numpy"))
