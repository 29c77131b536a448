"""lp_fft: UMAP of the features before, early and late in private fine-tuning (Figs. 4, 5).

Each panel is a fit of its own: its axes have no meaning, and coordinates of two panels cannot be
compared.
"""

import warnings
from typing import Any

import numpy as np
import torch

from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_records import check_parts, load_backbone
from dpatlas.jobs.search import accuracy
from dpatlas.models.network import Network
from dpatlas.papers.lp_fft.jobs.curves import Curves, Look
from dpatlas.papers.lp_fft.jobs.features import (
    PhasePlan,
    Task,
    backbone_used,
    check_accountant,
    features_of,
    ledger_of,
    task_of,
    training_of,
)
from dpatlas.papers.lp_fft.jobs.networks import Networks, outputs
from dpatlas.papers.lp_fft.records.private import FULL, HEAD
from dpatlas.papers.lp_fft.records.umap import MOMENTS, Metrics, Panel, Spec, Spent
from dpatlas.privacy.accounting import Phase
from dpatlas.privacy.samplers import Poisson, Sampler
from dpatlas.privacy.training import PrivateTraining

# Decimals recorded of a coordinate.
DECIMALS = 4


def umap(job: Job) -> Outcome:
    """UMAP of the features of the first `points` test records, with kNN accuracy and silhouette.

    For every number of LP steps three panels: before, early and late in the FFT that follows.

    Raises InputError for more points or neighbours than there are records, and for a mechanism that
    no accountant covers.
    """
    fields: Spec = job.fields
    data = job.prepared
    integer(ge=3, le=len(data.y_test)).check("points", fields.points)
    check_parts(data)
    integer(ge=1, le=len(data.y_train)).check("neighbours", fields.neighbours)
    backbone = load_backbone(job)
    networks = Networks(
        job, backbone, head_scale=fields.head_scale, feature_scale=fields.feature_scale
    )
    sampler = Poisson(len(data.y_train), fields.batch)
    for first in fields.lp_steps:
        noises = ((first, fields.noise_lp), (fields.fft_steps, fields.noise_fft))
        check_accountant(fields, [Phase(sampler, noise, steps) for steps, noise in noises])
    panels: list[Panel] = []
    with Progress(len(fields.lp_steps), job.spec.id) as progress:
        curves = Curves(job, progress)
        for first in fields.lp_steps:
            panels += _panels(job, curves, networks, sampler, first)
    ledgers = [ledger_of(fields, ran) for ran in curves.ran]
    metrics = Metrics(
        n_train=len(data.y_train),
        n_test=len(data.y_test),
        backbone=backbone_used(backbone),
        classes=list(data.classes),
        labels=data.y_test[: fields.points].tolist(),
        panels=panels,
        budgets=[
            Spent(lp_steps=first, epsilon=arm["epsilon"])
            for first, arm in zip(fields.lp_steps, ledgers, strict=True)
        ],
    )
    shared = {name: ledgers[0][name] for name in ("mechanism", "delta", "clip", "holds_for")}
    shared |= {"epsilon": None, "guaranteed": "as each arm says", "claimed": None, "arms": ledgers}
    return Outcome(metrics, shared)


def _panels(
    job: Job, curves: Curves, networks: Networks, sampler: Sampler, first: int
) -> list[Panel]:
    """The panels before, early and late in FFT, after `first` steps of LP."""
    fields: Spec = job.fields
    probing = PhasePlan(HEAD, first, fields.noise_lp, fields.lr_lp)
    tuning = PhasePlan(FULL, fields.fft_steps, fields.noise_fft, fields.lr_fft)
    plans = [plan for plan in (probing, tuning) if plan.steps]
    task = task_of(job.prepared, job.device)

    def make(noise: Noise, number: int) -> tuple[PrivateTraining, Look]:
        network = networks.fresh(0)
        training = training_of(networks, network, sampler, plans, noise, number)
        return training, lambda: _picture(network, task, fields)

    done = (0, fields.early, fields.fft_steps)
    pictures = curves.run(make, [first + steps for steps in done])
    return [
        Panel(lp_steps=first, moment=moment, fft_steps=steps, **picture)
        for moment, steps, picture in zip(MOMENTS, done, pictures, strict=True)
    ]


def _picture(network: Network, task: Task, fields: Spec) -> dict[str, Any]:
    from sklearn.metrics import silhouette_score

    shown = slice(fields.points)
    features = features_of(network, task.queries[shown])
    coordinates = embed(features, fields.neighbours, fields.seed)
    predicted = outputs(network, task.queries).cpu()
    return {
        "x": coordinates[:, 0].round(DECIMALS).tolist(),
        "y": coordinates[:, 1].round(DECIMALS).tolist(),
        "knn": task.quality(network, fields.neighbours),
        "silhouette": float(silhouette_score(features, task.truth[shown])),
        "accuracy": accuracy(predicted, torch.from_numpy(task.truth)),
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
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
