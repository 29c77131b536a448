"""lp_fft: UMAP of the features before, early and late in private fine-tuning (Figs. 4, 5).

Each panel is a fit of its own: its axes have no meaning, and coordinates of two panels cannot be
compared.
"""

import functools
import warnings
from typing import Any

import numpy as np

from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.base.seeds import generator, seed
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.network import Network
from dpatlas_workflow.papers.lp_fft.jobs.features import Curves, Task, finite, private_task
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD
from dpatlas_workflow.papers.lp_fft.records.umap import MOMENTS, RECORD, UmapSpec
from dpatlas_workflow.run.arms import OneRun

# Decimals recorded of a coordinate.
DECIMALS = 4


def umap(job: Job) -> Outcome:
    """UMAP of the features of the first `points` test records, with kNN accuracy and silhouette.

    For every number of LP steps three panels: before, early and late in the FFT that follows. All
    panels of a run share its records, random head, batches and noise.

    Raises InputError for more points or neighbours than there are records, and for a mechanism that
    no accountant covers.
    """
    fields: UmapSpec = job.fields
    curves = Curves(job)
    integer(ge=3, le=curves.deals.sizes["test"]).check("points", fields.points)
    integer(ge=1, le=curves.deals.sizes["train"]).check("neighbours", fields.neighbours)
    for first in fields.lp_steps:
        curves.check((fields.noise_lp, first), (fields.noise_fft, fields.fft_steps))
    labels: list[Row] = []
    panels: list[Row] = []
    with Progress(len(fields.lp_steps) * fields.runs, job.spec.id) as curves.progress:
        for one in curves.runs():
            shown = one.records.dealt.labels["test"][: fields.points].tolist()
            labels.append({"run": one.number, "labels": shown})
            panels += _panels(curves, one)
    # All runs take the same steps; the trainings of the first stand for all.
    ledgers = [curves.ledger(ran) for ran in curves.ran[: len(fields.lp_steps)]]
    budgets = [
        {"lp_steps": first, "epsilon": arm["epsilon"]}
        for first, arm in zip(fields.lp_steps, ledgers, strict=True)
    ]
    facts = {**curves.facts, "classes": list(job.prepared.classes)}
    tables = {"labels": labels, "panels": panels, "budgets": budgets}
    shared = {name: ledgers[0][name] for name in ("mechanism", "delta", "clip", "holds_for")}
    shared |= {"epsilon": None, "guaranteed": "as each arm says", "claimed": None, "arms": ledgers}
    return Outcome({**facts, **tables}, shared)


def _panels(curves: Curves, one: OneRun) -> list[Row]:
    """The pictures before, early and late in FFT, after every number of steps of LP."""
    fields: UmapSpec = one.job.fields
    networks, images = curves.networks(fields.head_scale), private_task(one.records)
    # All trainings start with the same features, which LP leaves unchanged.
    frozen = images.features(networks.fresh(one.number))
    before = functools.cache(lambda: _picture(frozen, fields))

    def look(network: Network, moved: bool) -> dict[str, Any]:
        features = images.features(network) if moved else frozen
        picture = _picture(features, fields) if moved else before()
        return {**picture, "accuracy": features.accuracy(network.head)}

    lengths = sorted({steps for steps in fields.lp_steps if steps})
    if lengths:
        probing = networks.phase(HEAD, lengths[-1], fields.noise_lp, fields.lr_lp)
        stem = curves.probe(one, frozen, networks, probing, lengths)
    tuning = networks.phase(FULL, fields.fft_steps, fields.noise_fft, fields.lr_fft)
    moments = dict(zip(MOMENTS, (0, fields.early, fields.fft_steps), strict=True))
    given = one, images, networks, tuning, list(moments.values()), look
    return [
        {"run": one.number, "lp_steps": n, "moment": moment, "fft_steps": steps, **picture}
        for n in fields.lp_steps
        for (moment, steps), picture in zip(
            moments.items(), curves.tune(*given, (stem, n) if n else None), strict=True
        )
    ]


def _picture(features: Task, fields: UmapSpec) -> dict[str, Any]:
    from sklearn.metrics import silhouette_score

    shown = finite(features.queries[: fields.points]).float().cpu().numpy()
    coordinates = embed(shown, fields.neighbours, fields.seed)
    return {
        "x": coordinates[:, 0].round(DECIMALS).tolist(),
        "y": coordinates[:, 1].round(DECIMALS).tolist(),
        "knn": features.quality(fields.neighbours),
        "silhouette": float(silhouette_score(shown, features.truth[: fields.points].cpu().numpy())),
    }


def embed(features: np.ndarray, neighbours: int, base_seed: int) -> np.ndarray:
    """UMAP coordinates (points, 2) of features (points, d), on one thread with one seed."""
    # Importing and compiling it takes seconds.
    from umap import UMAP

    draws = generator(seed("lp_fft", use="umap", base=base_seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = UMAP(
            n_neighbors=min(neighbours, len(features) - 1),
            random_state=int(draws.integers(2**31)),
            n_jobs=1,
        )
        return fit.fit_transform(features).astype(np.float64)


KIND = Kind(
    umap,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
