"""lp_fft: the quality of features that a strategy loses in the first steps of full fine-tuning."""

from typing import Any

import pandas as pd

from dpatlas_workflow.papers.lp_fft.records.feature_quality import TASKS
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

# Share of all steps in which a random head is said to distort features.
EARLY = 0.2
OF_RUN = ["head_scale", "lr", "strategy", "run"]


def early_losses(record: Record[Any]) -> pd.DataFrame:
    """What FFT and LP-FFT lose in the first steps that train everything, by run.

    `private` and `public` are then the kNN accuracy at the start less its mean over the first
    `EARLY` of all steps of full fine-tuning, over those numbers of steps after which both were
    evaluated. A mean, since the lowest of several values is low by chance alone. There are no rows
    where both were evaluated after no such number.
    """
    curves, tasks = columns([record], "curves"), list(TASKS)
    after_lp = curves.strategy == "lp-fft"
    span = curves.step - record.spec.lp_steps * after_lp
    early = span.between(1, EARLY * record.spec.steps) & span.isin(span[after_lp])
    early &= span.isin(span[~after_lp])
    means = curves[early].groupby(OF_RUN)[tasks].mean()
    losses = curves.drop_duplicates(OF_RUN).set_index(OF_RUN, drop=False)
    losses[tasks] -= means
    return losses.dropna(subset=tasks).reset_index(drop=True)
