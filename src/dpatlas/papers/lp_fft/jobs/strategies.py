"""lp_fft: what a privacy budget buys, by strategy and by the share that linear probing gets.

All strategies of a job take the same number of steps with the same noise, so they spend the same
budget, phase boundary or not. Rates are chosen on validation records, one phase after the other:
a first phase takes the rate that was best for it alone, then a second phase chooses its own. So
every strategy of two phases, the controls included, tries the same number of settings.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from dpatlas.core.guard import integer, one_of, real
from dpatlas.core.progress import say
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.jobs.private_plan import EVERY_ITERATE, calibrate_steps
from dpatlas.jobs.private_records import PARTS, check_parts, identity, load_backbone
from dpatlas.jobs.search import Search, Setting, Trial, accuracy
from dpatlas.papers.lp_fft.jobs.networks import Networks, outputs, split_steps
from dpatlas.papers.lp_fft.records.private import HEAD
from dpatlas.papers.lp_fft.records.strategies import ALONE, STRATEGIES, check_rank
from dpatlas.privacy.accounting import RELATIONS, Phase, guarantee
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.ledger import HELD_OUT, Ran, holds_for
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining, TrainingPhase, belongs

# Without privacy nothing is clipped.
NO_CLIP = 1e6
DOMAINS = {
    "batch": integer(ge=1),
    "steps": integer(ge=1),
    "max_grad_norm": real(gt=0),
    "relation": one_of(*RELATIONS),
    "head_scale": real(gt=0),
}


@dataclass(frozen=True)
class Arm:
    """A strategy and the share of the steps that its first phase gets."""

    strategy: str
    share: float

    @property
    def parts(self) -> tuple[str, ...]:
        """What is trained, phase by phase."""
        return STRATEGIES[self.strategy]


@dataclass(frozen=True)
class Spent:
    """What composition guarantees of the last iterate; None without privacy."""

    epsilon: float | None
    relation: str | None
    by: str | None

    def as_row(self) -> dict[str, Any]:
        """For a record."""
        return {"epsilon": self.epsilon, "relation": self.relation, "guaranteed_by": self.by}


def strategies(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `strategies`: one privacy level, every strategy.

    `rows`: strategy, share, rates and steps of the phases, epsilon of both together, and the
    accuracies of the reported runs, run i of all rows from the same head. The ledger has one entry
    a row.

    Raises InputError for settings outside their domains, for a share that leaves a phase without
    a step, for a two-phase strategy whose phases were not tuned alone, and for a LoRA rank above a
    layer's width.
    """
    fields = job.spec.fields
    for name, domain in DOMAINS.items():
        domain.check(name, fields[name])
    check_parts(job.data)
    backbone = load_backbone(job)
    budget = Budget(job, Networks(job, backbone, **_network_settings(fields)))
    rows = budget.search.run()
    metrics = {
        **{f"n_{part}": len(getattr(job.data, f"y_{part}")) for part in PARTS},
        "classes": len(job.data.classes),
        "backbone": {
            **identity(backbone),
            "architecture": backbone.architecture,
            "source": backbone.manifest["training"]["data"]["name"],
        },
        "features": job.features and job.features.identity(),
        "rows": rows,
    }
    return {"metrics": metrics, "ledger": budget.ledger()}


def arms_of(fields: dict[str, Any]) -> Iterator[Arm]:
    """What trains one way first, then what takes two phases at each share; ends are no shares."""
    for name in fields["strategies"]:
        one_of(*STRATEGIES).check("strategies", name)
    check_rank("strategies", fields["strategies"], fields["lora_rank"])
    chosen = sorted(fields["strategies"], key=lambda name: len(STRATEGIES[name]))
    for name in chosen:
        parts = STRATEGIES[name]
        if len(parts) == 1:
            yield Arm(name, 1.0 if parts == (HEAD,) else 0.0)
            continue
        if ALONE[parts[0]] not in chosen:
            allowed = f"{ALONE[parts[0]]} too, whose rate its first phase takes"
            raise InputError("strategies", f"{name} without {ALONE[parts[0]]}", allowed)
        controls = parts[0] == parts[1]
        for share in fields["control_shares" if controls else "shares"]:
            real(ge=0, le=1).check("share", share)
            if 0 < share < 1:
                _check_split(fields["steps"], share)
                yield Arm(name, share)


