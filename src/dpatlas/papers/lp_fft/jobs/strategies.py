"""lp_fft: accuracy at one privacy budget, by strategy and share of the steps in the first phase.

All strategies of a job take the same number of steps with the same noise, so they spend the same
budget, whether in one phase or in two. The strategies of a run have its records, random head,
batches and noise in common: LP and LP-FFT at one rate of the head are one training until the
switch, which is computed once, on the features of the frozen backbone. strategies_tuning chose the
learning rates.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from dpatlas.core.facts import BackboneUsed, FeaturesUsed
from dpatlas.core.progress import say
from dpatlas.errors import InputError
from dpatlas.jobs.arms import Arms, Chosen, OneRun, Setting, accuracy
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.private_records import identity, load_backbone
from dpatlas.jobs.reports import Reports
from dpatlas.jobs.resume import Watched
from dpatlas.papers.lp_fft.jobs.networks import Networks, Seen, outputs
from dpatlas.papers.lp_fft.records.private import HEAD, Part
from dpatlas.papers.lp_fft.records.strategies import Metrics, Row, Spec, Strategies
from dpatlas.papers.lp_fft.strategies import ALONE, STRATEGIES, check_rank
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.ledger import Ran
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining, belongs


@dataclass(frozen=True)
class Arm:
    """A strategy and the share of the steps in its first phase."""

    strategy: str
    share: float

    @property
    def parts(self) -> tuple[Part, ...]:
        """The part of the network that each phase trains."""
        return STRATEGIES[self.strategy]

    @property
    def name(self) -> str:
        """The arm in words: the share only where there are two phases."""
        phases = f", share {self.share:g}" if len(self.parts) == 2 else ""
        return f"{self.strategy}{phases}"

    def steps(self, total: int) -> tuple[int, ...]:
        """Numbers of steps of the phases."""
        return split_steps(total, self.share) if len(self.parts) == 2 else (total,)


@dataclass(frozen=True)
class Probed:
    """A head after some steps of linear probing: its weights by name, and what was done."""

    weights: Mapping[str, Tensor]
    ran: Ran


def strategies(job: Job) -> Outcome:
    """Rows by strategy and share at one privacy level; the ledger has an entry for each.

    Raises InputError for a share that leaves a phase without a step, for LoRA without a rank, and
    for a rank above the width of a layer.
    """
    compared = Comparison(job)
    reports = Reports(
        job,
        compared.arms,
        lambda arm: {"method": arm.strategy, "strategy": arm.strategy, "share": arm.share},
        lambda values: Row(**values),
        lambda row: {"require_private": compared.plan.private},
    )
    rows = reports.run()
    data, backbone = job.prepared, compared.networks.backbone
    metrics = Metrics(
        n_train=len(data.y_train),
        n_test=len(data.y_test),
        classes=len(data.classes),
        backbone=BackboneUsed(
            **identity(backbone),
            architecture=backbone.architecture,
            source=backbone.manifest["training"]["data"]["name"],
        ),
        features=FeaturesUsed(**job.features.identity()) if job.features else None,
        rows=rows,
    )
    return Outcome(metrics, reports.ledger(*compared.in_words))


def arms_of(fields: Strategies) -> Iterator[Arm]:
    """The strategies of one phase, then those of two phases at every share between 0 and 1."""
    check_rank("strategies", fields.strategies, fields.lora_rank)
    for name in sorted(fields.strategies, key=lambda name: len(STRATEGIES[name])):
        parts = STRATEGIES[name]
        if len(parts) == 1:
            yield Arm(name, 1.0 if parts == (HEAD,) else 0.0)
            continue
        control = parts[0] == parts[1]
        for share in fields.control_shares if control else fields.shares:
            if 0 < share < 1:
                _check_split(fields.steps, share)
                yield Arm(name, share)


class Comparison:
    """The strategies at one privacy level: their plan, and how each is trained at given rates."""

    def __init__(self, job: Job):
        self.job = job
        self.fields: Strategies = job.fields
        backbone = load_backbone(job)
        scale, rank = self.fields.head_scale, self.fields.lora_rank
        self.networks = Networks(job, backbone, head_scale=scale, rank=rank)
        self.plan = _plan(job, Poisson(len(job.prepared.y_train), self.fields.batch))
        # Refuses a plan without a guarantee before anything is trained.
        _ = self.plan.stated
        self.augmentation = _augmentation(job)
        compared = list(arms_of(self.fields))
        # Numbers of steps after which some strategy goes on from linear probing.
        self._switches = {
            arm.steps(self.fields.steps)[0] for arm in compared if arm.parts[0] == HEAD
        }
        # The heads of the current run, by rate and steps, and the number of that run.
        self._probed: dict[tuple[float, int], Probed] = {}
        self._run: int | None = None
        self.arms = Arms(compared, lambda arm: arm.name, self.networks.seen, self.setting_of)
        self._warn_of_noise()

    @property
    def in_words(self) -> tuple[str, str]:
        """Mechanism and clip of all arms, for the job's ledger."""
        return (
            f"DP-SGD in one or two phases, {self.networks.backbone.architecture}",
            f"max_grad_norm {self.fields.max_grad_norm:g}",
        )

    def setting_of(self, arm: Arm, chosen: Chosen) -> Setting[Seen]:
        """The arm at these learning rates of its phases, `lrs`."""
        lrs, steps = [float(lr) for lr in chosen["lrs"]], arm.steps(self.fields.steps)

        def train(one: OneRun[Seen]) -> tuple[dict[str, Any], Ran]:
            model, x, ran = self._trained(one, arm, lrs, steps)
            correct = accuracy(outputs(model, x).cpu(), one.records.labels["test"].cpu())
            return {"accuracy": correct}, ran

        facts = {
            **self.plan.facts(),
            "noise_multiplier": self.plan.noise_multiplier,
            "lrs": lrs,
            "steps": list(steps),
            "target_epsilon": self.fields.level.epsilon,
            "trained_parameters": self._trained_parameters(arm.parts[-1]),
        }
        return Setting(facts, self._stated, train)

    def _trained(
        self, one: OneRun[Seen], arm: Arm, lrs: Sequence[float], steps: Sequence[int]
    ) -> tuple[nn.Module, Tensor, Ran]:
        """The model of a run after all steps, its test records, and what was done."""
        seen, plan = one.records, self.plan.on(len(one.records.labels["train"]))
        on_features = self.augmentation is None and set(arm.parts) == {HEAD}
        probes = arm.parts[0] == HEAD and self._branches(one)
        model, x, parts = self._start(one, arm, on_features)
        if probes and arm.strategy == ALONE[HEAD]:
            probed = self._probing(one, plan, lrs[0])[lrs[0], steps[0]]
            model.load_state_dict(probed.weights)
            return model, x["test"], probed.ran
        phases = [
            plan.phase(
                lr,
                count,
                trainable=part,
                max_physical_batch=self.fields.max_physical_batch,
            )
            for part, lr, count in zip(parts, lrs, steps, strict=True)
        ]
        more: dict[str, Any] = {
            "augmentation": self.augmentation,
            "ema_decay": self.fields.ema_decay,
        }
        if probes and not on_features:
            probed = self._probing(one, plan, lrs[0])[lrs[0], steps[0]]
            model.load_state_dict(probed.weights, strict=False)
            phases, more["after"] = phases[1:], probed.ran
        training = one.train(model, phases, x["train"], seen.labels["train"], **more)
        if training.ema is not None:
            model.load_state_dict(training.ema, strict=False)
        return model, x["test"], training.ran

    def _start(
        self, one: OneRun[Seen], arm: Arm, on_features: bool
    ) -> tuple[nn.Module, Mapping[str, Tensor], list[tuple[str, ...]]]:
        """The head or the network that a run begins with, its records, and what phases train."""
        if on_features:
            head = self.networks.fresh_head(one.number)
            return head, one.records.features, [("",) for _ in arm.parts]
        network = self.networks.fresh(one.number)
        return network, one.records.x, [self.networks.trained(network, part) for part in arm.parts]

    def _branches(self, one: OneRun[Seen]) -> bool:
        """Whether LP is computed once for all strategies of the run.

        Not in trials, which share no noise, and neither with views of records, whose features are
        not at hand, nor with averaged weights, which go over both phases.
        """
        alone = self.augmentation is not None or self.fields.ema_decay is not None
        return one.shared_noise is not None and not alone

    def _probing(
        self, one: OneRun[Seen], plan: DpSgdPlan, lr: float
    ) -> Mapping[tuple[float, int], Probed]:
        """The heads of linear probing at this rate at every switch and at the end.

        By rate and number of steps; they are kept for the run. A resumed job computes them again,
        to the same bits.
        """
        if self._run != one.number:
            self._probed, self._run = {}, one.number
        if (lr, self.fields.steps) in self._probed:
            return self._probed
        head = self.networks.fresh_head(one.number)
        phase = plan.phase(lr, max_physical_batch=self.fields.max_physical_batch)
        x, labels = one.records.features["train"], one.records.labels["train"]
        training = PrivateTraining(head, [phase], x, labels, **one.draws)

        def keep() -> None:
            weights = {name: value.clone() for name, value in head.state_dict().items()}
            self._probed[lr, training.steps_done] = Probed(weights, training.ran)

        watched = Watched(training, keep, sorted({*self._switches, self.fields.steps}))
        while watched.steps_done < watched.steps:
            watched.step()
        _ = watched.seen
        if training.skipped_records:
            say(f"{self.job.spec.id}: {training.skipped_records} gradients were not finite")
        return self._probed

    def _stated(self) -> dict[str, Any]:
        stated = self.plan.stated
        return {
            "epsilon": stated.guaranteed,
            "relation": stated.relation,
            "guaranteed_by": stated.by,
        }

    def _trained_parameters(self, part: Part) -> int:
        network = self.networks.fresh(0)
        prefixes = self.networks.trained(network, part)
        return sum(
            value.numel()
            for name, value in network.named_parameters()
            if any(belongs(name, prefix) for prefix in prefixes)
        )

    def _warn_of_noise(self) -> None:
        """Warn where noise outweighs all signal even in the head, the smallest trained part."""
        weights = sum(value.numel() for value in self.networks.fresh(0).head.parameters())
        noise = self.plan.noise_multiplier * math.sqrt(weights)
        signal = self.plan.sampler.expected_batch * math.sqrt(self.plan.steps)
        if noise > signal:
            say(
                f"{self.job.spec.id}: noise multiplier {self.plan.noise_multiplier:.4g} outweighs "
                f"all that {self.plan.steps} clipped batches can add up to: expect the accuracy "
                "of chance"
            )


