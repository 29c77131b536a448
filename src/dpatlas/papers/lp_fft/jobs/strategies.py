"""lp_fft: accuracy at one privacy budget, by strategy and share of the steps in the first phase.

All strategies of a job take the same number of steps with the same noise, so they spend the same
budget, whether in one phase or in two. Learning rates are tuned on validation records, one phase
after the other: a first phase takes the rate that was best for the strategy of that phase alone,
and a second phase tunes its own. So all strategies of two phases, the controls included, try
equally many settings.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from dpatlas.core.facts import BackboneUsed, FeaturesUsed
from dpatlas.core.progress import say
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.private_records import check_parts, identity, load_backbone
from dpatlas.jobs.search import Search, Setting, Trial, accuracy
from dpatlas.papers.lp_fft.jobs.networks import Networks, outputs
from dpatlas.papers.lp_fft.records.private import HEAD, Part
from dpatlas.papers.lp_fft.records.strategies import Metrics, Row, Spec
from dpatlas.papers.lp_fft.strategies import ALONE, STRATEGIES, check_rank
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.ledger import HELD_OUT, Ran, holds_for
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import belongs


@dataclass(frozen=True)
class Arm:
    """A strategy and the share of the steps in its first phase."""

    strategy: str
    share: float

    @property
    def parts(self) -> tuple[Part, ...]:
        """The part of the network that each phase trains."""
        return STRATEGIES[self.strategy]


def strategies(job: Job) -> Outcome:
    """Rows by strategy and share at one privacy level; the ledger has an entry for each.

    Run i of all rows starts from the same head.

    Raises InputError for a share that leaves a phase without a step, for LoRA without a rank, and
    for a rank above the width of a layer.
    """
    fields: Spec = job.fields
    data = job.prepared
    check_parts(data)
    backbone = load_backbone(job)
    networks = Networks(job, backbone, head_scale=fields.head_scale, rank=fields.lora_rank)
    compared = Comparison(job, networks)
    rows = compared.search.run()
    metrics = Metrics(
        n_train=len(data.y_train),
        n_validation=len(data.y_validation),
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
    return Outcome(metrics, compared.ledger())


def arms_of(fields: Spec) -> Iterator[Arm]:
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
    """The strategies at one privacy level: the shared plan and the settings of each arm."""

    def __init__(self, job: Job, networks: Networks):
        self.job, self.networks = job, networks
        self.fields: Spec = job.fields
        self.plan = _plan(job, Poisson(len(networks.labels["train"]), self.fields.batch))
        # Refuses a plan without a guarantee before anything is trained.
        _ = self.plan.stated
        self.augmentation = _augmentation(job)
        self.search = Search(
            job,
            list(arms_of(self.fields)),
            _arm_facts,
            self.settings_of,
            row_of=lambda values: Row(**values),
            named=lambda row: f"{row.strategy}, share {row.share:g}",
            in_ledger=lambda row: {"require_private": self.plan.private},
            tuned_before=self._tuned_before,
        )
        self._warn_of_noise()

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

    def settings_of(self, arm: Arm) -> list[Setting]:
        """One setting per rate of the last phase."""
        first: list[float] = []
        for number in self._tuned_before(arm):
            first = self.search.rows[number].lrs
        return [self._setting(arm, (*first, lr)) for lr in self.fields.lrs[arm.parts[-1]]]

    def _setting(self, arm: Arm, lrs: Sequence[float]) -> Setting:
        fields, networks = self.fields, self.networks
        steps = _phase_steps(arm, fields.steps)

        def score(trial: Trial) -> tuple[float, Ran]:
            network = networks.fresh(trial.number)
            model: nn.Module = network
            x = networks.x
            if set(arm.parts) == {HEAD} and self.augmentation is None:
                model, x = networks.on_frozen_features(network)
            phases = [
                self.plan.phase(
                    lr,
                    count,
                    trainable=networks.trained(network, part) if x is networks.x else ("",),
                    max_physical_batch=fields.max_physical_batch,
                )
                for part, lr, count in zip(arm.parts, lrs, steps, strict=True)
            ]
            training = trial.train(
                model,
                phases,
                x["train"],
                networks.labels["train"],
                augmentation=self.augmentation,
                ema_decay=fields.ema_decay,
            )
            if training.ema is not None:
                model.load_state_dict(training.ema, strict=False)
            labels = networks.labels[trial.part]
            return accuracy(outputs(model, x[trial.part]).cpu(), labels.cpu()), training.ran

        facts = {
            **self.plan.facts(),
            "noise_multiplier": self.plan.noise_multiplier,
            "lrs": [float(lr) for lr in lrs],
            "steps": list(steps),
            "target_epsilon": fields.level.epsilon,
            "trained_parameters": self._trained_parameters(arm.parts[-1]),
        }
        stated = self.plan.stated
        row = {
            "epsilon": stated.guaranteed,
            "relation": stated.relation,
            "guaranteed_by": stated.by,
        }
        return Setting(facts, lambda: row, score)

    def _trained_parameters(self, part: Part) -> int:
        network = self.networks.fresh(0)
        prefixes = self.networks.trained(network, part)
        return sum(
            value.numel()
            for name, value in network.named_parameters()
            if any(belongs(name, prefix) for prefix in prefixes)
        )

    def ledger(self) -> dict[str, Any]:
        """The entries of all arms, and the statements that they share."""
        return {
            "mechanism": f"DP-SGD in one or two phases, {self.networks.backbone.architecture}",
            "epsilon": self.plan.stated.guaranteed,
            "delta": self.fields.delta if self.plan.private else None,
            "guaranteed": "as each row says, for the last iterate of one run of that row; all rows "
            "together have no guarantee here",
            "claimed": None,
            "chosen_on_private_data": "rates, by the validation scores of trainings on the private "
            f"records: each row says what that costs by composition; {HELD_OUT}",
            "holds_for": holds_for(self.search.noise.source, "one run of one row"),
            "arms": self.search.ledgers,
        }

    def _tuned_before(self, arm: Arm) -> list[int]:
        """The number of the row whose best rate the first phase takes; none for a single phase."""
        if len(arm.parts) == 1:
            return []
        names: list[str] = [row.strategy for row in self.search.rows]
        return [names.index(ALONE[arm.parts[0]])]


def _plan(job: Job, sampler: Poisson) -> DpSgdPlan:
    """The plan with the level's noise multiplier, or with one that is calibrated and reported."""
    fields: Spec = job.fields
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


def _arm_facts(arm: Arm) -> dict[str, Any]:
    return {"method": arm.strategy, "strategy": arm.strategy, "share": arm.share}


def _phase_steps(arm: Arm, steps: int) -> tuple[int, ...]:
    return split_steps(steps, arm.share) if len(arm.parts) == 2 else (steps,)


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
