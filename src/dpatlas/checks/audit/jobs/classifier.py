"""What the private training and the private selection of a classifier share."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.accounting.guarantees import Phase, calibrate
from dpatlas.accounting.samplers import Sampler
from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.saved import save_model

# Fields of the spec that a training phase takes unchanged.
PHASE_FIELDS = (
    "max_grad_norm",
    "steps",
    "lr",
    "optimizer",
    "momentum",
    "weight_decay",
    "clipping",
    "max_physical_batch",
)


def check_data(data: Prepared) -> None:
    """InputError for a data set without images of named classes, or without test records."""
    for name in ("classes", "image_shape"):
        if not data.manifest.get(name):
            raise InputError("manifest of the data set", f"no {name}", "a set of labelled images")
    if len(data.x_test) == 0:
        raise InputError("n_test", 0, "at least 1: accuracy is measured on held-out records")


def training_phase(
    fields: Classifier,
    batches: Sampler,
    calibrated: Callable[..., float] = calibrate,
) -> TrainingPhase:
    """The training phase of the spec; `calibrated` gives the noise multiplier for an epsilon."""
    noise_multiplier = fields.noise_multiplier
    if (fields.epsilon is None) == (noise_multiplier is None):
        found = "both" if fields.epsilon is not None else "neither"
        raise InputError("epsilon and noise_multiplier", found, "one of the two")
    if noise_multiplier is None:
        noise_multiplier = calibrated(
            lambda noise: [Phase(batches, noise, fields.steps)],
            fields.epsilon,
            fields.delta,
            fields.relation,
        )
    return TrainingPhase(
        batches, noise_multiplier, **{name: getattr(fields, name) for name in PHASE_FIELDS}
    )


def accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> tuple[float, float | None]:
    """Share of right answers, and mean cross-entropy (None if it is not finite)."""
    with torch.no_grad():
        output = torch.cat([model(rows) for rows in x.split(1000)])
        right = (output.argmax(1) == labels).double().mean()
        loss = float(cross_entropy(output.double(), labels).mean())
    return float(right), loss if math.isfinite(loss) else None


def save_classifier(
    folder: Path, job: Job, model: nn.Module, ledger: Mapping[str, Any], accuracy: float | None
) -> None:
    """The trained network as a folder that `dpatlas.privacy.load_model` reads."""
    fields, data = job.fields, job.prepared
    names = (*PHASE_FIELDS, "ema_decay", "model", "batch")
    given = {name: getattr(fields, name, None) for name in names}
    settings = {name: value for name, value in given.items() if value is not None}
    config = {
        "network": fields.model,
        "image_shape": list(data.image_shape),
        "outputs": len(data.classes),
        "classes": list(data.classes),
    }
    stated = None if accuracy is None else f"{accuracy:.4f} on {len(data.x_test)} held-out records"
    save_model(
        folder,
        model.state_dict(),
        ledger,
        settings=settings,
        config=config,
        data=data.manifest["name"],
        accuracy=stated,
        # A killed job writes the same once more.
        replace=True,
    )
