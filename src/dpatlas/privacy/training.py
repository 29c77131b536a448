"""The private training loop: batch, clip, add noise, divide by the public batch size, update.

    training = PrivateTraining(model, phases, x, labels, noise=Noise())
    training.run()

Every random number is keyed by (spec, repetition, step, use), and noise by the parameter's name as
well, with steps counted over all phases, so a run restored from `state()` draws what an
uninterrupted run would have drawn, and two trainings that share their noise draw the same for the
parameters that both train. A step depends on the data only through the noisy sum: an empty batch is
a step of pure noise, a record without a finite gradient contributes zero and is counted, and the
divisor is the sampler's expected batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.accounting import (
    Guarantee,
    Phase,
    default_delta,
    default_relation,
    guarantee,
)
from dpatlas.privacy.clipping import CLIPPINGS, ClippedSum
from dpatlas.privacy.fingerprint import fingerprint, initial_values
from dpatlas.privacy.ledger import UNTOLD, Ran, ledger
from dpatlas.privacy.logistic import SoftmaxGradients
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.noise import add_noise
from dpatlas.privacy.optimizers import OPTIMIZERS, Optimizer, make_optimizer
from dpatlas.privacy.per_record import NetworkGradients, refuse_unsafe_layers
from dpatlas.privacy.probe import Loss, Subject, probe, refuse_autocast
from dpatlas.privacy.samplers import FullBatch, Sampler
from dpatlas.privacy.to_device import to_device

OnUpdate = Callable[[int, dict[str, Tensor]], None]


@dataclass(frozen=True)
class TrainingPhase:
    """Consecutive training steps with the same settings and one privacy event per step.

    noise_multiplier: standard deviation of the noise on the sum of clipped gradients, in units of
    max_grad_norm; 0 trains without privacy. trainable: prefixes of parameter names; the others are
    frozen and get no noise. max_physical_batch: records in memory at a time; changes results only
    by rounding. Weight decay acts on the privatised gradient, outside of the clip. lr_decay: step k
    of the phase, from 0, has the step size lr / (1 + lr_decay k).
    """

    sampler: Sampler
    noise_multiplier: float
    max_grad_norm: float
    steps: int
    lr: float
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    trainable: tuple[str, ...] = ("",)
    clipping: str = "flat"
    max_physical_batch: int | None = None
    lr_decay: float = 0.0

    def __post_init__(self) -> None:
        for name, domain in PHASE_DOMAINS.items():
            domain.check(name, getattr(self, name))
        if self.max_physical_batch is not None:
            integer(ge=1).check("max_physical_batch", self.max_physical_batch)
        if self.optimizer == "adam" and self.momentum:
            raise InputError("momentum", self.momentum, "0 with adam, which has its own")

    @property
    def accounted(self) -> Phase:
        """The phase as accountants see it."""
        return Phase(self.sampler, self.noise_multiplier, self.steps)


PHASE_DOMAINS = {
    "noise_multiplier": real(ge=0),
    "max_grad_norm": real(gt=0),
    "steps": integer(ge=0),
    "lr": real(gt=0),
    "optimizer": one_of(*OPTIMIZERS),
    "momentum": real(ge=0, lt=1),
    "weight_decay": real(ge=0),
    "lr_decay": real(ge=0),
    "clipping": one_of(*CLIPPINGS),
}


class Augmentation(Protocol):
    """Several views of each record, whose gradients are averaged before the clip."""

    views: int

    def draw(self, draws: np.random.Generator, records: int) -> Tensor:
        """Parameters of all views of `records` records, (records, ...)."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        """(records, ...) -> (records * views, ...), the views of one record consecutively."""


class PrivateTraining:
    """One run of one model through its phases.

    x (n, ...), labels (n,) int64 on the model's device. `repetition` separates runs of one spec.
    `ema_decay` maintains an exponential moving average of the weights, which costs no privacy;
    after t steps its decay is (1 + t) / (10 + t) if that is less.
    `on_update(step, noisy sums by parameter)` receives every privatised sum before the division, at
    the weights of the gradients: what an attacker inside the training would see. The step uses the
    same tensors afterwards, so the callback must copy what it stores.
    `kernel` computes the clipped sums of the current phase. `skipped_records` counts how often a
    record's gradient was not finite and contributed zero; the count is private.
    `phases_run`, `guarantee` and `ledger` cover exactly the steps whose noisy sums exist.
    `shared_noise` names a comparison whose trainings differ and draw the same noise: then only one
    of them may be released (`SHARED_NOISE`). Without it, a second training on a used (noise,
    repetition) is refused at its first noisy step, unless it repeats the first one's bits.
    `after`: what another training of the same records did before, at whose last weights the model
    starts. Steps, batches and noise count on from there, and `ran`, `guarantee` and `ledger` cover
    both trainings. Several trainings may go on from the same one, so they need a `shared_noise`.

    Raises InputError for data that do not fit together, samplers of another n, labels out of
    range, a model on another device, layers that the engine cannot clip, and for `after` without
    the same source and shared name of its noise.
    """

    @checked(repetition=integer(ge=0))
    def __init__(
        self,
        model: nn.Module,
        phases: Sequence[TrainingPhase],
        x: Tensor,
        labels: Tensor,
        *,
        noise: Noise,
        repetition: int = 0,
        loss: Loss = cross_entropy,
        augmentation: Augmentation | None = None,
        ema_decay: float | None = None,
        on_update: OnUpdate | None = None,
        shared_noise: str | None = None,
        after: Ran | None = None,
    ):
        self.model, self._phases = model, tuple(phases)
        self.x, self.labels = x, labels
        self.noise, self.repetition, self.shared_noise = noise, repetition, shared_noise
        self.loss, self.augmentation, self.on_update = loss, augmentation, on_update
        self.views = augmentation.views if augmentation else 1
        self.steps_done = self.steps_released = 0
        self.after = after
        self.first_step = sum(phase.steps for phase in after.phases) if after else 0
        # The repetition whose noise this training has claimed; a digest of its initial weights.
        self._claimed: int | None = None
        self._began_at: str | None = None
        self._structure: str | None = None
        self._skipped: int | Tensor = 0
        self._phase: int | None = None
        self._optimizer: Optimizer | None = None
        check_records(model, x, labels)
        for phase in self.phases:
            if phase.sampler.n != len(x):
                raise InputError(
                    "sampler", f"batches of {phase.sampler.n} records", f"of {len(x)}, the data's"
                )
        self.ema: dict[str, Tensor] | None = None
        self.ema_decay = ema_decay
        if after is not None:
            self._check_after(after)
        if ema_decay is not None:
            real(ge=0, lt=1).check("ema_decay", ema_decay)
            self.ema = {name: value.detach().clone() for name, value in model.named_parameters()}
        self._enter_phases()

    @property
    def phases(self) -> tuple[TrainingPhase, ...]:
        """All phases, as planned."""
        return self._phases

    @property
    def phases_run(self) -> tuple[TrainingPhase, ...]:
        """The phases up to the last step taken; a step counts as soon as its noisy sum exists."""
        remaining, phases = self.steps_released, []
        for phase in self.phases:
            steps = min(remaining, phase.steps)
            remaining -= steps
            if steps:
                phases.append(replace(phase, steps=steps))
        return tuple(phases)

    @property
    def ran(self) -> Ran:
        """The facts of this run that its ledger needs."""
        phases, before = self.phases_run, self.after
        texts = [*([before.mechanism] if before else ()), _mechanism(self.model, phases)]
        return Ran(
            mechanism="; then ".join(dict.fromkeys(texts)),
            phases=(*(before.phases if before else ()), *(phase.accounted for phase in phases)),
            max_grad_norm=(
                *(before.max_grad_norm if before else ()),
                *(phase.max_grad_norm for phase in phases),
            ),
            noise_source=self.noise.source,
            shared_noise=self.shared_noise,
        )

    def guarantee(
        self, delta: float | None = None, relation: str | None = None, accountant: str = "auto"
    ) -> Guarantee:
        """The guarantee of the steps taken; epsilon is infinite without noise.

        delta: None for `default_delta`. relation: None for add_remove where the samplers allow it,
        else replace_one. Raises InputError where samplers, relation and accountant do not fit.
        """
        return guarantee(self.ran.phases, *self._or_defaults(delta, relation), accountant)

    def ledger(
        self,
        delta: float | None = None,
        relation: str | None = None,
        *,
        chosen_on_private_data: Sequence[Mapping[str, Any]] | None = (UNTOLD,),
        **stated: Any,
    ) -> dict[str, Any]:
        """The ledger of the steps taken; `stated` is passed to `dpatlas.privacy.ledger.ledger`.

        delta, relation: as in `guarantee`. chosen_on_private_data: by default the ledger says that
        nobody stated how settings were chosen; None states that nothing was chosen on private data.
        The clip bound counts as public unless `stated` says otherwise.
        """
        delta, relation = self._or_defaults(delta, relation)
        return ledger(
            self.ran,
            delta=delta,
            relation=relation,
            chosen_on_private_data=chosen_on_private_data,
            **stated,
        )

    def _or_defaults(self, delta: float | None, relation: str | None) -> tuple[float, str]:
        if relation is None:
            before = self.after.phases if self.after else ()
            relation = default_relation([*before, *(phase.accounted for phase in self.phases)])
        return default_delta(len(self.x)) if delta is None else delta, relation

    @property
    def skipped_records(self) -> int:
        """Number of gradients that were not finite so far; on a GPU this waits for the steps."""
        return int(self._skipped)

    @property
    def steps(self) -> int:
        """Number of steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    def run(self, after_step: Callable[[int], None] | None = None) -> None:
        """Take the remaining steps; `after_step(steps done)` may save a checkpoint."""
        while self.steps_done < self.steps:
            self.step()
            if after_step is not None:
                after_step(self.steps_done)

    def step(self) -> None:
        """One private update."""
        number, phase = self.phase_at(self.steps_done)
        optimizer = self._optimizer
        if number != self._phase or optimizer is None:
            optimizer = self._start(number)
        if phase.noise_multiplier and self._claimed != self.repetition:
            self._claim()
        step = self.first_step + self.steps_done
        clipped = self._clipped_sum(phase, step)
        add_noise(
            clipped.gradients,
            phase.noise_multiplier * phase.max_grad_norm,
            self.noise,
            repetition=self.repetition,
            step=step,
        )
        self.steps_released = max(self.steps_released, self.steps_done + 1)
        self._skipped += clipped.skipped
        if self.on_update is not None:
            self.on_update(step, clipped.gradients)
        for gradient in clipped.gradients.values():
            gradient.div_(phase.sampler.expected_batch)
        optimizer.step(clipped.gradients)
        self._average()
        self.steps_done += 1

    def phase_at(self, step: int) -> tuple[int, TrainingPhase]:
        """The index of the phase that step `step` belongs to, and the phase."""
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                return number, phase
            step -= phase.steps
        raise InputError("step", self.steps_done, f"fewer than {self.steps}, the steps planned")

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts from which `restore` continues to the same bits."""
        parameters = dict(self.model.named_parameters())
        arrays = {
            f"weights/{name}": value.detach().cpu().numpy().copy()
            for name, value in parameters.items()
        }
        if self.ema is not None:
            arrays |= {f"ema/{name}": value.cpu().numpy() for name, value in self.ema.items()}
        if self._optimizer is not None:
            arrays |= {
                f"optimizer/{key}": value.cpu().numpy().copy()
                for key, value in self._optimizer.state.items()
            }
        facts = {
            "plan": self._plan(),
            "steps_done": self.steps_done,
            "steps_released": self.steps_released,
            "phase": self._phase,
            "optimizer_steps": self._optimizer.steps if self._optimizer else 0,
            "skipped_records": self.skipped_records,
            "repetition": self.repetition,
            "secret": self.noise.secret,
            "shared_noise": self.shared_noise,
            "began_at": self._began_at,
        }
        return arrays, facts

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state of the same run; InputError if it is of another model or plan.

        `max_physical_batch` may differ, which changes results only by rounding.
        """
        names = {name.removeprefix("weights/") for name in arrays if name.startswith("weights/")}
        parameters = dict(self.model.named_parameters())
        fits = names == set(parameters) and all(
            arrays[f"weights/{name}"].shape == value.shape for name, value in parameters.items()
        )
        averaged = any(name.startswith("ema/") for name in arrays)
        ours = all(facts[name] == getattr(self, name) for name in ("repetition", "shared_noise"))
        if not fits or not ours or averaged != (self.ema is not None):
            raise InputError("checkpoint", "a state of another run", "one of this model and run")
        self._check_plan(facts.get("plan"))
        with torch.no_grad():
            for name, value in parameters.items():
                value.copy_(torch.from_numpy(arrays[f"weights/{name}"]))
            for name, average in (self.ema or {}).items():
                average.copy_(torch.from_numpy(arrays[f"ema/{name}"]))
        self.noise.carry(facts["secret"])
        self._claimed, self._began_at = None, facts["began_at"]
        self.steps_done = facts["steps_done"]
        self.steps_released = facts["steps_released"]
        self._skipped = facts["skipped_records"]
        self._phase = None
        if facts["phase"] is not None:
            optimizer = self._start(facts["phase"])
            optimizer.steps = facts["optimizer_steps"]
            optimizer.state = {
                name.removeprefix("optimizer/"): torch.from_numpy(value.copy()).to(self.x.device)
                for name, value in arrays.items()
                if name.startswith("optimizer/")
            }

    def _plan(self) -> dict[str, Any]:
        """All settings of the steps as JSON values; a state is valid for one plan only."""
        return {
            "phases": [_phase_facts(phase) for phase in self.phases],
            "loss": getattr(self.loss, "__qualname__", type(self.loss).__name__),
            "augmentation": type(self.augmentation).__name__ if self.augmentation else None,
            "views": self.views,
            "ema_decay": self.ema_decay,
            "shared_noise": self.shared_noise,
            "first_step": self.first_step,
            "after": self.after.facts() if self.after else {},
        }

    def _check_plan(self, stored: Mapping[str, Any] | None) -> None:
        """InputError that names the first thing in which a state's plan differs from this one."""
        plan = self._plan()
        if stored == plan:
            return
        if stored is None:
            raise InputError("checkpoint", "a state without its phases", "one of this version")
        phases, others = stored["phases"], plan["phases"]
        if len(phases) == len(others):
            stored = {**stored, **_numbered(phases)}
            plan = {**plan, **_numbered(others)}
        name = next(name for name, value in plan.items() if stored.get(name) != value)
        if name == "phases":
            raise InputError("checkpoint", f"{len(phases)} phases", f"{len(others)}, as planned")
        found = f"a state of another plan: {name} {stored.get(name)!r}"
        raise InputError("checkpoint", found, f"{plan[name]!r}, as planned")

    def _check_after(self, after: Ran) -> None:
        """InputError unless this training can go on from one that did `after`."""
        if self.shared_noise is None or after.shared_noise != self.shared_noise:
            allowed = "one name for both, as others may go on from the same training"
            raise InputError("shared_noise", f"{after.shared_noise}, {self.shared_noise}", allowed)
        if self.ema_decay is not None:
            raise InputError("ema_decay", self.ema_decay, "none: the average begins with the run")
        if after.noise_source != self.noise.source:
            raise InputError("after", f"noise from {after.noise_source}", self.noise.source)
        for phase in after.phases:
            if phase.sampler.n != len(self.x):
                found = f"a training on {phase.sampler.n} records"
                raise InputError("after", found, f"one on the same {len(self.x)}")

    def _enter_phases(self) -> None:
        """Build the kernel of every phase, so that what cannot be trained is refused at once."""
        self._parameters: dict[str, nn.Parameter] = {}
        for number, phase in enumerate(self.phases):
            if phase.steps:
                self._start(number)
        self._phase = None

    def _start(self, number: int) -> Optimizer:
        phase = self.phases[number]
        for name, value in self.model.named_parameters():
            value.requires_grad_(any(belongs(name, prefix) for prefix in phase.trainable))
        self._parameters = {
            name: value for name, value in self.model.named_parameters() if value.requires_grad
        }
        if not self._parameters:
            names = ", ".join(
                sorted({name.split(".")[0] for name, _ in self.model.named_parameters()})
            )
            raise InputError("trainable", list(phase.trainable), f"prefixes among {names}")
        self.kernel = probed_kernel(
            self.model, self.loss, self.x, self.labels, self.augmentation, phase.clipping
        )
        self._constants = self.kernel.constants(self.x)
        self._optimizer = make_optimizer(
            phase.optimizer,
            self._parameters,
            lr=phase.lr,
            momentum=phase.momentum,
            weight_decay=phase.weight_decay,
            lr_decay=phase.lr_decay,
        )
        self._phase = number
        return self._optimizer

    def _claim(self) -> None:
        """Claim the noise of this repetition; InputError if another training has drawn it."""
        if self._began_at is None:
            self._began_at = initial_values(self.model)
        if self._structure is None:
            self._structure = fingerprint(type(self), self.model, self.loss, self.augmentation)
        start = (self._began_at, self.first_step)
        training = (self._structure, self.phases, self.x, self.labels, *start)
        self.noise.claim(self.repetition, fingerprint(training), self.shared_noise)
        self._claimed = self.repetition

    def _clipped_sum(self, phase: TrainingPhase, step: int) -> ClippedSum:
        x, labels, constants = self.x, self.labels, self._constants
        refuse_autocast(x.device)
        if not isinstance(phase.sampler, FullBatch):
            batch = phase.sampler.batch_indices(self.noise, self.repetition, step)
            indices = to_device(batch, x.device)
            x, labels = x.index_select(0, indices), labels.index_select(0, indices)
            constants = constants if constants is None else constants.index_select(0, indices)
        views = None
        if self.augmentation:
            draws = self.noise.generator(repetition=self.repetition, step=step, use="views")
            views = to_device(self.augmentation.draw(draws, len(x)), x.device)
        size = phase.max_physical_batch or max(1, len(x))
        # An empty batch is one chunk of no records.
        for start in range(0, max(1, len(x)), size):
            chunk = slice(start, start + size)
            rows, row_labels = x[chunk], labels[chunk]
            row_constants = constants if constants is None else constants[chunk]
            if self.augmentation and views is not None:
                rows = self.augmentation.apply(rows, views[chunk])
                row_labels = row_labels.repeat_interleave(self.views)
            part = self.kernel.clipped_sum(rows, row_labels, phase.max_grad_norm, row_constants)
            if start == 0:
                total = part
            else:
                total.add(part)
        return total

    def _average(self) -> None:
        if self.ema is None or self.ema_decay is None:
            return
        # A smaller decay at first: the initial weights would dominate for 1 / (1 - decay) steps.
        decay = min(self.ema_decay, (1 + self.steps_done) / (10 + self.steps_done))
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                self.ema[name].lerp_(value, 1 - decay)


