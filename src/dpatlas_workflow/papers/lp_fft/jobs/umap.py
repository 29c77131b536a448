"""lp_fft: UMAP of the features before, early and late in private fine-tuning (Figs. 4, 5).

Each panel is a fit of its own: its axes have no meaning, and coordinates of two panels cannot be
compared.
"""

import functools
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from dpatlas.accounting.guarantees import Phase
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.base.seeds import generator, seed
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.curves import Curves
from dpatlas_workflow.papers.lp_fft.jobs.features import (
    Task,
    backbone_used,
    check_accountant,
    finite,
    ledger_of,
    private_task,
)
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD
from dpatlas_workflow.papers.lp_fft.records.umap import MOMENTS, RECORD, Moment, UmapSpec
from dpatlas_workflow.run.arms import OneRun
from dpatlas_workflow.run.deals import Deals
from dpatlas_workflow.run.private_records import load_backbone

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
    deals = Deals(job)
    integer(ge=3, le=deals.sizes["test"]).check("points", fields.points)
    integer(ge=1, le=deals.sizes["train"]).check("neighbours", fields.neighbours)
    backbone = load_backbone(job)
    networks = BackboneNetworks(
        job, backbone, head_scale=fields.head_scale, feature_scale=fields.feature_scale
    )
    sampler = Poisson(deals.sizes["train"], fields.batch)
    for first in fields.lp_steps:
        noises = ((first, fields.noise_lp), (fields.fft_steps, fields.noise_fft))
        check_accountant(fields, [Phase(sampler, noise, steps) for steps, noise in noises])
    labels: list[Row] = []
    panels: list[Row] = []
    places = list(product(fields.lp_steps, _done(fields).items()))
    with Progress(len(fields.lp_steps) * fields.runs, job.spec.id) as progress:
        curves = Curves(job, progress)
        for number in fields.run_numbers:
            seen = networks.seen(deals.of(number))
            shown = seen.dealt.labels["test"][: fields.points].tolist()
            labels.append({"run": number, "labels": shown})
            pictures = _pictures(curves, networks, curves.of(number, seen))
            panels += [
                {"run": number, "lp_steps": first, "moment": moment, "fft_steps": steps, **picture}
                for (first, (moment, steps)), picture in zip(places, pictures, strict=True)
            ]
    # All runs take the same steps; the trainings of the first stand for all.
    ledgers = [ledger_of(fields, ran) for ran in curves.ran[: len(fields.lp_steps)]]
    facts = {
        "n_train": deals.sizes["train"],
        "n_test": deals.sizes["test"],
        "backbone": backbone_used(backbone),
        "classes": list(job.prepared.classes),
    }
    budgets = [
        {"lp_steps": first, "epsilon": arm["epsilon"]}
        for first, arm in zip(fields.lp_steps, ledgers, strict=True)
    ]
    tables = {"labels": labels, "panels": panels, "budgets": budgets}
    shared = {name: ledgers[0][name] for name in ("mechanism", "delta", "clip", "holds_for")}
    shared |= {"epsilon": None, "guaranteed": "as each arm says", "claimed": None, "arms": ledgers}
    return Outcome({**facts, **tables}, shared)


def _done(fields: UmapSpec) -> dict[Moment, int]:
    """Steps of FFT before each picture."""
    return dict(zip(MOMENTS, (0, fields.early, fields.fft_steps), strict=True))


def _pictures(curves: Curves, networks: BackboneNetworks, one: OneRun) -> list[dict[str, Any]]:
    """The pictures before, early and late in FFT, after every number of steps of LP."""
    fields: UmapSpec = one.job.fields
    images = private_task(one.records)
    # All trainings start with the same features, which LP leaves unchanged.
    frozen = images.features(networks.fresh(one.number))
    before = functools.cache(lambda: _picture(frozen, fields))
    probed = sorted({steps for steps in fields.lp_steps if steps})

    def probe() -> PrivateTraining:
        phase = networks.phase(HEAD, probed[-1], fields.noise_lp, fields.lr_lp)
        head = networks.fresh_head(one.number)
        return PrivateTraining(head, [phase], frozen.known, frozen.labels, **one.draws)

    stem = curves.stem(one, probe, probed) if probed else None

    def tuned(first: int) -> list[dict[str, Any]]:
        def make() -> tuple[PrivateTraining, Callable[[], dict[str, Any]]]:
            network = networks.fresh(one.number)
            after = None
            if first and stem is not None:
                network.load_state_dict(stem.weights[first], strict=False)
                after = stem.ran_in(first)
            phase = networks.phase(FULL, fields.fft_steps, fields.noise_fft, fields.lr_fft)
            training = PrivateTraining(
                network, [phase], images.known, images.labels, after=after, **one.draws
            )

            def look() -> dict[str, Any]:
                moved = training.steps_done > 0
                features = images.features(network) if moved else frozen
                picture = _picture(features, fields) if moved else before()
                return {**picture, "accuracy": features.accuracy(network.head)}

            return training, look

        return curves.train(one, make, list(_done(fields).values()))

    return [picture for first in fields.lp_steps for picture in tuned(first)]


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
