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

from torch import Tensor, nn

from dpatlas.accounting.ledger import PUBLIC, Ran
from dpatlas.accounting.parameter_names import belongs
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.progress import say
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.network import Network
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks, Seen, outputs
from dpatlas_workflow.papers.lp_fft.records.private import HEAD, Part
from dpatlas_workflow.papers.lp_fft.records.strategies import RECORD, Strategies
from dpatlas_workflow.papers.lp_fft.strategies import ALONE, STRATEGIES, check_rank
from dpatlas_workflow.run.arms import Arms, ArmSetting, Chosen, OneRun, accuracy
from dpatlas_workflow.run.branches import Stem, stem_of
from dpatlas_workflow.run.private_plan import DpSgdPlan
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import Reports


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
        return split_steps(total, self.share) if len(self.parts) == 2 else (total,)


@dataclass(frozen=True)
class Segment:
    """Consecutive steps that train one part of the network at one learning rate."""

    part: Part
    lr: float
    steps: int


def strategies(job: Job) -> Outcome:
    """Arms by strategy and share at one privacy level; the ledger has an entry for each.

    Raises InputError for a share that leaves a phase without a step, for LoRA without a rank, and
    for a rank above the width of a layer.
    """
    compared = StrategyComparison(job)
    reports = Reports(
        job,
        compared.arms,
        RECORD,
        vars,
        lambda row: {"require_private": compared.plan.private},
    )
    tables = reports.run()
    data, backbone = job.prepared, compared.networks.backbone
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
    return Outcome({**facts, **tables}, reports.ledger(*compared.in_words))


def arms_of(fields: Strategies) -> Iterator[StrategyArm]:
    """The strategies of one phase, then those of two phases at every share between 0 and 1."""
    check_rank("strategies", fields.strategies, fields.lora_rank)
    for name in sorted(fields.strategies, key=lambda name: len(STRATEGIES[name])):
        parts = STRATEGIES[name]
        if len(parts) == 1:
            yield StrategyArm(name, 1.0 if parts == (HEAD,) else 0.0)
            continue
        control = parts[0] == parts[1]
        for share in fields.control_shares if control else fields.shares:
            if 0 < share < 1:
                _check_split(fields.steps, share)
                yield StrategyArm(name, share)


