"""pretrain: supervised training of one backbone on public images."""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from dpatlas.accounting.samplers import Shuffled
from dpatlas.base.guard import one_of
from dpatlas.base.progress import Progress
from dpatlas.base.records import rows_of
from dpatlas.base.seeds import Noise
from dpatlas.data.prepared import Prepared
from dpatlas.data.registry import find
from dpatlas.errors import InputError, RunError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages, State
from dpatlas.models.backbone import save
from dpatlas.models.build import NAMES, build
from dpatlas.models.precision import passes
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas_workflow.checks.pretrain.jobs.examples import examples
from dpatlas_workflow.checks.pretrain.jobs.public import NO_PRIVATE_RECORD
from dpatlas_workflow.checks.pretrain.records.backbone import RECORD, BackboneSpec

# The one-cycle schedule: share of the steps that warm up; first and last rate over the peak.
WARM_UP = 0.3
FIRST, LAST = 1 / 25, 1 / 25e4


def backbone(job: Job) -> Outcome:
    """Train the spec's network and write it to the job's folder.

    Raises InputError for an unknown network, for data without test records and for data that are
    neither generated nor declared public; RunError if the training diverges.
    """
    folder, data = job.backbone_to_write(), job.prepared
    fields: BackboneSpec = job.fields
    one_of(*NAMES).check("model", fields.model)
    origin = _public_origin(data, fields.declared_public)
    if not len(data.x_test):
        raise InputError("n_test", 0, "at least 1: accuracy is measured on held-out images")
    training = Pretraining(job)
    with Progress(training.steps, job.spec.id) as progress:
        Stages(job).finish(training, lambda: progress.reach(training.steps_done))
    tested = torch.from_numpy(data.x_test).to(job.device)
    predicted = training.network(tested).argmax(1).cpu().numpy()
    accuracy = float((predicted == data.y_test).mean())
    manifest = save(
        folder,
        training.network,
        architecture=fields.model,
        options=fields.options,
        image_shape=data.image_shape,
        classes=data.classes,
        training={
            "spec": job.spec.fields,
            "spec_id": job.spec.id,
            "data": {name: data.manifest[name] for name in ("name", "sha256", "preprocessing")},
            **origin,
            "accuracy": accuracy,
        },
    )
    ledger = {
        **NO_PRIVATE_RECORD,
        "mechanism": "AdamW without clipping or noise, on public images",
        "sampler": Shuffled.name,
        "steps": training.steps,
        **origin,
    }
    facts = {
        "n_train": len(data.x_train),
        "n_test": len(data.x_test),
        "classes": list(data.classes),
        **{name: manifest[name] for name in ("parameters", "features")},
        "steps": training.steps,
        "accuracy": accuracy,
        "backbone_sha256": manifest["sha256"],
        "image_shape": list(data.image_shape),
    }
    epochs = rows_of({"epoch": range(fields.epochs)}, loss=training.loss)
    return Outcome({**facts, "epochs": epochs, "examples": examples(data)}, ledger)


class Pretraining:
    """One supervised run: AdamW, one-cycle schedule, cross-entropy with label smoothing.

    Batches are disjoint within an epoch and keyed by it. loss (epochs,): mean over each epoch's
    steps.
    """

    def __init__(self, job: Job):
        fields: BackboneSpec = job.fields
        self.job, self.fields, data = job, fields, job.prepared
        self.x = torch.from_numpy(data.x_train).to(job.device)
        self.labels = torch.from_numpy(data.y_train).to(job.device)
        self.sampler = Shuffled(len(self.x), fields.batch)
        self.noise = Noise(job.spec.digest, "keyed")
        self.steps = fields.epochs * self.sampler.steps_per_epoch
        self.network = build(
            fields.model,
            data.image_shape,
            len(data.classes),
            key=job.spec.key,
            run=0,
            base_seed=fields.seed,
            **fields.options,
        ).to(job.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=fields.lr,
            weight_decay=fields.weight_decay,
            fused=True,
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=fields.label_smoothing)
        self.moved = fields.augmentation and ShiftAndFlip(
            data.image_shape, views=1, **dict(fields.augmentation)
        )
        self.loss = np.zeros(fields.epochs)
        self.steps_done = 0

    def step(self) -> None:
        """One update."""
        step = self.steps_done
        batch = torch.from_numpy(self.sampler.batch_indices(self.noise, 0, step)).to(self.x.device)
        images = self.x[batch]
        if self.moved:
            draws = self.noise.generator(repetition=0, step=step, use="views")
            moves = self.moved.draw(draws, len(batch)).to(images.device)
            images = self.moved.apply(images, moves)
        for group in self.optimizer.param_groups:
            group["lr"] = one_cycle(step, self.steps, self.fields.lr)
        with passes(), torch.enable_grad():
            loss = self.criterion(self.network(images), self.labels[batch])
            loss.backward()
        value = loss.item()
        if not math.isfinite(value):
            raise RunError(f"{self.job.spec.id}: loss {value} at step {step}; try a smaller lr")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        steps_per_epoch = self.sampler.steps_per_epoch
        self.loss[step // steps_per_epoch] += value / steps_per_epoch
        self.steps_done += 1

    def state(self) -> State:
        """Arrays and facts from which `restore` goes on to the same bits."""
        arrays = {"loss": self.loss}
        for name, parameter in self.network.named_parameters():
            arrays[f"weights/{name}"] = parameter.detach().cpu().numpy()
            for key, value in self.optimizer.state[parameter].items():
                arrays[f"{key}/{name}"] = value.cpu().numpy()
        return arrays, {"steps_done": self.steps_done}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state."""
        self.steps_done = facts["steps_done"]
        self.loss = arrays.pop("loss")
        parameters = dict(self.network.named_parameters())
        for path, value in arrays.items():
            key, name = path.split("/", 1)
            tensor = torch.from_numpy(value)
            if key == "weights":
                parameters[name].copy_(tensor)
            else:
                # The fused kernel wants all of it, the count of steps included, on its device.
                self.optimizer.state[parameters[name]][key] = tensor.to(self.job.device)


def one_cycle(step: int, steps: int, peak: float) -> float:
    """The learning rate of `step`: half a cosine up to `peak`, half a cosine down (Smith, 2018).

    It depends on the step alone, so that no state of a schedule has to be stored.
    """
    top = max(1.0, WARM_UP * steps - 1)
    if step <= top:
        low, share = FIRST * peak, step / top
    else:
        low, share = LAST * peak, 1 - (step - top) / (steps - 1 - top)
    return low + (peak - low) * (1 - math.cos(math.pi * share)) / 2


def _public_origin(data: Prepared, declared: str | None) -> dict[str, str]:
    """Why the data are public, and which choices in their design rest on private data.

    Raises InputError for data that are not public.
    """
    name = data.manifest["name"]
    if (drawn := find(name).drawn) is not None:
        why, chosen = "generated, public by construction", drawn.looked_up
    elif declared:
        why, chosen = f"declared public: {declared}", "nothing"
    else:
        raise InputError("data.name", repr(name), "a generated set, or a reason in declared_public")
    return {"public_data": f"{name}: {why}", "chosen_on_private_data": chosen}


KIND = Kind(backbone, record=RECORD, packages=("torch", "torchvision", "numpy", "scikit-learn"))