def probed_kernel(
    model: nn.Module,
    loss: Loss,
    x: Tensor,
    labels: Tensor,
    augmentation: Augmentation | None = None,
    clipping: str = "flat",
) -> NetworkGradients | SoftmaxGradients:
    """`kernel_for` such data, probed (`dpatlas.privacy.probe`) with the loss and augmentation.

    x (n, ...), labels (n,): the probe uses only shapes, types and device; a check that the labels
    are valid for the cross-entropy uses their minimum and maximum.
    """
    views = augmentation.views if augmentation else 1
    refuse_unsafe_layers(model)
    kernel = kernel_for(model, loss, views, clipping)
    if isinstance(kernel, NetworkGradients):
        outputs = kernel.probe(x[:1], labels[:1], augmentation)
    else:

        def on_copy(model: nn.Module, loss: Loss) -> NetworkGradients | SoftmaxGradients:
            return kernel_for(model, loss, views, clipping)

        settings = (type(kernel), clipping)
        outputs = probe(Subject(model, loss, on_copy, x[:1], labels[:1], 1, augmentation, settings))
    check_labels(labels, outputs, loss)
    return kernel


def _phase_facts(phase: TrainingPhase) -> dict[str, Any]:
    """The settings of a phase that change more than rounding, as JSON values."""
    facts = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in vars(phase).items()
        if name != "max_physical_batch"
    }
    sampler = phase.sampler
    sampling = {"name": sampler.name, "n": int(sampler.n), "batch": int(sampler.batch)}
    return {**facts, "sampler": sampling, "trainable": list(phase.trainable)}


