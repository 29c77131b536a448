"""lp_fft: what a privacy budget buys, by strategy and by the share that linear probing gets.

All strategies of a job take the same number of steps with the same noise, so they spend the same
budget, phase boundary or not. Rates are chosen on validation records, one phase after the other:
a first phase takes the rate that was best for it alone, then a second phase chooses its own. So
every strategy of two phases, the controls included, tries the same number of settings.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from torch import nn

from dpatlas.core.guard import integer, one_of, real
from dpatlas.core.progress import say
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.private_records import PARTS, check_parts, identity, load_backbone
from dpatlas.jobs.search import Search, Setting, Trial, accuracy
from dpatlas.papers.lp_fft.jobs.networks import Networks, outputs, split_steps
from dpatlas.papers.lp_fft.strategies import ALONE, HEAD, STRATEGIES, check_rank
from dpatlas.privacy.accounting import RELATIONS
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.ledger import HELD_OUT, Ran, holds_for
from dpatlas.privacy.samplers import Poisson, Sampler
from dpatlas.privacy.training import belongs

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
    compared = Comparison(job, Networks(job, backbone, **_network_settings(fields)))
    rows = [vars(row) for row in compared.search.run()]
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
    return {"metrics": metrics, "ledger": compared.ledger()}


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


class Comparison:
    """Strategies at one privacy level: its plan, and the settings of every arm."""

    def __init__(self, job: Job, networks: Networks):
        self.job, self.fields, self.networks = job, job.spec.fields, networks
        self.plan = _plan(job, Poisson(len(networks.labels["train"]), self.fields["batch"]))
        # Refused before anything is trained.
        _ = self.plan.stated
        self.augmentation = _augmentation(job)
        self.search = Search(
            job,
            list(arms_of(self.fields)),
            _arm_facts,
            self.settings_of,
            row_of=lambda values: SimpleNamespace(**values),
            named=lambda row: f"{row.strategy}, share {row.share:g}",
            in_ledger=lambda row: {"require_private": self.plan.private},
            tuned_before=self._tuned_before,
        )
        self._warn_of_noise()

    def _warn_of_noise(self) -> None:
        """Where noise outweighs all signal even in the head, the least that is trained."""
        head = sum(value.numel() for value in self.networks.fresh(0).head.parameters())
        noise = self.plan.noise_multiplier * math.sqrt(head)
        signal = self.plan.sampler.expected_batch * math.sqrt(self.plan.steps)
        if noise > signal:
            say(
                f"{self.job.spec.id}: noise multiplier {self.plan.noise_multiplier:.4g} outweighs "
                f"all that {self.plan.steps} clipped batches can add up to: expect the accuracy "
                "of chance"
            )

    def settings_of(self, arm: Arm) -> list[Setting]:
        """One setting per rate of the last phase."""
        first = ()
        for number in self._tuned_before(arm):
            first = self.search.rows[number].lrs
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
                self.plan.phase(
                    lr,
                    count,
                    trainable=networks.trained(network, part) if x is networks.x else ("",),
                    max_physical_batch=fields["max_physical_batch"],
                )
                for part, lr, count in zip(arm.parts, lrs, steps, strict=True)
            ]
            training = trial.train(
                model,
                phases,
                x["train"],
                networks.labels["train"],
                augmentation=self.augmentation,
                ema_decay=fields["ema_decay"],
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
            "target_epsilon": fields["level"].get("epsilon"),
            "trained_parameters": self._trained_parameters(arm.parts[-1]),
        }
        stated = self.plan.stated
        row = {
            "epsilon": stated.guaranteed,
            "relation": stated.relation,
            "guaranteed_by": stated.by,
        }
        return Setting(facts, lambda: row, score)

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
            "epsilon": self.plan.stated.guaranteed,
            "delta": fields["delta"] if self.plan.private else None,
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
        names = [row.strategy for row in self.search.rows]
        return [names.index(ALONE[arm.parts[0]])]


def _plan(job: Job, sampler: Sampler) -> DpSgdPlan:
    """The level's noise as given, or calibrated to its epsilon, and then said aloud."""
    fields, level = job.spec.fields, job.spec.fields["level"]
    asked = (fields["delta"], fields["relation"], fields["accountant"])
    plan = DpSgdPlan(sampler, fields["steps"], fields["max_grad_norm"], *asked)
    if "noise_multiplier" in level:
        return replace(plan, noise_multiplier=float(level["noise_multiplier"]))
    plan = plan.calibrated(level["epsilon"])
    noise = f"noise multiplier {plan.noise_multiplier:.4g}"
    say(f"{job.spec.id}: epsilon {level['epsilon']:g} takes {noise}")
    return plan


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
