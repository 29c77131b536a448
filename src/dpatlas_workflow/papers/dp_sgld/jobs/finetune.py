"""dp_sgld, Table 3: DP-SGD and SGD when the last blocks of the backbone are trained as well.

Every arm starts from the public backbone with a new head, at the learning rate that finetune_tuning
chose. Frozen parts get no noise; the clip bound is on the gradient of all trained parts together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.accounting.ledger import Ran
from dpatlas.accounting.parameter_names import belongs
from dpatlas.accounting.samplers import Poisson
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.backbone import CHUNK, Backbone
from dpatlas.models.network import Network
from dpatlas_workflow.papers.dp_sgld.jobs.regression import arm_name, sgd_facts
from dpatlas_workflow.papers.dp_sgld.records.finetune import RECORD, Finetune
from dpatlas_workflow.run.arms import Arms, ArmSetting, Chosen, OneRun, accuracy
from dpatlas_workflow.run.deals import Dealt
from dpatlas_workflow.run.private_plan import DpSgdPlan
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import Reports


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
    reports = Reports(
        job,
        arms_of(job),
        RECORD,
        lambda arm: {"method": arm.method, "unfreeze": arm.unfreeze, "epsilon": arm.epsilon},
        lambda row: {"require_private": row["epsilon"] is not None},
    )
    tables = reports.run()
    data, backbone = job.prepared, load_backbone(job)
    facts = {
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "classes": len(data.classes),
        "backbone": {**identity(backbone), "architecture": backbone.architecture},
    }
    return Outcome({**facts, **tables}, reports.ledger(*in_words(job)))


def compared(fields: Finetune) -> Iterator[FinetuneArm]:
    """Without privacy first, then at each epsilon; the fewest trained parts first in each."""
    for epsilon, parts in product([None, *fields.epsilons], fields.unfreeze):
        yield FinetuneArm(parts.name, tuple(parts.trainable), epsilon)


def name_of(arm: FinetuneArm) -> str:
    """The name by which an arm's settings are handed on."""
    return arm_name(arm, arm.unfreeze)


def in_words(job: Job) -> tuple[str, str]:
    """Mechanism and clip of all arms, for the job's ledger."""
    bound = job.fields.max_grad_norm
    return (
        f"DP-SGD, flat clipping, {load_backbone(job).architecture}",
        f"max_grad_norm {bound:g} on all trained parts together",
    )


def arms_of(job: Job) -> Arms[FinetuneArm, Images]:
    """The arms of a job of this kind, or of its tuning."""
    tuning = FinetuneRuns(job, load_backbone(job))
    arms = list(compared(job.fields))
    # Names that the backbone lacks are refused before anything is trained.
    for arm in arms:
        tuning.trained_parameters(arm.trainable)
    return Arms(arms, name_of, tuning.images, tuning.setting_of)


class FinetuneRuns:
    """The settings of every arm on the job's data."""

    def __init__(self, job: Job, backbone: Backbone):
        fields: Finetune = job.fields
        self.job, self.fields, self.backbone = job, fields, backbone
        self.classes = len(job.prepared.classes)
        self.plan = DpSgdPlan(
            Poisson(len(job.prepared.y_train), fields.batch),
            fields.steps,
            fields.max_grad_norm,
            fields.delta,
            fields.relation,
            fields.accountant,
        )

    def images(self, dealt: Dealt) -> Images:
        """The records of a run on the job's device."""
        x, labels = (
            {part: torch.from_numpy(rows).to(self.job.device) for part, rows in arrays.items()}
            for arrays in (dealt.x, dealt.labels)
        )
        return Images(x, labels)

    def setting_of(self, arm: FinetuneArm, chosen: Chosen) -> ArmSetting[Images]:
        """The arm at a learning rate."""
        plan, lr = self.plan.calibrated(arm.epsilon), chosen["lr"]

        def train(one: OneRun[Images]) -> tuple[dict[str, Any], Ran]:
            network = self._network(one.number)
            frozen, model = network.split(self._trained(network, arm.trainable))
            x, labels = _outputs_of_frozen(frozen, one.records), one.records.labels
            here = plan.on(len(labels["train"]))
            phases = [here.phase(lr, trainable=arm.trainable)]
            ran = one.train(model, phases, x["train"], labels["train"]).ran
            return {"accuracy": accuracy(_outputs(model, x["test"]), labels["test"])}, ran

        facts = sgd_facts(plan, lr)
        facts["trained_parameters"] = self.trained_parameters(arm.trainable)
        return ArmSetting(facts, lambda: plan.stated.as_row(), train)

    def _network(self, run: int) -> Network:
        """The backbone with a new head; the same one in the same run of every setting."""
        network = self.backbone.with_new_head(
            self.classes,
            key=self.job.spec.key,
            run=run,
            base_seed=self.fields.seed,
        )
        return network.to(self.job.device)

    def trained_parameters(self, trainable: Sequence[str]) -> int:
        """Number of trained parameters; InputError for a prefix that no parameter has."""
        network = self._network(0)
        counts = {name: value.numel() for name, value in network.named_parameters()}
        return sum(counts[name] for name in self._trained(network, trainable))

    def _trained(self, network: nn.Module, trainable: Sequence[str]) -> list[str]:
        """Names of the trained parameters; InputError for a prefix that no parameter has."""
        names = [name for name, _ in network.named_parameters()]
        for prefix in trainable:
            if not any(belongs(name, prefix) for name in names):
                parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
                raise InputError("trainable", repr(prefix), f"prefixes among {parts}")
        return [name for name in names if any(belongs(name, prefix) for prefix in trainable)]


def _outputs_of_frozen(frozen: nn.Sequential, images: Images) -> dict[str, Tensor]:
    """Outputs of the frozen layers on every part of the records, computed once for all arms."""
    layers = tuple(name for name, _ in frozen.named_children())
    if layers not in images.outputs:
        images.outputs[layers] = {part: _outputs(frozen, x) for part, x in images.x.items()}
    return images.outputs[layers]


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    """Outputs without gradients, computed in chunks of records."""
    with torch.no_grad():
        return torch.cat([model(rows) for rows in x.split(CHUNK)])


KIND = Kind(
    finetune,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