def _numbered(phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One entry for every setting of every phase instead of the entry "phases"."""
    settings = {
        f"{name} of phase {number}": value
        for number, phase in enumerate(phases, 1)
        for name, value in phase.items()
    }
    return {**settings, "phases": None}


def _mechanism(model: nn.Module, phases: Sequence[TrainingPhase]) -> str:
    """Update rule, clipping, and the trained parameters of which network, in words.

    Their number tells a head that is trained by itself from the network that it is a part of.
    """
    texts: dict[str, None] = {}
    everything = f"all {sum(value.numel() for value in model.parameters()):,} parameters"
    for phase in phases:
        private = "DP-SGD" if phase.noise_multiplier else "SGD without noise"
        rule = private.replace("SGD", "Adam") if phase.optimizer == "adam" else private
        names = [name or everything for name in phase.trainable]
        texts[f"{rule}, {phase.clipping} clipping, on {' and '.join(names)}"] = None
    taken = "; then ".join(texts) or "no step"
    return f"{taken} of {type(model).__name__}"


def kernel_for(
    model: nn.Module, loss: Loss, views: int = 1, clipping: str = "flat"
) -> NetworkGradients | SoftmaxGradients:
    """The closed form for a single linear layer under cross-entropy, else the general kernel."""
    layers = [
        (name, layer)
        for name, layer in model.named_modules()
        if type(layer).forward is not nn.Sequential.forward
    ]
    name, layer = layers[0] if layers else ("", model)
    plain = type(layer) is nn.Linear and "forward" not in vars(layer)
    # Hooks may change a layer's output, which the closed form would ignore.
    plain &= not any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )
    single = len(layers) == 1 and plain and loss is cross_entropy and views == 1
    if single and isinstance(layer, nn.Linear):
        return SoftmaxGradients(layer, f"{name}." if name else "")
    return NetworkGradients(model, loss, views, clipping)


def check_records(model: nn.Module, x: Tensor, labels: Tensor) -> None:
    """InputError for no records, labels that do not fit them, or tensors on several devices."""
    if len(x) == 0:
        raise InputError("data", "0 records", "at least one")
    if labels.shape != (len(x),) or labels.dtype != torch.int64:
        found = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise InputError("labels", found, f"torch.int64 of shape ({len(x)},)")
    for name, value in model.named_parameters():
        if value.device != x.device:
            raise InputError(f"parameter {name}", f"on {value.device}", f"{x.device}, as the data")
    if labels.device != x.device:
        raise InputError("labels", f"on {labels.device}", f"{x.device}, as the data")


def check_labels(labels: Tensor, outputs: int, loss: Loss) -> None:
    """InputError for labels outside of the `outputs` classes of the cross-entropy."""
    if loss is not cross_entropy:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= outputs:
        found = f"{low if low < 0 else high}"
        raise InputError("labels", found, f"whole numbers from 0 to {outputs - 1}")


def belongs(name: str, prefix: str) -> bool:
    """Whether `prefix` is a leading part of the parameter's dotted name; "" matches every name."""
    return prefix == "" or name == prefix or name.startswith(f"{prefix}.")