class StrategyComparison:
    """The strategies at one privacy level: their plan, and how each is trained at given rates."""

    def __init__(self, job: Job):
        self.job = job
        self.fields: Strategies = job.fields
        backbone = load_backbone(job)
        scale, rank = self.fields.head_scale, self.fields.lora_rank
        standardised = self.fields.public_data is not None
        self.networks = BackboneNetworks(
            job, backbone, head_scale=scale, rank=rank, standardised=standardised
        )
        self.plan = _plan(job, Poisson(len(job.prepared.y_train), self.fields.batch))
        # Refuses a plan without a guarantee before anything is trained.
        _ = self.plan.stated
        self.augmentation = _augmentation(job)
        compared = list(arms_of(self.fields))
        # The stems of the current run, by part and rate, and the number of that run.
        self._grown: dict[tuple[Part, float], Stem] = {}
        self._run: int | None = None
        names = ["max_grad_norm", *["feature means and deviations"] * standardised]
        self.arms = Arms(
            compared,
            lambda arm: arm.name,
            self.networks.seen,
            self.setting_of,
            dict.fromkeys(names, PUBLIC),
        )
        self._warn_of_noise()

    @property
    def in_words(self) -> tuple[str, str]:
        """Mechanism and clip of all arms, for the job's ledger."""
        return (
            f"DP-SGD in one or two phases, {self.networks.backbone.architecture}",
            f"max_grad_norm {self.fields.max_grad_norm:g}",
        )

    def setting_of(self, arm: StrategyArm, chosen: Chosen) -> ArmSetting[Seen]:
        """The arm at these learning rates of its phases, `lrs`."""
        planned = self._planned(arm, chosen)

        def train(one: OneRun[Seen]) -> tuple[dict[str, Any], Ran]:
            model, x, ran = self._trained(one, planned)
            correct = accuracy(outputs(model, x).cpu(), one.records.labels["test"].cpu())
            return {"accuracy": correct}, ran

        facts = {
            **self.plan.facts(),
            "noise_multiplier": self.plan.noise_multiplier,
            "lrs": [segment.lr for segment in planned],
            "steps": [segment.steps for segment in planned],
            "target_epsilon": self.fields.level.epsilon,
            "trained_parameters": self._trained_parameters(arm.parts[-1]),
        }
        return ArmSetting(facts, self._stated, train)

    def _trained(
        self, one: OneRun[Seen], planned: Sequence[Segment]
    ) -> tuple[nn.Module, Tensor, Ran]:
        """The model of a run after all steps, its test records, and what was done."""
        first, *rest = _joined(planned)
        on_features = self._on_features([segment.part for segment in planned])
        model, x = self._start(one, on_features)
        if not self._branches(one) or (first.part, first.lr) not in self._stems:
            ema_decay = self.fields.ema_decay
            training = self._training(one, model, planned, on_features, ema_decay=ema_decay)
        else:
            stem = self._stem(one, first.part, first.lr)
            model.load_state_dict(stem.weights[first.steps], strict=False)
            if not rest:
                return model, x["test"], stem.ran_in(*(segment.steps for segment in planned))
            after = stem.ran_in(first.steps)
            training = self._training(one, model, rest, on_features, after=after)
        one.finish(training)
        if training.ema is not None:
            model.load_state_dict(training.ema, strict=False)
        return model, x["test"], training.ran

    def _training(
        self,
        one: OneRun[Seen],
        model: Network,
        segments: Sequence[Segment],
        on_features: bool,
        **more: Any,
    ) -> PrivateTraining:
        """The private training of `model` by these steps; `more`: arguments of its class."""
        records = one.records
        plan = self.plan.on(len(records.labels["train"]))
        phases = [
            plan.phase(
                segment.lr,
                segment.steps,
                trainable=self.networks.trained(model, segment.part),
                max_physical_batch=self.fields.max_physical_batch,
            )
            for segment in segments
        ]
        x = records.features if on_features else records.x
        more = {"augmentation": self.augmentation, **one.draws, **more}
        return PrivateTraining(model, phases, x["train"], records.labels["train"], **more)

    def _start(self, one: OneRun[Seen], on_features: bool) -> tuple[Network, Mapping[str, Tensor]]:
        """The head or the network that a run begins with, and its records."""
        if on_features:
            return self.networks.fresh_head(one.number), one.records.features
        return self.networks.fresh(one.number), one.records.x

    def _on_features(self, parts: Sequence[Part]) -> bool:
        """Whether such phases train on features; those of augmented views are not at hand."""
        return self.augmentation is None and set(parts) == {HEAD}

    def _planned(self, arm: StrategyArm, chosen: Chosen) -> list[Segment]:
        """The phases of an arm at these rates, `lrs`."""
        steps = arm.steps(self.fields.steps)
        return [
            Segment(part, float(lr), count)
            for part, lr, count in zip(arm.parts, chosen["lrs"], steps, strict=True)
        ]

    def _branches(self, one: OneRun[Seen]) -> bool:
        """Whether the strategies of the run take common steps once.

        Not in trials, which share no noise, nor with averaged weights, which go over all phases.
        """
        return one.shared_noise is not None and self.fields.ema_decay is None

    @cached_property
    def _stems(self) -> Mapping[tuple[Part, float], Sequence[int]]:
        """First steps that are taken once, by part and rate, with the numbers of steps to keep.

        Those of several arms, and all of the head: it trains on features, whatever comes after.
        """
        lengths: dict[tuple[Part, float], list[int]] = {}
        for arm in self.arms.all:
            first = _joined(self._planned(arm, self.job.chosen[arm.name]))[0]
            lengths.setdefault((first.part, first.lr), []).append(first.steps)
        return {
            key: sorted(set(steps))
            for key, steps in lengths.items()
            if len(steps) > 1 or (key[0] == HEAD and self.augmentation is None)
        }

    def _stem(self, one: OneRun[Seen], part: Part, lr: float) -> Stem:
        """The first steps of all strategies of the run that train this part at this rate."""
        if self._run != one.number:
            self._grown, self._run = {}, one.number
        if (part, lr) not in self._grown:
            at = self._stems[part, lr]

            def training() -> PrivateTraining:
                on_features = self._on_features([part])
                model, _ = self._start(one, on_features)
                return self._training(one, model, [Segment(part, lr, at[-1])], on_features)

            name = f"stem-{list(self._stems).index((part, lr))}"
            stage = partial(one.stages.shared, name)
            self._grown[part, lr] = stem_of(stage, one.finish, training, at)
        return self._grown[part, lr]

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


def tuned_before(arm: StrategyArm) -> list[str]:
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


def _joined(segments: Sequence[Segment]) -> list[Segment]:
    """The segments, those that go on with the same part and rate as one."""
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if last and (last.part, last.lr) == (segment.part, segment.lr):
            joined[-1] = replace(last, steps=last.steps + segment.steps)
        else:
            joined.append(segment)
    return joined


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
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
