"""A phase of a private training: its settings, how it is accounted, and its facts for a ledger."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import nn

from dpatlas.accounting.clip_bounds import AdaptiveClip, Clipping, LayerBounds, clipping_facts
from dpatlas.accounting.guarantees import MOST_STATED_NOISE, Phase
from dpatlas.accounting.samplers import Sampler, check_sampler
from dpatlas.accounting.schedules import Schedule, accounted_levels, public_schedule, schedule_facts
from dpatlas.base.guard import hold, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.privacy.clipping import CLIPPINGS
from dpatlas.privacy.optimizers import OPTIMIZER_NAMES, Factory, ParameterGroup, in_words


@dataclass(frozen=True)
class TrainingPhase:
    """Consecutive training steps with the same settings and one privacy event per step.

    noise_multiplier: standard deviation of the noise on the sum of clipped gradients, in units of
    max_grad_norm; 0 trains without privacy. lr: step size on the noisy sum divided by the expected
    batch. optimizer: sgd (with `momentum`), adam, adamw, or a function of parameter groups that
    makes a torch.optim optimizer (whose learning rate and weight decay are the phase's). Weight
    decay acts on the privatised gradient, outside of the clip. trainable: prefixes of parameter
    names; the others are frozen and get no noise. The prefix "", the default, means all parameters
    but those that had requires_grad=False when the training was made; any other prefix trains what
    it names. max_physical_batch: records in memory at a time; changes results only by rounding.
    lr_decay: step k of the phase, from 0, has the step size lr / (1 + lr_decay k).

    lr_schedule, noise_schedule: factors of lr (at most 1e6) and of noise_multiplier by the step of
    the phase (`dpatlas.accounting.schedules`, or any pure function, evaluated here, once).
    parameter_groups: learning rates and weight decays of their own for some of the parameters.
    clipping: flat, per-layer (each of L layers at max_grad_norm / sqrt(L)), a bound for each part
    of the network (`LayerBounds`, whose total is max_grad_norm), or a bound that follows a quantile
    of the norms (`AdaptiveClip`, which starts at max_grad_norm).

    Raises InputError for values out of range, schedules that are no functions of the step, and
    settings that exclude each other.
    """

    sampler: Sampler
    noise_multiplier: float
    max_grad_norm: float
    steps: int
    lr: float
    optimizer: str | Factory = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    trainable: tuple[str, ...] = ("",)
    clipping: Clipping = "flat"
    max_physical_batch: int | None = None
    lr_decay: float = 0.0
    lr_schedule: Schedule | None = None
    noise_schedule: Schedule | None = None
    parameter_groups: tuple[ParameterGroup, ...] = ()

    def __post_init__(self) -> None:
        check_sampler(self.sampler)
        for name, domain in PHASE_DOMAINS.items():
            hold(self, name, domain)
        if not isinstance(self.clipping, LayerBounds | AdaptiveClip):
            one_of(*CLIPPINGS).check("clipping", self.clipping)
        for name, domain in (("lr_schedule", real(ge=0, le=1e6)), ("noise_schedule", real(ge=0))):
            schedule = public_schedule(name, getattr(self, name), self.steps, domain)
            object.__setattr__(self, name, schedule)
        if self.lr_decay and self.lr_schedule is not None:
            raise InputError("lr_decay", self.lr_decay, "0 with an lr_schedule")
        texts = isinstance(self.trainable, tuple | list)
        if not texts or not all(isinstance(each, str) for each in self.trainable):
            allowed = "a tuple of texts, such as ('head',)"
            raise InputError("trainable", repr(self.trainable), allowed)
        prefixes = [group.prefix for group in self.parameter_groups]
        if len(set(prefixes)) < len(prefixes):
            raise InputError("parameter_groups", f"{prefixes}", "each prefix once")
        if self.max_physical_batch is not None:
            hold(self, "max_physical_batch", integer(ge=1))
        if isinstance(self.optimizer, str):
            one_of(*OPTIMIZER_NAMES).check("optimizer", self.optimizer)
        if self.optimizer != "sgd" and self.momentum:
            made_by = getattr(self.optimizer, "func", self.optimizer)
            rule = getattr(made_by, "__name__", made_by)
            raise InputError("momentum", self.momentum, f"0 with {rule}, which has its own")
        in_words(self.optimizer)

    @property
    def accounted(self) -> Phase:
        """The phase as accountants see it; InputError where its noise changes from step to step."""
        phases = self.accounted_phases
        if len(phases) > 1:
            allowed = "one noise multiplier; for several, accounted_phases"
            raise InputError("noise_schedule", f"{len(phases)} noise multipliers", allowed)
        return phases[0]

    @property
    def accounted_phases(self) -> tuple[Phase, ...]:
        """The phase as accountants see it: one for every run of steps with the same noise."""
        return tuple(phase for phase, _ in self.accounted_noises)

    @property
    def accounted_noises(self) -> tuple[tuple[Phase, float], ...]:
        """`accounted_phases`, each with the noise multiplier of the gradients alone.

        An adaptive clip bound releases more than gradients, so its accounted noise is smaller. So
        is some of the noise of a schedule with many levels (`accounted_levels`).
        """
        runs = [(self.noise_multiplier, self.steps)]
        if self.noise_schedule is not None and self.steps:
            noises = [self.noise_at(step) for step in range(self.steps)]
            levels = accounted_levels(noises)
            equal = groupby(levels[noise] for noise in noises)
            runs = [(noise, len(list(run))) for noise, run in equal]
        adaptive = self.clipping if isinstance(self.clipping, AdaptiveClip) else None
        return tuple(
            (Phase(self.sampler, adaptive.joint_noise(noise) if adaptive else noise, steps), noise)
            for noise, steps in runs
        )

    @property
    def noisy(self) -> bool:
        """Whether any step has noise."""
        return any(phase.noise_multiplier for phase in self.accounted_phases)

    def noise_at(self, step: int) -> float:
        """Noise multiplier of a step of the phase, from 0."""
        if self.noise_schedule is None:
            return self.noise_multiplier
        return self.noise_multiplier * self.noise_schedule(step)

    def step_size(self, lr: float, step: int) -> float:
        """Step size of the learning rate `lr` at a step of the phase, from 0."""
        if self.lr_schedule is None:
            return lr / (1 + self.lr_decay * step)
        return lr * self.lr_schedule(step)


def training_phases(phases: Any) -> tuple[TrainingPhase, ...]:
    """The phases as a tuple; InputError for what is no list of them."""
    allowed = "a list of TrainingPhase"
    if not isinstance(phases, Iterable):
        raise InputError("phases", type(phases).__name__, allowed)
    listed = tuple(phases)
    for each in listed:
        if not isinstance(each, TrainingPhase):
            raise InputError("phases", f"one of type {type(each).__name__}", allowed)
    return listed


PHASE_DOMAINS = {
    "noise_multiplier": real(ge=0, le=MOST_STATED_NOISE),
    # Below, float32 rounds a record to more than the bound; above, sums and updates overflow.
    "max_grad_norm": real(ge=1e-30, le=1e30),
    "steps": integer(ge=0),
    "lr": real(gt=0, le=1e30),
    "momentum": real(ge=0, lt=1),
    "weight_decay": real(ge=0, le=1e30),
    "lr_decay": real(ge=0),
}


# Settings of a phase that a model's card shows beside those of its ledger.
SHOWN_SETTINGS = ("optimizer", "lr", "lr_schedule", "momentum", "weight_decay", "parameter_groups")


def phase_facts(phase: TrainingPhase) -> dict[str, Any]:
    """The settings of a phase that change more than rounding, as JSON values."""
    facts = {name: value for name, value in vars(phase).items() if name != "max_physical_batch"}
    sampler = phase.sampler
    sampling = {"name": sampler.name, "n": int(sampler.n), "batch": int(sampler.batch)}
    facts["clipping"] = clipping_facts(phase.clipping)
    facts["optimizer"] = in_words(phase.optimizer)
    facts |= {name: schedule_facts(facts[name]) for name in ("lr_schedule", "noise_schedule")}
    groups = [dict(vars(group)) for group in phase.parameter_groups]
    return {
        **facts,
        "sampler": sampling,
        "trainable": list(phase.trainable),
        "parameter_groups": groups,
    }


def numbered_facts(phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One entry for every setting of every phase instead of the entry "phases"."""
    settings = {
        f"{name} of phase {number}": value
        for number, phase in enumerate(phases, 1)
        for name, value in phase.items()
    }
    return {**settings, "phases": None}


def mechanism(
    model: nn.Module, phases: Sequence[TrainingPhase], frozen: Collection[str] = ()
) -> str:
    """Update rule, clipping, and the trained parameters of which network, in words.

    Their number tells a head that is trained by itself from the network that it is a part of.
    frozen: names of the parameters that the prefix "" does not mean.
    """
    texts: dict[str, None] = {}
    sizes = {name: value.numel() for name, value in model.named_parameters()}
    everything = f"all {sum(sizes.values()):,} parameters"
    if frozen:
        kept = sum(size for name, size in sizes.items() if name not in frozen)
        everything = f"the {kept:,} not frozen of {sum(sizes.values()):,} parameters"
    for phase in phases:
        private = "DP-SGD" if phase.noisy else "SGD without noise"
        optimizer = in_words(phase.optimizer).split("(")[0]
        rule = private.replace("SGD", OPTIMIZER_NAMES.get(optimizer, optimizer))
        names = [name or everything for name in phase.trainable]
        clipping = phase.clipping if isinstance(phase.clipping, str) else phase.clipping.words
        how = f"{clipping} clipping{_noise_in_words(phase)}"
        texts[f"{rule}, {how}, on {' and '.join(names)}"] = None
    taken = "; then ".join(texts) or "no step"
    return f"{taken} of {type(model).__name__}"


def _noise_in_words(phase: TrainingPhase) -> str:
    """What the ledger says of a noise schedule; nothing without one."""
    if phase.noise_schedule is None:
        return ""
    levels = accounted_levels(phase.noise_at(step) for step in range(phase.steps))
    accounted = len(set(levels.values()))
    if accounted == len(levels):
        return ", noise by a schedule"
    return f", noise by a schedule of {len(levels)} levels, accounted as {accounted} lower ones"
