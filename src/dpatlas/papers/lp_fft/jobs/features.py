"""lp_fft: what private fine-tuning does to features (Fig. 2 left, Figs. 4, 5 and 7).

Features are what the head sees. Their quality is the accuracy of nearest neighbours: records of a
task are known, others are asked for.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.guard import integer, real
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.jobs.private_plan import dp_sgd_phase
from dpatlas.jobs.private_records import check_parts, identity, load_backbone
from dpatlas.jobs.search import accuracy
from dpatlas.models.backbone import Backbone
from dpatlas.models.network import Network
from dpatlas.papers.lp_fft.jobs.curves import Curves, Look
from dpatlas.papers.lp_fft.jobs.networks import Networks, features_of, knn_accuracy, outputs
from dpatlas.papers.lp_fft.strategies import FULL, HEAD
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.ledger import Ran, ledger
from dpatlas.privacy.samplers import Poisson, Sampler
from dpatlas.privacy.training import PrivateTraining

COUNTS = ("batch", "steps", "runs", "neighbours", "public_known", "public_asked")
UMAP_COUNTS = ("batch", "fft_steps", "neighbours", "points")
POSITIVE = ("max_grad_norm", "feature_scale")
CHOSEN = "nothing: the settings are given, none was chosen on these records"
# The curves themselves are drawn with the private records, whose neighbours vote.
RELEASED = "every iterate of one run, without nearest neighbours, which look the records up,"
MOMENTS = ("before", "early", "late")
# Coordinates of a picture need no more digits.
DECIMALS = 4


@dataclass(frozen=True)
class Task:
    """Known records (n, pixels) with labels (n,), and asked ones with the truth."""

    known: Tensor
    labels: np.ndarray
    asked: Tensor
    truth: np.ndarray

    def quality(self, network: Network, neighbours: int) -> float:
        """Accuracy of nearest neighbours on the network's features."""
        known, asked = features_of(network, self.known), features_of(network, self.asked)
        return knn_accuracy(known, self.labels, asked, self.truth, neighbours)


@dataclass(frozen=True)
class Stretch:
    """Steps that train one part, with one noise and one rate."""

    part: str
    steps: int
    noise_multiplier: float
    lr: float


