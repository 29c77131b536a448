"""dp_sgld, Table 3: DP-SGD and SGD when the last blocks of the backbone are trained as well.

Every arm starts from the public backbone with a new head, at the learning rate that finetune_tuning
chose. Frozen parts get no noise; the clip bound is on the gradient of all trained parts together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.accounting.ledger import Ran
from dpatlas.accounting.parameter_names import belongs
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.records import Row
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.backbone import Backbone
from dpatlas.models.network import Network
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.regression import arm_name, sgd_entries
from dpatlas_workflow.papers.dp_sgld.records.finetune import RECORD, Finetune
from dpatlas_workflow.run.arms import Arm, Arms, Chosen, OneRun, accuracy, outputs
from dpatlas_workflow.run.deals import Dealt
from dpatlas_workflow.run.private_plan import calibrated, composed, dp_sgd_phase, resized
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import report


@dataclass(frozen=True)
class FinetuneArm:
    """One choice of trained parts at one epsilon.

    unfreeze: the spec's name of what is trained. trainable: beginnings of the names of the trained
    parameters. epsilon: None without privacy.
    """

    unfreeze: str
    trainable: tuple[str, ...]
    epsilon: float | None

    @property
    def method(self) -> str:
        """Its method."""
        return "no-dp" if self.epsilon is None else "dp-sgd"

    @property
    def name(self) -> str:
        """The name by which its settings are handed on."""
        return arm_name(self.method, self.epsilon, self.unfreeze)


@dataclass(frozen=True)
class Images:
    """The images and labels of a run, by part, on the job's device.

    outputs: of frozen layers, by their names; frozen layers are the same in all arms.
    """

    x: dict[str, Tensor]
    labels: dict[str, Tensor]
    outputs: dict[tuple[str, ...], dict[str, Tensor]] = field(default_factory=dict)


def finetune(job: Job) -> Outcome:
    """The test accuracies of every arm.

    Raises InputError for prefixes that name no part of the backbone, and for an accountant that
    cannot take Poisson batches under `relation`.
    """
    outcome = report(job, RECORD, arms_of(job))
    data, backbone = job.prepared, load_backbone(job)
    facts = {
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "classes": len(data.classes),
        "backbone": {**identity(backbone), "architecture": backbone.architecture},
    }
    return Outcome({**facts, **outcome.metrics}, outcome.ledger)


def compared(fields: Finetune) -> Iterator[FinetuneArm]:
    """Without privacy first, then at each epsilon; the fewest trained parts first in each."""
    for epsilon, parts in product([None, *fields.epsilons], fields.unfreeze):
        yield FinetuneArm(parts.name, tuple(parts.trainable), epsilon)


def arms_of(job: Job) -> Arms:
    """The arms of a job of this kind, or of its tuning."""
    backbone, bound = load_backbone(job), job.fields.max_grad_norm
    parameters = _network(job, backbone, 0).named_parameters()
    sizes = {name: value.numel() for name, value in parameters}

    def images_of(dealt: Dealt) -> Images:
        x, labels = (
            {part: torch.from_numpy(rows).to(job.device) for part, rows in arrays.items()}
            for arrays in (dealt.x, dealt.labels)
        )
        return Images(x, labels)

    return Arms(
        # Names that the backbone lacks are refused here, before anything is trained.
        {
            arm.name: partial(at, job, backbone, arm, _trained(sizes, arm.trainable))
            for arm in compared(job.fields)
        },
        images_of,
        f"DP-SGD, flat clipping, {backbone.architecture}",
        f"max_grad_norm {bound:g} on all trained parts together",
    )


def at(
    job: Job, backbone: Backbone, arm: FinetuneArm, trained: Mapping[str, int], chosen: Chosen
) -> Arm:
    """The arm at a learning rate; trained: numbers of weights by name."""
    fields: Finetune = job.fields
    sampler = Poisson(len(job.prepared.y_train), fields.batch)
    accounts = (fields.delta, fields.relation, fields.accountant)
    noise = calibrated(sampler, fields.steps, arm.epsilon, *accounts)
    of_steps = (noise, fields.max_grad_norm, fields.steps, chosen["lr"])
    phase = dp_sgd_phase(sampler, *of_steps, trainable=arm.trainable)

    def train(one: OneRun) -> tuple[dict[str, Any], Ran]:
        frozen, model = _network(job, backbone, one.number).split(list(trained))
        x, labels = _outputs_of_frozen(frozen, one.records), one.records.labels
        here = resized(phase, len(labels["train"]))
        training = PrivateTraining(model, [here], x["train"], labels["train"], **one.draws)
        one.finish(training)
        return {"accuracy": accuracy(outputs(model, x["test"]), labels["test"])}, training.ran

    def row() -> Row:
        return {
            **vars(arm),
            "method": arm.method,
            **sgd_entries(phase),
            "trained_parameters": sum(trained.values()),
            **vars(composed(phase.accounted, *accounts)),
        }

    return Arm(train, row)


def _network(job: Job, backbone: Backbone, run: int) -> Network:
    """The backbone with a new head; the same one in the same run of every setting."""
    axes = {"key": job.spec.key, "run": run, "base_seed": job.fields.seed}
    return backbone.with_new_head(len(job.prepared.classes), **axes).to(job.device)


def _trained(sizes: Mapping[str, int], trainable: Sequence[str]) -> dict[str, int]:
    """Those of the parameters that are trained; InputError for a prefix that none has."""
    for prefix in trainable:
        if not any(belongs(name, prefix) for name in sizes):
            parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in sizes))
            raise InputError("trainable", repr(prefix), f"prefixes among {parts}")
    return {
        name: size
        for name, size in sizes.items()
        if any(belongs(name, prefix) for prefix in trainable)
    }


def _outputs_of_frozen(frozen: nn.Sequential, images: Images) -> dict[str, Tensor]:
    """Outputs of the frozen layers on every part of the records, computed once for all arms."""
    layers = tuple(name for name, _ in frozen.named_children())
    if layers not in images.outputs:
        images.outputs[layers] = {part: outputs(frozen, x) for part, x in images.x.items()}
    return images.outputs[layers]


KIND = Kind(finetune, record=RECORD, packages=PACKAGES)