def tuned_before(arm: Arm) -> list[str]:
    """The name of the arm whose best rate the first phase takes; none for a single phase."""
    return [ALONE[arm.parts[0]]] if len(arm.parts) == 2 else []


def _plan(job: Job, sampler: Poisson) -> DpSgdPlan:
    """The plan with the level's noise multiplier, or with one that is calibrated and reported."""
    fields: Strategies = job.fields
    privacy = (fields.delta, fields.relation, fields.accountant)
    plan = DpSgdPlan(sampler, fields.steps, fields.max_grad_norm, *privacy)
    if fields.level.noise_multiplier is not None:
        return replace(plan, noise_multiplier=fields.level.noise_multiplier)
    plan = plan.calibrated(fields.level.epsilon)
    noise = f"noise multiplier {plan.noise_multiplier:.4g}"
    say(f"{job.spec.id}: epsilon {fields.level.epsilon:g} takes {noise}")
    return plan


def _augmentation(job: Job) -> ShiftAndFlip | None:
    views = job.fields.augmentation
    return views and ShiftAndFlip(image_shape=job.prepared.image_shape, **dict(views))


def split_steps(steps: int, share: float) -> tuple[int, int]:
    """Numbers of steps of the first and of the second phase."""
    first = round(share * steps)
    return first, steps - first


def _check_split(steps: int, share: float) -> None:
    if 0 in split_steps(steps, share):
        allowed = f"a share that gives each phase at least one of the {steps} steps"
        raise InputError("share", share, allowed)


KIND = Kind(
    strategies,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