def feature_quality(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `feature_quality`: one noise multiplier.

    FFT against LP-FFT on one budget, for every head scale and rate. `rows`: nearest neighbours'
    accuracy on the private and on the pre-training task, and the network's on the private test
    records, after each number of `steps`. Run i of all rows starts from the same head.

    Raises InputError for settings outside their domains, for lp_steps that leave FFT none, and for
    public data that the backbone was not trained on.
    """
    fields = job.spec.fields
    _check(fields, COUNTS)
    integer(ge=1, lt=fields["steps"]).check("lp_steps", fields["lp_steps"])
    for step in fields["at"]:
        integer(ge=0, le=fields["steps"]).check("at", step)
    for scale in fields["head_scales"]:
        real(gt=0).check("head_scales", scale)
    if sorted(set(fields["at"])) != fields["at"]:
        raise InputError("at", fields["at"], "steps in increasing order")
    check_parts(job.data)
    backbone = load_backbone(job)
    _check_public(job.public, backbone)
    quality = Quality(job, backbone)
    for task in quality.tasks.values():
        integer(ge=1, le=len(task.labels)).check("neighbours", fields["neighbours"])
    _check_accountant(fields, [Phase(quality.sampler, fields["noise_multiplier"], fields["steps"])])
    conditions = list(product(fields["head_scales"], fields["lrs"], ("fft", "lp-fft")))
    with Progress(len(conditions) * fields["runs"], job.spec.id) as progress:
        curves = Curves(job, progress)
        rows = [quality.row(curves, *condition) for condition in conditions]
    ledgers = [_ledger(fields, each) for each in dict.fromkeys(curves.ran)]
    epsilons = [math.inf if each["epsilon"] is None else each["epsilon"] for each in ledgers]
    found = {**ledgers[epsilons.index(max(epsilons))], "arms": ledgers}
    metrics = {
        **_sizes(job, backbone),
        "public": {name: job.public.manifest[name] for name in ("name", "sha256")},
        "epsilon": found["epsilon"],
        "rows": rows,
    }
    return {"metrics": metrics, "ledger": found}


class Quality:
    """Trainings of a job, and how good their features are on both tasks."""

    def __init__(self, job: Job, backbone: Backbone):
        self.job, self.fields, self.backbone = job, job.spec.fields, backbone
        self.sampler = Poisson(len(job.data.y_train), self.fields["batch"])
        known, asked = self.fields["public_known"], self.fields["public_asked"]
        self.tasks = {
            "private": task_of(job.data, job.device),
            "public": task_of(job.public, job.device, known, asked),
        }
        # LP leaves features alone, and all runs start from the backbone's: looked at once.
        self._untouched: dict[str, float] = {}

    def row(self, curves: Curves, head_scale: float, lr: float, strategy: str) -> dict[str, Any]:
        """All runs of one condition."""
        fields = self.fields
        networks = Networks(
            self.job, self.backbone, head_scale=head_scale, feature_scale=fields["feature_scale"]
        )
        stretches = self._stretches(strategy, lr)
        runs = [
            curves.run(self._maker(networks, stretches, run), fields["at"])
            for run in range(fields["runs"])
        ]
        seen = ("private", "public", "accuracy")
        return {
            "head_scale": head_scale,
            "lr": lr,
            "strategy": strategy,
            "steps": fields["at"],
            **{name: [[point[name] for point in run] for run in runs] for name in seen},
        }

    def _stretches(self, strategy: str, lr: float) -> list[Stretch]:
        noise, steps = self.fields["noise_multiplier"], self.fields["steps"]
        if strategy == "fft":
            return [Stretch(FULL, steps, noise, lr)]
        first, probing = self.fields["lp_steps"], self.fields["lp_lr"]
        return [Stretch(HEAD, first, noise, probing), Stretch(FULL, steps - first, noise, lr)]

    def _maker(
        self, networks: Networks, stretches: Sequence[Stretch], run: int
    ) -> Callable[[Noise, int], tuple[PrivateTraining, Look]]:
        def make(noise: Noise, number: int) -> tuple[PrivateTraining, Look]:
            network = networks.fresh(run)
            training = start(networks, network, self.sampler, stretches, noise, number)
            probing = sum(each.steps for each in stretches if each.part == HEAD)

            def look() -> dict[str, Any]:
                touched = training.steps_done > probing
                predicted = outputs(network, networks.x["test"]).cpu()
                right = accuracy(predicted, networks.labels["test"].cpu())
                return {**self._quality(network, touched), "accuracy": right}

            return training, look

        return make

    def _quality(self, network: Network, touched: bool) -> dict[str, float]:
        if touched or not self._untouched:
            neighbours = self.fields["neighbours"]
            found = {name: task.quality(network, neighbours) for name, task in self.tasks.items()}
            if touched:
                return found
            self._untouched = found
        return self._untouched


def umap(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `umap`.

    `panels`: two-dimensional coordinates of the first `points` test records, by UMAP on their
    features, after so many steps of LP and then before, early and late in FFT; with the accuracy of
    nearest neighbours and the silhouette of the features themselves. Each panel is fitted by
    itself: its axes have no meaning, and panels cannot be laid over each other.

    Raises InputError for settings outside their domains.
    """
    fields = job.spec.fields
    _check(fields, UMAP_COUNTS)
    for steps in fields["lp_steps"]:
        integer(ge=0).check("lp_steps", steps)
    integer(ge=1, le=fields["fft_steps"]).check("early", fields["early"])
    real(gt=0).check("head_scale", fields["head_scale"])
    integer(ge=3, le=len(job.data.y_test)).check("points", fields["points"])
    check_parts(job.data)
    integer(ge=1, le=len(job.data.y_train)).check("neighbours", fields["neighbours"])
    backbone = load_backbone(job)
    networks = Networks(
        job,
        backbone,
        head_scale=fields["head_scale"],
        feature_scale=fields["feature_scale"],
    )
    sampler = Poisson(len(job.data.y_train), fields["batch"])
    for first in fields["lp_steps"]:
        noises = ((first, fields["noise_lp"]), (fields["fft_steps"], fields["noise_fft"]))
        _check_accountant(fields, [Phase(sampler, noise, steps) for steps, noise in noises])
    panels = []
    with Progress(len(fields["lp_steps"]), job.spec.id) as progress:
        curves = Curves(job, progress)
        for first in fields["lp_steps"]:
            panels += _panels(job, curves, networks, sampler, first)
    ledgers = [_ledger(fields, each) for each in curves.ran]
    metrics = {
        **_sizes(job, backbone),
        "classes": list(job.data.classes),
        "labels": job.data.y_test[: fields["points"]].tolist(),
        "panels": panels,
        "budgets": [
            {"lp_steps": first, "epsilon": each["epsilon"]}
            for first, each in zip(fields["lp_steps"], ledgers, strict=True)
        ],
    }
    shared = {name: ledgers[0][name] for name in ("mechanism", "delta", "clip", "holds_for")}
    shared |= {"epsilon": None, "guaranteed": "as each arm says", "claimed": None, "arms": ledgers}
    return {"metrics": metrics, "ledger": shared}


def _panels(
    job: Job, curves: Curves, networks: Networks, sampler: Sampler, first: int
) -> list[dict[str, Any]]:
    """Before, early and late in FFT, after `first` steps of LP."""
    fields = job.spec.fields
    probing = Stretch(HEAD, first, fields["noise_lp"], fields["lr_lp"])
    tuning = Stretch(FULL, fields["fft_steps"], fields["noise_fft"], fields["lr_fft"])
    stretches = [each for each in (probing, tuning) if each.steps]
    task = task_of(job.data, job.device)

    def make(noise: Noise, number: int) -> tuple[PrivateTraining, Look]:
        network = networks.fresh(0)
        training = start(networks, network, sampler, stretches, noise, number)
        return training, lambda: _picture(network, networks, task, fields)

    done = (0, fields["early"], fields["fft_steps"])
    seen = curves.run(make, [first + steps for steps in done])
    return [
        {"lp_steps": first, "moment": moment, "fft_steps": steps, **found}
        for moment, steps, found in zip(MOMENTS, done, seen, strict=True)
    ]


def _picture(
    network: Network, networks: Networks, task: Task, fields: dict[str, Any]
) -> dict[str, Any]:
    from sklearn.metrics import silhouette_score

    shown = slice(fields["points"])
    found = features_of(network, task.asked[shown])
    drawn = embed(found, fields["neighbours"], fields["seed"])
    predicted = outputs(network, task.asked).cpu()
    return {
        "x": drawn[:, 0].round(DECIMALS).tolist(),
        "y": drawn[:, 1].round(DECIMALS).tolist(),
        "knn": task.quality(network, fields["neighbours"]),
        "silhouette": float(silhouette_score(found, task.truth[shown])),
        "accuracy": accuracy(predicted, torch.from_numpy(task.truth)),
    }


def embed(found: np.ndarray, neighbours: int, base_seed: int) -> np.ndarray:
    """UMAP's (points, 2) of features (points, d), by one thread and one seed."""
    import warnings

    # It takes seconds to import and to compile.
    from umap import UMAP

    draws = generator(seed("lp_fft", use="umap", base=base_seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = UMAP(
            n_neighbors=min(neighbours, len(found) - 1),
            random_state=int(draws.integers(2**31)),
            n_jobs=1,
        )
        return fit.fit_transform(found).astype(np.float64)


def start(
    networks: Networks,
    network: Network,
    sampler: Sampler,
    stretches: Sequence[Stretch],
    noise: Noise,
    repetition: int,
) -> PrivateTraining:
    """A training of `network` on the private records through all stretches."""
    fields = networks.job.spec.fields
    phases = [
        dp_sgd_phase(
            sampler,
            each.noise_multiplier,
            fields["max_grad_norm"],
            each.steps,
            each.lr,
            trainable=networks.trained(network, each.part),
            max_physical_batch=fields["max_physical_batch"],
        )
        for each in stretches
    ]
    x, labels = networks.x["train"], networks.labels["train"]
    return PrivateTraining(network, phases, x, labels, noise=noise, repetition=repetition)


def task_of(
    data: Prepared, device: str, known: int | None = None, asked: int | None = None
) -> Task:
    """Training records as the known ones, test records as those asked; at most so many of each."""
    return Task(
        torch.from_numpy(data.x_train[:known]).to(device),
        data.y_train[:known],
        torch.from_numpy(data.x_test[:asked]).to(device),
        data.y_test[:asked],
    )


def _check_accountant(fields: dict[str, Any], phases: Sequence[Phase]) -> None:
    """InputError, before anything is trained, for what no accountant takes."""
    guarantee(phases, fields["delta"], fields["relation"], fields["accountant"])


def _ledger(fields: dict[str, Any], ran: Ran) -> dict[str, Any]:
    accounts = {name: fields[name] for name in ("delta", "relation", "accountant")}
    found = ledger(ran, released=RELEASED, **accounts)
    return {**found, "chosen_on_private_data": CHOSEN}


def _check(fields: dict[str, Any], counts: Sequence[str]) -> None:
    for name in counts:
        integer(ge=1).check(name, fields[name])
    for name in POSITIVE:
        real(gt=0).check(name, fields[name])


def _check_public(public: Prepared, backbone: Backbone) -> None:
    """InputError for images that the backbone was not trained on."""
    trained = backbone.manifest["training"]["data"]["sha256"]
    if public.sha256 != trained:
        allowed = f"{trained[:16]}, the backbone's training images"
        raise InputError("--public-data", f"content with sha256 {public.sha256[:16]}", allowed)


def _sizes(job: Job, backbone: Backbone) -> dict[str, Any]:
    return {
        "n_train": len(job.data.y_train),
        "n_test": len(job.data.y_test),
        "backbone": {**identity(backbone), "architecture": backbone.architecture},
    }
