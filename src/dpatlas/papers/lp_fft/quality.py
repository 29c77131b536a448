"""lp_fft: the quality of features that a strategy loses in the first steps of full fine-tuning."""

import numpy as np

from dpatlas.papers.lp_fft.records.feature_quality import Row, Spec, Task

# Share of all steps in which a random head is said to distort features.
EARLY = 0.2


def early_losses(
    spec: Spec, fft: Row, lp_fft: Row, task: Task, early: float = EARLY
) -> tuple[np.ndarray, np.ndarray] | None:
    """What FFT and LP-FFT lose in the first steps that train everything, (runs,) each.

    The kNN accuracy at the start less its mean over the first `early` of all steps of full
    fine-tuning, over those numbers of steps after which both were evaluated; None if there are
    none. A mean, since the lowest of several values is low by chance alone.
    """
    longest = early * spec.steps
    shared = {step - spec.lp_steps for step in lp_fft.steps} & set(fft.steps)
    spans = sorted(span for span in shared if 0 < span <= longest)
    if not spans:
        return None
    return _loss(fft, task, spans), _loss(lp_fft, task, [spec.lp_steps + span for span in spans])


def _loss(row: Row, task: Task, steps: list[int]) -> np.ndarray:
    quality = np.array(row.quality(task), float)
    evaluated = [row.steps.index(step) for step in steps]
    return quality[:, 0] - quality[:, evaluated].mean(axis=1)
