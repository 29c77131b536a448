"""lp_fft: accuracy at one privacy budget, by strategy and share of the steps in the first phase.

All strategies of a job take the same number of steps with the same noise, so they spend the same
budget, whether in one phase or in two. The strategies of a run have its records, random head,
batches and noise in common: those that begin with the same part of the network at the same rate,
such as LP and LP-FFT, or FFT and FFT-FFT, are one training until the first switch, which is
computed once. The head alone trains on the features of the frozen backbone. strategies_tuning chose
the learning rates.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from dpatlas.accounting.guarantees import Phase
from dpatlas.accounting.ledger import Ran
from dpatlas.accounting.parameter_names import belongs
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.progress import say
from dpatlas.base.records import Row
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.network import Network
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks
from dpatlas_workflow.papers.lp_fft.records.private import HEAD, Part
from dpatlas_workflow.papers.lp_fft.records.strategies import RECORD, Strategies
from dpatlas_workflow.papers.lp_fft.strategies import STRATEGIES, check_rank
from dpatlas_workflow.run.arms import Arm, Arms, Chosen, OneRun, accuracy, outputs
from dpatlas_workflow.run.branches import Stem, stem_of
from dpatlas_workflow.run.private_plan import calibrated, composed, resized
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import report


@dataclass(frozen=True)
class StrategyArm:
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
        first = round(self.share * total)
        return (first, total - first) if len(self.parts) == 2 else (total,)


def strategies(job: Job) -> Outcome:
    """Arms by strategy and share at one privacy level; the ledger has an entry for each.

    Raises InputError for a share that leaves a phase without a step, for LoRA without a rank, and
    for a rank above the width of a layer.
    """
    trainings = StrategyTrainings(job)
    outcome = report(job, RECORD, trainings.arms)
    data, backbone = job.prepared, trainings.networks.backbone
    facts = {
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "classes": len(data.classes),
        "backbone": {
            **identity(backbone),
            "architecture": backbone.architecture,
            "source": backbone.manifest["training"]["data"]["name"],
        },
        "features": job.features and job.features.identity(),
    }
    return Outcome({**facts, **outcome.metrics}, outcome.ledger)


def compared(fields: Strategies) -> Iterator[StrategyArm]:
    """The strategies of one phase, then those of two phases at every share between 0 and 1."""
    check_rank("strategies", fields.strategies, fields.lora_rank)
    for name in sorted(fields.strategies, key=lambda name: len(STRATEGIES[name])):
        parts = STRATEGIES[name]
        if len(parts) == 1:
            yield StrategyArm(name, 1.0 if parts == (HEAD,) else 0.0)
            continue
        for share in fields.control_shares if parts[0] == parts[1] else fields.shares:
            arm = StrategyArm(name, share)
            if 0 < share < 1:
                if 0 in arm.steps(fields.steps):
                    least = f"at least one of the {fields.steps} steps"
                    raise InputError("share", share, f"a share that gives each phase {least}")
                yield arm


class StrategyTrainings:
    """The strategies at one privacy level, and how each is trained at given rates."""

    def __init__(self, job: Job):
        self.job = job
        self.fields: Strategies = job.fields
        self.networks = BackboneNetworks(
            job,
            load_backbone(job),
            head_scale=self.fields.head_scale,
            rank=self.fields.lora_rank,
            standardised=self.fields.public_data is not None,
        )
        steps, level = self.fields.steps, self.fields.level
        self.sampler = Poisson(len(job.prepared.y_train), self.fields.batch)
        accounts = (self.fields.delta, self.fields.relation, self.fields.accountant)
        if level.noise_multiplier is None:
            self.noise_multiplier = calibrated(self.sampler, steps, level.epsilon, *accounts)
            noise = f"noise multiplier {self.noise_multiplier:.4g}"
            say(f"{job.spec.id}: epsilon {level.epsilon:g} takes {noise}")
        else:
            self.noise_multiplier = level.noise_multiplier
        # The guarantee of all steps, in one phase or two: refused before anything is trained.
        self.stated = composed(Phase(self.sampler, self.noise_multiplier, steps), *accounts)
        views, shape = self.fields.augmentation, job.prepared.image_shape
        self.augmentation = views and ShiftAndFlip(image_shape=shape, **dict(views))
        self.compared = {arm.name: arm for arm in compared(self.fields)}
        self._warn_of_noise()

    def _warn_of_noise(self) -> None:
        """Warn where noise outweighs all signal even in the head, the smallest trained part."""
        weights = sum(value.numel() for value in self.networks.fresh(0).head.parameters())
        noise = self.noise_multiplier * math.sqrt(weights)
        if noise > self.sampler.expected_batch * math.sqrt(self.fields.steps):
            say(
                f"{self.job.spec.id}: noise multiplier {self.noise_multiplier:.4g} outweighs "
                f"all that {self.fields.steps} clipped batches can add up to: expect the accuracy "
                "of chance"
            )

    @property
    def arms(self) -> Arms:
        """The arms of a job of this kind, or of its tuning."""
        standardised = self.networks.standardise is not None
        return Arms(
            {name: partial(self.at, arm) for name, arm in self.compared.items()},
            self.networks.seen,
            f"DP-SGD in one or two phases, {self.networks.backbone.architecture}",
            f"max_grad_norm {self.fields.max_grad_norm:g}",
            ("max_grad_norm", *["feature means and deviations"] * standardised),
            reported_weights=self.fields.reported_weights,
        )

    def at(self, arm: StrategyArm, chosen: Chosen) -> Arm:
        """The arm at these learning rates of its phases, `lrs`."""
        phases = self._phases(arm, chosen)

        def train(one: OneRun) -> tuple[dict[str, Any], Ran]:
            model, test, ran = self._trained(one, phases)
            labels = one.records.labels["test"]
            return {"accuracy": accuracy(outputs(model, test).cpu(), labels.cpu())}, ran

        def row() -> Row:
            return {
                **vars(arm),
                "lrs": [phase.lr for phase in phases],
                "steps": [phase.steps for phase in phases],
                "batch": self.sampler.batch,
                "sampler": self.sampler.name,
                "noise_multiplier": self.noise_multiplier,
                "max_grad_norm": self.fields.max_grad_norm if self.noise_multiplier else None,
                "target_epsilon": self.fields.level.epsilon,
                "epsilon": self.stated.guaranteed_epsilon,
                "relation": self.stated.relation,
                "guaranteed_by": self.stated.guaranteed_by,
                "trained_parameters": sum(
                    value.numel()
                    for name, value in self.networks.fresh(0).named_parameters()
                    if any(belongs(name, prefix) for prefix in phases[-1].trainable)
                ),
            }

        return Arm(train, row)

    def _phases(self, arm: StrategyArm, chosen: Chosen) -> list[TrainingPhase]:
        steps = arm.steps(self.fields.steps)
        return [
            self.networks.phase(part, count, self.noise_multiplier, float(lr))
            for part, lr, count in zip(arm.parts, chosen["lrs"], steps, strict=True)
        ]

    def _trained(self, one: OneRun, phases: Sequence[TrainingPhase]) -> tuple[Network, Tensor, Ran]:
        """The model of a run after all steps, its test records, and what was done."""
        first, *rest = _joined(phases)
        model, x = self._start(one, phases)
        if not self._branches(one) or _endless(first) not in self._stems:
            ema_decay = self.fields.ema_decay
            training = self._training(one, model, phases, x, ema_decay=ema_decay)
        else:
            stem = self._stem(one, _endless(first))
            model.load_state_dict(stem.weights[first.steps], strict=False)
            if not rest:
                return model, x["test"], stem.ran_in(*(phase.steps for phase in phases))
            training = self._training(one, model, rest, x, after=stem.ran_in(first.steps))
        one.finish(training)
        if training.ema is not None:
            model.load_state_dict(training.ema, strict=False)
        return model, x["test"], training.ran

    def _start(
        self, one: OneRun, phases: Sequence[TrainingPhase]
    ) -> tuple[Network, Mapping[str, Tensor]]:
        """The head or the network that a run begins with, and its records."""
        if self._on_features(phases):
            return self.networks.fresh_head(one.number), one.records.features
        return self.networks.fresh(one.number), one.records.x

    def _on_features(self, phases: Sequence[TrainingPhase]) -> bool:
        """Whether such phases train on features; those of augmented views are not at hand."""
        head_alone = all(phase.trainable == ("head",) for phase in phases)
        return self.augmentation is None and head_alone

    def _training(
        self,
        one: OneRun,
        model: Network,
        phases: Sequence[TrainingPhase],
        x: Mapping[str, Tensor],
        **more: Any,
    ) -> PrivateTraining:
        labels = one.records.labels["train"]
        phases = [resized(phase, len(labels)) for phase in phases]
        more = {"augmentation": self.augmentation, **one.draws, **more}
        return PrivateTraining(model, phases, x["train"], labels, **more)

    def _branches(self, one: OneRun) -> bool:
        """Whether the strategies of the run take common steps once.

        Not in trials, which share no noise, nor with averaged weights, which go over all phases.
        """
        return one.shared_noise is not None and self.fields.ema_decay is None

    @cached_property
    def _stems(self) -> Mapping[TrainingPhase, Sequence[int]]:
        """First steps that are taken once, by their phase, with the numbers of steps to keep.

        Those of several arms, and all of the head: it trains on features, whatever comes after.
        """
        lengths: dict[TrainingPhase, list[int]] = {}
        for name, arm in self.compared.items():
            first = _joined(self._phases(arm, self.job.chosen[name]))[0]
            lengths.setdefault(_endless(first), []).append(first.steps)
        return {
            phase: sorted(set(steps))
            for phase, steps in lengths.items()
            if len(steps) > 1 or self._on_features([phase])
        }

    def _stem(self, one: OneRun, phase: TrainingPhase) -> Stem:
        """The first steps of all strategies of the run that begin with this phase."""
        stems = one.records.stems
        if phase not in stems:
            at = self._stems[phase]
            common = [replace(phase, steps=at[-1])]
            stage = partial(one.stages.shared, f"stem-{list(self._stems).index(phase)}")

            def training() -> PrivateTraining:
                model, x = self._start(one, common)
                return self._training(one, model, common, x)

            stems[phase] = stem_of(one, stage, training, at)
        return stems[phase]


def _endless(phase: TrainingPhase) -> TrainingPhase:
    """The phase without its number of steps, by which common steps are known."""
    return replace(phase, steps=0)


def _joined(phases: Sequence[TrainingPhase]) -> list[TrainingPhase]:
    """The phases, two that differ by nothing but their steps as one."""
    first, *rest = phases
    if rest and _endless(rest[0]) == _endless(first):
        return [replace(first, steps=first.steps + rest[0].steps)]
    return [first, *rest]


KIND = Kind(strategies, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
