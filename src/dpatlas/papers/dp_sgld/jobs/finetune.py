"""dp_sgld, Table 3: DP-SGD and SGD when the last blocks of the backbone are trained as well.

Every arm starts from the public backbone with a new head, tunes its learning rate on the validation
records and runs the best one `runs` times afresh (`dpatlas.jobs.search`). Frozen parts get no
noise; the clip bound is on the gradient of all trained parts together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.core.facts import BackboneUsed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.private_records import PARTS, check_parts, identity, load_backbone
from dpatlas.jobs.search import Search, Setting, Trial, accuracy
from dpatlas.models.backbone import CHUNK, Backbone
from dpatlas.models.network import Network
from dpatlas.papers.dp_sgld.jobs.tuned_arms import arms_ledger, sgd_facts
from dpatlas.papers.dp_sgld.records.finetune import Metrics, Row, Spec
from dpatlas.privacy.ledger import Ran
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import belongs


@dataclass(frozen=True)
class Arm:
    """One choice of trained parts at one epsilon.

    unfreeze: the spec's name of what is trained. trainable: beginnings of the names of the trained
    parameters. epsilon: None without privacy.
    """

    unfreeze: str
    trainable: tuple[str, ...]
    epsilon: float | None


def finetune(job: Job) -> Outcome:
    """Every arm at its best learning rate, with the test accuracy of every run.

    Raises InputError for prefixes that name no part of the backbone, and for an accountant that
    cannot take Poisson batches under `relation`.
    """
    data = job.prepared
    check_parts(data)
    backbone = load_backbone(job)
    arms = list(arms_of(job.fields))
    tuning = FineTuning(job, backbone)
    # Names that the backbone lacks are refused before anything is trained.
    for arm in arms:
        tuning.trained_parameters(arm.trainable)
    search = Search(
        job,
        arms,
        arm_facts,
        lambda arm: list(tuning.settings_of(arm)),
        row_of=lambda values: Row(**values),
        named=arm_name,
        in_ledger=lambda row: {"require_private": row.epsilon is not None},
    )
    rows = search.run()
    metrics = Metrics(
        **{f"n_{part}": len(getattr(data, f"y_{part}")) for part in PARTS},
        classes=len(data.classes),
        backbone=BackboneUsed(**identity(backbone), architecture=backbone.architecture),
        rows=rows,
    )
    return Outcome(metrics, tuning.ledger(search))


def arms_of(fields: Spec) -> Iterator[Arm]:
    """Without privacy first, then at each epsilon; the fewest trained parts first in each."""
    for epsilon, parts in product([None, *fields.epsilons], fields.unfreeze):
        yield Arm(parts.name, tuple(parts.trainable), epsilon)


def arm_facts(arm: Arm) -> dict[str, Any]:
    """The columns of a row that name its arm."""
    method = "no-dp" if arm.epsilon is None else "dp-sgd"
    return {"method": method, "unfreeze": arm.unfreeze, "epsilon": arm.epsilon}


class FineTuning:
    """The settings of every arm on the job's data."""

    def __init__(self, job: Job, backbone: Backbone):
        fields: Spec = job.fields
        data = job.prepared
        self.job, self.fields, self.backbone = job, fields, backbone
        self.classes = len(data.classes)
        self.labels = {part: self._tensor(getattr(data, f"y_{part}")) for part in PARTS}
        images = {part: getattr(data, f"x_{part}") for part in PARTS}
        self.images = {part: self._tensor(x) for part, x in images.items()}
        self._cached: tuple[tuple[str, ...], dict[str, Tensor]] = ((), {})
        self.plan = DpSgdPlan(
            Poisson(len(self.labels["train"]), fields.batch),
            fields.steps,
            fields.max_grad_norm,
            fields.delta,
            fields.relation,
            fields.accountant,
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.job.device)

    def settings_of(self, arm: Arm) -> Iterator[Setting]:
        """One setting per learning rate."""
        plan = self.plan.calibrated(arm.epsilon)
        for lr in self.fields.lrs:
            yield self._setting(arm, lr, plan)

    def _setting(self, arm: Arm, lr: float, plan: DpSgdPlan) -> Setting:
        phase = plan.phase(lr, trainable=arm.trainable)

        def score(trial: Trial) -> tuple[float, Ran]:
            network = self._network(trial.number)
            frozen, model = network.split(self._trained(network, arm.trainable))
            x = self._outputs_of_frozen(frozen)
            training = trial.train(model, [phase], x["train"], self.labels["train"])
            outputs = _outputs(model, x[trial.part]).cpu()
            return accuracy(outputs, self.labels[trial.part].cpu()), training.ran

        facts = sgd_facts(plan, lr)
        facts["trained_parameters"] = self.trained_parameters(arm.trainable)
        return Setting(facts, lambda: plan.stated.as_row(), score)

    def _network(self, run: int) -> Network:
        """The backbone with a new head; the same one in the same run of every setting."""
        network = self.backbone.with_new_head(
            self.classes,
            key=self.job.spec.key,
            run=run,
            base_seed=self.fields.seed,
        )
        return network.to(self.job.device)

    def _outputs_of_frozen(self, frozen: nn.Sequential) -> dict[str, Tensor]:
        """Outputs of the frozen layers on every part of the data; the last ones are cached."""
        layers = tuple(name for name, _ in frozen.named_children())
        cached_layers, outputs = self._cached
        if not outputs or cached_layers != layers:
            outputs = {part: _outputs(frozen, x) for part, x in self.images.items()}
            self._cached = layers, outputs
        return outputs

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

    def ledger(self, search: Search[Arm, Row]) -> dict[str, Any]:
        """The job's ledger, with one for every arm."""
        return arms_ledger(
            f"DP-SGD, flat clipping, {self.backbone.architecture}",
            f"max_grad_norm {self.fields.max_grad_norm:g} on all trained parts together",
            search,
        )


def arm_name(row: Row) -> str:
    """A row in words."""
    privacy = "without privacy" if row.epsilon is None else f"epsilon {row.epsilon:g}"
    return f"{row.unfreeze}, {privacy}"


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    """Outputs without gradients, computed in chunks of records."""
    with torch.no_grad():
        return torch.cat([model(rows) for rows in x.split(CHUNK)])


KIND = Kind(
    finetune,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