class Budget:
    """One privacy level: its noise, its phases, and the settings of every arm."""

    def __init__(self, job: Job, networks: Networks):
        self.job, self.fields, self.networks = job, job.spec.fields, networks
        self.sampler = Poisson(len(networks.labels["train"]), self.fields["batch"])
        self.noise_multiplier = self._noise_multiplier()
        self.private = self.noise_multiplier > 0
        self.spent = self._spent()
        self.augmentation = _augmentation(job)
        self.search = Search(
            job,
            list(arms_of(self.fields)),
            _arm_facts,
            self.settings_of,
            named=lambda row: f"{row['strategy']}, share {row['share']:g}",
            in_ledger=lambda row: {"require_private": self.private},
            tuned_before=self._tuned_before,
        )
        self._warn_of_noise()

    def _noise_multiplier(self) -> float:
        """As given, or calibrated to the level's epsilon, and then said aloud."""
        level, fields = self.fields["level"], self.fields
        if "noise_multiplier" in level:
            return float(level["noise_multiplier"])
        found = calibrate_steps(
            self.sampler,
            ((1.0, fields["steps"]),),
            level["epsilon"],
            fields["delta"],
            fields["relation"],
            fields["accountant"],
        )
        say(f"{self.job.spec.id}: epsilon {level['epsilon']:g} takes noise multiplier {found:.4g}")
        return found

    def _warn_of_noise(self) -> None:
        """Where noise outweighs all signal even in the head, the least that is trained."""
        head = sum(value.numel() for value in self.networks.fresh(0).head.parameters())
        noise = self.noise_multiplier * math.sqrt(head)
        signal = self.sampler.expected_batch * math.sqrt(self.fields["steps"])
        if noise > signal:
            say(
                f"{self.job.spec.id}: noise multiplier {self.noise_multiplier:.4g} outweighs all "
                f"that {self.fields['steps']} clipped batches can add up to: expect the accuracy "
                "of chance"
            )

    def _spent(self) -> Spent:
        """By all steps; where the phases meet makes no difference to equal noise."""
        fields = self.fields
        if not self.private:
            return Spent(None, None, None)
        phases = [Phase(self.sampler, self.noise_multiplier, fields["steps"])]
        found = guarantee(phases, fields["delta"], fields["relation"], fields["accountant"])
        if not math.isfinite(found.epsilon):
            raise InputError("noise_multiplier", self.noise_multiplier, "0, or a finite epsilon's")
        by = f"{EVERY_ITERATE}, {found.accountant.upper()}"
        return Spent(found.epsilon, fields["relation"], by)

    def settings_of(self, arm: Arm) -> list[Setting]:
        """One setting per rate of the last phase."""
        first = ()
        for number in self._tuned_before(arm):
            first = self.search.rows[number]["lrs"]
        return [self._setting(arm, (*first, lr)) for lr in self.fields["lrs"][arm.parts[-1]]]

    def _setting(self, arm: Arm, lrs: Sequence[float]) -> Setting:
        fields, networks = self.fields, self.networks
        steps = _phase_steps(arm, fields["steps"])

        def score(trial: Trial) -> tuple[float, Ran]:
            network = networks.fresh(trial.number)
            model: nn.Module = network
            x = networks.x
            if set(arm.parts) == {HEAD} and self.augmentation is None:
                model, x = networks.behind_features(network)
            phases = [
                self._phase(
                    lr, count, networks.trained(network, part) if x is networks.x else ("",)
                )
                for part, lr, count in zip(arm.parts, lrs, steps, strict=True)
            ]
            training = PrivateTraining(
                model,
                phases,
                x["train"],
                networks.labels["train"],
                noise=trial.noise,
                repetition=trial.repetition,
                augmentation=self.augmentation,
                ema_decay=fields["ema_decay"],
            )
            trial.finish(training)
            if training.ema is not None:
                model.load_state_dict(training.ema, strict=False)
            labels = networks.labels[trial.part]
            return accuracy(outputs(model, x[trial.part]).cpu(), labels.cpu()), training.ran

        facts = {
            "lrs": [float(lr) for lr in lrs],
            "steps": list(steps),
            "noise_multiplier": self.noise_multiplier,
            "max_grad_norm": fields["max_grad_norm"] if self.private else None,
            "batch": self.sampler.batch,
            "sampler": self.sampler.name,
            "target_epsilon": fields["level"].get("epsilon"),
            "trained_parameters": self._trained_parameters(arm.parts[-1]),
        }
        return Setting(facts, lambda: self.spent, score)

    def _phase(self, lr: float, steps: int, trainable: tuple[str, ...]) -> TrainingPhase:
        fields = self.fields
        return TrainingPhase(
            self.sampler,
            self.noise_multiplier,
            fields["max_grad_norm"] if self.private else NO_CLIP,
            steps,
            lr,
            trainable=trainable,
            max_physical_batch=fields["max_physical_batch"],
        )

    def _trained_parameters(self, part: str) -> int:
        network = self.networks.fresh(0)
        prefixes = self.networks.trained(network, part)
        return sum(
            value.numel()
            for name, value in network.named_parameters()
            if any(belongs(name, prefix) for prefix in prefixes)
        )

    def ledger(self) -> dict[str, Any]:
        """A ledger per row, and what they share."""
        fields = self.fields
        return {
            "mechanism": f"DP-SGD in one or two phases, {self.networks.backbone.architecture}",
            "epsilon": self.spent.epsilon,
            "delta": fields["delta"] if self.private else None,
            "guaranteed": "as each row says, for the last iterate of one run of that row; all rows "
            "together have no guarantee here",
            "claimed": None,
            "chosen_on_private_data": "rates, by the validation scores of trainings on the private "
            f"records: each row says what that costs by composition; {HELD_OUT}",
            "holds_for": holds_for(self.search.noise.source, "one run of one row"),
            "arms": self.search.ledgers,
        }

    def _tuned_before(self, arm: Arm) -> list[int]:
        """The row whose best rate the first phase takes."""
        if len(arm.parts) == 1:
            return []
        names = [row["strategy"] for row in self.search.rows]
        return [names.index(ALONE[arm.parts[0]])]


def _network_settings(fields: dict[str, Any]) -> dict[str, Any]:
    return {"head_scale": fields["head_scale"], "rank": fields["lora_rank"]}


def _augmentation(job: Job) -> ShiftAndFlip | None:
    views = job.spec.fields["augmentation"]
    return views and ShiftAndFlip(image_shape=job.data.image_shape, **views)


def _arm_facts(arm: Arm) -> dict[str, Any]:
    return {"method": arm.strategy, "strategy": arm.strategy, "share": arm.share}


def _phase_steps(arm: Arm, steps: int) -> tuple[int, ...]:
    return split_steps(steps, arm.share) if len(arm.parts) == 2 else (steps,)


def _check_split(steps: int, share: float) -> None:
    if 0 in split_steps(steps, share):
        allowed = f"a share that gives both of the phases one of the {steps} steps at least"
        raise InputError("share", share, allowed)


KIND = Kind(
    legacy(strategies),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
