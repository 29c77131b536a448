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

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from dpatlas.accounting.clip_bounds import AdaptiveClip, LayerBounds, StatedClip
from dpatlas.accounting.guarantees import (
    Guarantee,
    Phase,
    default_delta,
    default_relation,
    guarantee,
)
from dpatlas.accounting.ledger import UNTOLD, Ran, ledger
from dpatlas.accounting.parameter_names import belongs
from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.guard import checked, integer, real
from dpatlas.base.progress import EpsilonSoFar, Progress
from dpatlas.base.seeds import Noise, generator
from dpatlas.errors import InputError
from dpatlas.models.precision import exact, without_autocast
from dpatlas.privacy.augmentation import Augmentation, ShiftAndFlip, drawn_views
from dpatlas.privacy.data import FromDataset, InMemory, Located, data_of, refuse_held, rows_of
from dpatlas.privacy.digest import digest, values_of
from dpatlas.privacy.logistic import BLOCK, SoftmaxGradients
from dpatlas.privacy.losses import Loss, cross_entropy
from dpatlas.privacy.noise import device_generator, noisy_sum
from dpatlas.privacy.optimizers import Optimizer, Setting, make_optimizer, settings_by_name
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.phases import (
    SHOWN_SETTINGS,
    TrainingPhase,
    mechanism,
    numbered_facts,
    phase_facts,
    training_phases,
)
from dpatlas.privacy.plain_batch import refuse_meeting
from dpatlas.privacy.processes import Processes
from dpatlas.privacy.saved import are_trained, mark_trained, marks_of, remember_values, save_model
from dpatlas.privacy.sums import ClippedSum, NoisySum, added
from dpatlas.privacy.to_device import to_device
from dpatlas.privacy.trace import RecordGraph, trace_record, trace_views, tracing
from dpatlas.privacy.units import OneRecord, PersonsWithRecords, row_count

OnUpdate = Callable[[int, dict[str, Tensor]], None]
# Key of the released count of an adaptive clip bound; no parameter has a name with a space.
CLIP_COUNT = "clip count"
# About how many numbers of each tensor of a noisy sum tell it from another.
SHOWN_NUMBERS = 256
# Records, from the first to the last, by which processes see that they have the same.
SHOWN_RECORDS = 16
# The version whose steps have these bits: a checkpoint of another one is refused.
ENGINE = "0.2"
# Key of the projection that tells whether a record changed: "rows" in ASCII.
ROWS_KEY = 0x726F7773
# A guarantee is for a number of steps that was fixed before: 1,000 full batches (epsilon 4.38 at
# delta 1e-5) that stop where their sums look worst have 17 times the delta that they state.
STOPPED = (
    "stopped after {} of {} steps: this holds if nothing computed from the records decided when, "
    "noisy sums included; where noisy sums alone did, the epsilon of all planned steps holds"
)
EXTENDED = (
    "went on after the {} steps planned: this holds if nothing computed from the records decided "
    "that, noisy sums included"
)
FOLLOWED = (
    "started at weights of an earlier training, whose steps are not counted: if it was on the same "
    "records, what holds is the composition of both"
)


class PrivateTraining:
    """One private training of one model, through its phases.

    x: the records: a tensor or array (n, ...) on any device, also a memory-mapped one; a tuple or
    dict of them, for model(*inputs) or model(**inputs); or a map-style dataset of (input, target),
    of which only drawn items are read, by `workers` threads at a time if that is not 0.
    labels: the targets (n, ...), int64 (n,) for the cross-entropy; None where the loss needs none,
    and with a dataset.
    noise: source of batches, noise and augmentations; `repetition` numbers the trainings that use
    it.
    loss(outputs, labels): one number per record; it and the model are called once, here, on one
    record of fake tensors (`dpatlas.privacy.trace`). Each step runs the traced operations, so
    nothing that Python holds has an effect afterwards. Random numbers of the network (dropout) are
    keyed by record and step.
    augmentation: views of a record, whose gradients are averaged before the clip.
    ema_decay: of an exponential moving average of the weights, which costs no privacy; after t
    steps the decay is (1 + t) / (10 + t) if that is less.
    on_update(step, noisy sums by parameter): receives every privatised sum before the division, at
    the weights of the gradients, and under an `AdaptiveClip` its noisy count as "clip count": what
    an attacker inside the training would see. It must copy what it stores.
    shared_noise: names a comparison of different trainings that draw the same noise, of which then
    only one may be released (`SHARED_NOISE`). Without it, a second training on a used (noise,
    repetition) is refused at its first noisy step, unless it repeats the first one's bits.
    after: `ran` of another training of the same records, at whose last weights the model starts.
    Steps, batches and noise count on from there, and `ran`, `guarantee` and `ledger` cover both.
    Several trainings may continue the same one, so they need a `shared_noise`.
    groups: (n,) integers, the person of each record. Persons are then the unit of privacy:
    samplers draw them and count them as n, and the mean gradient over a person's records is
    clipped (`dpatlas.privacy.units`).
    isolate: train on each record alone a network whose outputs depend on the batch, which is
    refused otherwise.
    autocast: torch.bfloat16 for the products of passes; norms, sums and noise stay in float32.
    processes: a torch.distributed process group, in each of whose processes this training is made
    and run, on the same records and a model of the same values without a wrapper. Each computes a
    share of every batch, and the noise is added once (`dpatlas.privacy.processes`), from the first
    process's secret. `max_physical_batch` is per process, and the same in all.

    `lr_scale` multiplies all learning rates; set it only to what follows from weights, noisy sums
    and public records. `kernel` computes the clipped sums of the current phase. Parameters with
    requires_grad=False when this object is made stay frozen, unless a phase's `trainable` names
    them.

    Raises InputError for data that do not fit together, samplers of another n, labels out of
    range, a model on several devices, what cannot be traced of one record, and for `after` without
    the same source and shared name of its noise; at a step, for processes that differ.
    """

    @checked(repetition=integer(ge=0), workers=integer(ge=0))
    def __init__(
        self,
        model: nn.Module,
        phases: Sequence[TrainingPhase],
        x: Any,
        labels: Any = None,
        *,
        noise: Noise,
        repetition: int = 0,
        loss: Loss = cross_entropy,
        augmentation: Augmentation | None = None,
        ema_decay: float | None = None,
        on_update: OnUpdate | None = None,
        shared_noise: str | None = None,
        after: Ran | None = None,
        groups: Any = None,
        workers: int = 0,
        isolate: bool = False,
        autocast: torch.dtype | None = None,
        processes: Any = None,
    ):
        if not isinstance(noise, Noise):
            raise InputError("noise", repr(noise), "a dpatlas.privacy.Noise, such as Noise()")
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        self.model, self._phases = model, training_phases(phases)
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
        # Whether it began at weights that another training had left.
        self._follows = False
        # The steps planned before any was taken, and the factor of all learning rates.
        self._planned, self.lr_scale = self.steps, 1.0
        # Whether a step has moved the parameters of the phase.
        self._moved = False
        self._skipped: int | Tensor = 0
        self._phase: int | None = None
        # The model's parameters, and their requires_grad when this object was made.
        self._own = dict(model.named_parameters())
        self._gradients_wanted = {name: value.requires_grad for name, value in self._own.items()}
        self._optimizer: Optimizer | None = None
        # Clip bound of the current step, which an adaptive one moves.
        self._max_grad_norm = 0.0
        self.device = device_of(model)
        self.processes = None if processes is None else Processes(processes, self.device)
        # Whether all processes were seen to start at the same values, settings and noise.
        self._agreed = False
        if self.processes is not None:
            secret = self.processes.secret(noise.secret)
            if self.processes.rank:
                noise.carry(secret)
        self.data = data_of(x, labels, self.device, workers)
        if isinstance(self.data, InMemory):
            self.x, self.labels = x, labels = self.data.x, self.data.targets
        if loss is cross_entropy:
            check_classes(self.data.sample()[1] if labels is None else labels)
        if autocast not in (None, torch.bfloat16):
            raise InputError("autocast", autocast, "torch.bfloat16, or None for float32")
        self.isolate, self.autocast = isolate, autocast
        n = self.data.n
        self.units = OneRecord(n) if groups is None else PersonsWithRecords(groups, n)
        named = "records" if groups is None else "persons"
        for phase in self.phases:
            if phase.sampler.n != self.units.n:
                found = f"batches of {phase.sampler.n} {named}"
                raise InputError("sampler", found, f"of {self.units.n}, the data's")
        self.ema: dict[str, Tensor] | None = None
        self.ema_decay = ema_decay
        if after is not None:
            self._check_after(after)
        if ema_decay is not None:
            real(ge=0, lt=1).check("ema_decay", ema_decay)
            self.ema = {name: value.detach().clone() for name, value in model.named_parameters()}
        with tracing(), torch.inference_mode(False), without_autocast(self.device):
            self._trace()
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
        texts = [mechanism(self.model, phases, self._frozen)]
        rows: list[tuple[Phase, float, StatedClip | None]] = []
        if before:
            texts = [before.mechanism, *texts]
            rows += zip(before.phases, before.max_grad_norm, before.clips, strict=True)
        for phase in phases:
            for accounted, noise in phase.accounted_noises:
                clip = None
                if not isinstance(phase.clipping, str):
                    clip = StatedClip(phase.clipping, phase.max_grad_norm, noise)
                rows.append((accounted, phase.max_grad_norm, clip))
        return Ran(
            mechanism="; then ".join(dict.fromkeys(texts)),
            phases=tuple(accounted for accounted, _, _ in rows),
            max_grad_norm=tuple(bound for _, bound, _ in rows),
            clips=tuple(clip for _, _, clip in rows),
            noise_source=self.noise.source,
            shared_noise=self.shared_noise,
            persons=self.units.persons,
        )

    def guarantee(
        self, delta: float | None = None, relation: str | None = None, accountant: str = "auto"
    ) -> Guarantee:
        """The guarantee of the steps taken; epsilon is infinite without noise.

        delta: None for `default_delta`. relation: None for add_remove where the samplers allow it,
        else replace_one. Raises InputError where samplers, relation and accountant do not fit.
        """
        found = guarantee(self.ran.phases, *self._or_defaults(delta, relation), accountant)
        return replace(found, warnings=(*found.warnings, *self._reservations))

    def ledger(
        self,
        delta: float | None = None,
        relation: str | None = None,
        *,
        chosen_on_private_data: Sequence[Mapping[str, Any]] | None = (UNTOLD,),
        **stated: Any,
    ) -> dict[str, Any]:
        """The ledger of the steps taken; `stated` is passed to `dpatlas.accounting.ledger.ledger`.

        delta, relation: as in `guarantee`. chosen_on_private_data: by default the ledger says that
        nobody stated how settings were chosen; None states that nothing was chosen on private data.
        The clip bound counts as public unless `stated` says otherwise.
        """
        delta, relation = self._or_defaults(delta, relation)
        entries = ledger(
            self.ran,
            delta=delta,
            relation=relation,
            chosen_on_private_data=chosen_on_private_data,
            **stated,
        )
        entries["warnings"] += self._reservations
        entries["traced"] = self._traced()
        return entries

    def _traced(self) -> dict[str, Any]:
        """What the network and loss were made of when they were traced, and what still runs."""
        constants = self.record.constants if self.record else {}
        sees = {}
        if isinstance(self.data, FromDataset):
            sees[f"dataset {type(self.data.dataset).__name__}"] = "one record"
        if self.augmentation is not None:
            sees[f"draw of {type(self.augmentation).__name__}"] = "nothing"
        if self.on_update is not None:
            sees["on_update"] = "noisy sums"
        shapes = {name: list(value.shape) for name, value in constants.items() if value.dim()}
        return {
            "digest": self._network,
            "constants": shapes,
            "random_numbers_of_a_record": len(self.record.draws) if self.record else 0,
            "runs_at_each_step": [{"what": what, "sees": seen} for what, seen in sees.items()],
        }

    @property
    def _reservations(self) -> list[str]:
        """What a guarantee does not cover: steps of an earlier training, a stop that was chosen."""
        if not self.steps_released:
            # An epsilon of 0 is then no statement on the weights.
            trained = self.after is None and are_trained(list(self.model.parameters()))
            return [FOLLOWED] if trained else []
        if not all(each.noise_multiplier for each in self.ran.phases):
            return []
        said = []
        if self.steps_released < self.steps:
            said += [STOPPED.format(self.steps_released, self.steps)]
        if self.steps_released > self._planned:
            said += [EXTENDED.format(self._planned)]
        return [*said, FOLLOWED] if self._follows else said

    def _or_defaults(self, delta: float | None, relation: str | None) -> tuple[float, str]:
        if relation is None:
            before = self.after.phases if self.after else ()
            planned = [each for phase in self.phases for each in phase.accounted_phases]
            relation = default_relation([*before, *planned])
        return default_delta(self.units.n) if delta is None else delta, relation

    @property
    def skipped_records(self) -> int:
        """Number of gradients that were not finite so far, a private count; on a GPU this waits."""
        return int(self._skipped)

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that the phases train, by name."""
        return {
            name: value
            for name, value in self.model.named_parameters()
            if any(self._trains(phase, name) for phase in self.phases)
        }

    @property
    def steps(self) -> int:
        """Number of steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    def run(
        self, after_step: Callable[[int], None] | None = None, *, progress: bool = False
    ) -> None:
        """Take the remaining steps; `after_step(steps done)` may save a checkpoint.

        progress: report steps, time left and epsilon so far on stderr. The training loss is not
        shown: it is a function of the private records that carries no noise.
        """

        def epsilon() -> float:
            try:
                return self.guarantee().epsilon
            except InputError:
                # No accountant covers these phases: that is the ledger's to say, not a stop.
                return math.inf

        note = EpsilonSoFar(epsilon, lambda: self.steps_done)
        with Progress(self.steps, "training") if progress else nullcontext() as shown:
            while self.steps_done < self.steps:
                self.step()
                if after_step is not None:
                    after_step(self.steps_done)
                if shown is not None:
                    shown.reach(self.steps_done, note)
        self._remember()
        if self.processes is not None:
            self.processes.agree({"weights after the last step": values_of(self.model)})

    @checked(steps=integer(ge=1))
    def add_steps(self, steps: int) -> None:
        """Plan so many more steps of the last phase: they count in what follows, which says so.

        Raises InputError where a schedule of the phase ends.
        """
        last = self.phases[-1]
        longer = replace(last, steps=last.steps + steps)
        self._phases, self._agreed = (*self.phases[:-1], longer), False

    def _remember(self) -> None:
        """Note the values that the steps so far left: of what they trained, and its average."""
        left, phases = self.steps_done, []
        for phase in self.phases:
            if left > 0:
                phases.append(phase)
            left -= phase.steps
        for values in (self._own, self.ema or {}):
            remember_values(
                value
                for name, value in values.items()
                if any(self._trains(phase, name) for phase in phases)
            )

    def save(
        self,
        folder: Path | str,
        *,
        data: str | None = None,
        accuracy: str | None = None,
        config: Mapping[str, Any] | None = None,
        replace: bool = False,
        **stated: Any,
    ) -> dict[str, Any]:
        """Write weights, ledger and a card in words to a new folder; return the ledger.

        The weights are the averaged ones where there is an `ema_decay`, else the last iterate.
        data: its name. accuracy: in words, with what it was measured on; stated as given. config:
        JSON values from which the model can be built again. stated: passed to `ledger`. Raises
        InputError for a folder with files, unless `replace`.
        """
        self._remember()
        averaged = self.ema or {}
        weights = {**self.model.state_dict(), **averaged}
        words = "the average of the iterates" if averaged else "the last iterate"
        entries = self.ledger(**{"released": words, **stated})
        settings = {
            f"{name} of phase {number}": value
            for number, phase in enumerate(self.phases_run, 1)
            for name, value in phase_facts(phase).items()
            if name in SHOWN_SETTINGS
        }
        if averaged:
            settings["ema_decay"] = self.ema_decay
        save_model(
            folder,
            weights,
            entries,
            settings=settings,
            config=config,
            data=data,
            accuracy=accuracy,
            replace=replace,
        )
        return entries

    def step(self) -> None:
        """One private update."""
        self._refuse_other_parameters()
        self._agree()
        # Here too, so that where a script lets torch round, it is set once and not in every layer.
        with exact():
            self._step(*self.phase_at(self.steps_done))

    def _agree(self) -> None:
        """InputError where processes would not take the same step."""
        if self.processes is None or self._agreed:
            return
        n = self.data.n
        some = np.unique(np.linspace(0, n - 1, min(n, SHOWN_RECORDS)).astype(np.int64))
        kind = self.device.type
        facts = {
            "plan": self._plan(),
            # Of each process's share: it divides the same parts of a batch as the others do.
            "max_physical_batch": [phase.max_physical_batch for phase in self.phases],
            "records": digest(*self.data.take(some, to_device(some, self.device))),
            "noise": [self.noise.name, self.repetition],
            "clip bound": self._max_grad_norm,
            # Others draw other noise of the same key.
            "device": torch.cuda.get_device_name(self.device) if kind == "cuda" else kind,
            "steps done": self.steps_done,
            "weights": values_of(self.model),
        }
        self.processes.agree(facts)
        self._agreed = True

    @property
    def _frozen(self) -> list[str]:
        """Names of the parameters that had requires_grad=False at first, if that decides."""
        if not any("" in phase.trainable for phase in self.phases):
            return []
        return [name for name, wanted in self._gradients_wanted.items() if not wanted]

    def _trains(self, phase: TrainingPhase, name: str) -> bool:
        """Whether the phase trains the parameter: "" means those that were not frozen."""
        return any(
            belongs(name, prefix) if prefix else self._gradients_wanted.get(name, True)
            for prefix in phase.trainable
        )

    def _refuse_other_parameters(self) -> None:
        """InputError where the model has other parameters than those that were traced."""
        now = dict(self.model.named_parameters())
        if len(now) != len(self._own) or any(self._own.get(name) is not now[name] for name in now):
            allowed = "the same for all steps; change their values in place, or make a new training"
            raise InputError("model", "other parameters than when the training was made", allowed)

    def _step(self, number: int, phase: TrainingPhase) -> None:
        if self.steps_done == 0 and self.after is None:
            self._follows |= are_trained(list(self.model.parameters()))
        optimizer = self._optimizer
        if number != self._phase or optimizer is None:
            optimizer = self._start(number)
        noise_multiplier = phase.noise_at(optimizer.steps)
        adaptive = phase.clipping if isinstance(phase.clipping, AdaptiveClip) else None
        if noise_multiplier or adaptive:
            if self._claimed != self.repetition:
                self._claim()
            self.noise.check_process()
        step = self.first_step + self.steps_done
        bound = self._max_grad_norm
        clipped = self._clipped_sum(phase, bound, step)
        scale = noise_multiplier * bound
        noisy = noisy_sum(clipped, scale, self.noise, repetition=self.repetition, step=step)
        released = noisy.gradients
        if noise_multiplier:
            # Before anybody sees the sum.
            self.noise.added(self.repetition, step, _number_of(released), scale)
        if adaptive:
            count = self._noisy_count(clipped.norms, bound, adaptive.count_noise, step)
            released = {**released, CLIP_COUNT: torch.tensor([count], dtype=torch.float64)}
        self.steps_released = max(self.steps_released, self.steps_done + 1)
        self._skipped += clipped.skipped
        if self.on_update is not None:
            self.on_update(step, released)
        if adaptive:
            batch, first = phase.sampler.expected_batch, phase.max_grad_norm
            self._max_grad_norm = adaptive.after(bound, count, batch, first)
        if self.record is not None:
            self.record.update_buffers()
        self._update(optimizer, noisy.divided(phase.sampler.expected_batch))
        mark_trained(self._marks)
        self._average()
        self.steps_done += 1

    def _update(self, optimizer: Optimizer, noisy: NoisySum) -> None:
        """A step of the optimizer; InputError for a parameter that the first one left as it was.

        Of fewer than 32 bits alone: in float32 that takes a step of 1e-8 of the weights, as audits
        choose it.
        """
        before = {}
        if not self._moved and noisy.scale:
            before = {
                name: value.detach().clone()
                for name, value in self._parameters.items()
                if torch.finfo(value.dtype).bits < 32
            }
            self._moved = not before
        optimizer.step(noisy)
        for name, value in before.items():
            rate = optimizer.size(optimizer.settings[name].lr, optimizer.steps - 1)
            if rate and value.numel() and torch.equal(value, self._parameters[name]):
                found = "unmoved by a step, although noise was added to its gradient"
                allowed = "a learning rate that its type can show"
                raise InputError(f"parameter {name}", found, allowed)
            self._moved |= bool(rate)

    def _noisy_count(self, norms: Tensor, bound: float, count_noise: float, step: int) -> float:
        """The released number of gradients within the bound, less half the batch."""
        count = int((norms <= bound).sum()) - len(norms) / 2
        if self.processes is not None:
            count = self.processes.total(count)
        draws = self.noise.normal(1, repetition=self.repetition, step=step, use=CLIP_COUNT)
        return count + count_noise * float(draws[0])

    def phase_at(self, step: int) -> tuple[int, TrainingPhase]:
        """The index of the phase that step `step` belongs to, and the phase."""
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                return number, phase
            step -= phase.steps
        raise InputError("step", self.steps_done, f"fewer than {self.steps}, the steps planned")

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts from which `restore` continues to the same bits."""
        self._remember()
        held = self._held()
        if self._optimizer is not None:
            held["optimizer"] = self._optimizer.state
        arrays = {
            f"{kind}/{name}": array_of(value)
            for kind, values in held.items()
            for name, value in values.items()
        }
        facts = {
            "plan": self._plan(),
            "steps_done": self.steps_done,
            "steps_released": self.steps_released,
            "phase": self._phase,
            "optimizer_steps": self._optimizer.steps if self._optimizer else 0,
            "max_grad_norm": self._max_grad_norm if self._optimizer else None,
            "skipped_records": self.skipped_records,
            "repetition": self.repetition,
            "secret": self.noise.secret,
            "noise": self.noise.name,
            "shared_noise": self.shared_noise,
            "began_at": self._began_at,
            "follows": self._follows,
            "planned": self._planned,
            "lr_scale": self.lr_scale,
        }
        return arrays, facts

    def _held(self) -> dict[str, Mapping[str, Tensor]]:
        """What a state holds of model and average, by the beginning of its arrays' names."""
        return {
            "weights": dict(self.model.named_parameters()),
            # What the network moves at each call is part of what a step computes.
            "buffers": self.record.buffers if self.record else {},
            "ema": self.ema or {},
        }

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state of the same run; InputError if it is of another model or plan.

        `max_physical_batch` may differ, which changes results only by rounding.
        """
        names = {name.removeprefix("weights/") for name in arrays if name.startswith("weights/")}
        held = self._held()
        parameters = held["weights"]
        fits = names == set(parameters) and all(
            arrays[f"weights/{name}"].shape == value.shape for name, value in parameters.items()
        )
        averaged = any(name.startswith("ema/") for name in arrays)
        ours = all(facts[name] == getattr(self, name) for name in ("repetition", "shared_noise"))
        if not fits or not ours or averaged != (self.ema is not None):
            raise InputError("checkpoint", "a state of another run", "one of this model and run")
        self._check_plan(facts.get("plan"))
        if self.steps_released and facts.get("noise") != self.noise.name:
            # Both would be counted as the same steps.
            found = f"a state with other noise, after {self.steps_released} steps of this training"
            raise InputError("checkpoint", found, "one of the same noise, or a new training")
        self.noise.carry(facts["secret"])
        with torch.no_grad():
            for kind, values in held.items():
                for name, value in values.items():
                    value.copy_(tensor_of(arrays[f"{kind}/{name}"], value))
        self._claimed, self._began_at, self._agreed = None, facts["began_at"], False
        self._follows = facts.get("follows", False)
        self._planned = facts.get("planned", self._planned)
        self.lr_scale = facts.get("lr_scale", 1.0)
        self.steps_done = facts["steps_done"]
        # What this object has released already stays released.
        self.steps_released = max(self.steps_released, facts["steps_released"])
        self._skipped = facts["skipped_records"]
        self._phase = None
        if facts["phase"] is not None:
            optimizer = self._start(facts["phase"])
            optimizer.steps = facts["optimizer_steps"]
            self._max_grad_norm = facts["max_grad_norm"]
            optimizer.state = {
                name.removeprefix("optimizer/"): torch.from_numpy(value.copy()).to(self.device)
                for name, value in arrays.items()
                if name.startswith("optimizer/")
            }
        self._remember()

    def _plan(self) -> dict[str, Any]:
        """All settings of the steps as JSON values; a state is valid for one plan only."""
        return {
            "engine": ENGINE,
            "phases": [phase_facts(phase) for phase in self.phases],
            # Before the network, whose graph the loss is part of: the first difference is named.
            "loss": loss_name(self.loss),
            "network": self._network,
            "augmentation": self._augmented,
            "views": self.views,
            "ema_decay": self.ema_decay,
            "shared_noise": self.shared_noise,
            "first_step": self.first_step,
            "groups": self.units.facts(),
            "after": self.after.facts() if self.after else {},
            "records": self._records,
            **({"frozen": self._frozen} if self._frozen else {}),
        }

    @cached_property
    def _network(self) -> str:
        """What is computed of a record: the digest of its graph, or of the closed form."""
        if self.record is not None:
            return self.record.digest[:16]
        shapes = [(name, tuple(value.shape), str(value.dtype)) for name, value in self._own.items()]
        return f"softmax regression {digest(shapes)[:16]}"

    @cached_property
    def _augmented(self) -> str | None:
        """How views are made."""
        if self.augmentation is None:
            return None
        settings = {k: v for k, v in vars(self.augmentation).items() if not callable(v)}
        return f"{type(self.augmentation).__name__} {digest(settings)[:16]} {self._views_digest}"

    @cached_property
    def _records(self) -> str | None:
        """Digest of the records as they were when a state was first made or restored."""
        return self.data.digest()

    def _check_plan(self, stored: Mapping[str, Any] | None) -> None:
        """InputError that names the first thing in which a state's plan differs from this one."""
        plan = self._plan()
        if stored == plan:
            return
        if stored is None or stored.get("engine") != ENGINE:
            version = (stored or {}).get("engine", "0.1 or earlier")
            found = f"a state that version {version} wrote, whose steps have other bits"
            raise InputError("checkpoint", found, f"one of version {ENGINE}")
        phases, others = stored["phases"], plan["phases"]
        if len(phases) == len(others):
            stored = {**stored, **numbered_facts(phases)}
            plan = {**plan, **numbered_facts(others)}
        name = next(name for name in {**plan, **stored} if stored.get(name) != plan.get(name))
        if name == "phases":
            raise InputError("checkpoint", f"{len(phases)} phases", f"{len(others)}, as planned")
        found = f"a state of another plan: {name} {stored.get(name)!r}"
        raise InputError("checkpoint", found, f"{plan.get(name)!r}, as planned")

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
            if phase.sampler.n != self.units.n or after.persons != self.units.persons:
                unit = "persons" if after.persons else "records"
                found = f"a training on {phase.sampler.n} {unit}"
                raise InputError("after", found, f"one on the same {self.units.n}")

    def _enter_phases(self) -> None:
        """Build the kernel of every phase, so that what cannot be trained is refused at once."""
        self._parameters: dict[str, nn.Parameter] = {}
        for number, phase in enumerate(self.phases):
            if phase.steps:
                self._start(number)
        self._phase = None

    def _start(self, number: int) -> Optimizer:
        phase = self.phases[number]
        self._parameters = {
            name: value for name, value in self._own.items() if self._trains(phase, name)
        }
        if not self._parameters:
            self._refuse_nothing_trained(phase)
        self._marks = marks_of(self._parameters.values())
        if number not in self._kernels:
            self._kernels[number] = self._kernel_of(phase)
        self.kernel = self._kernels[number]
        self._max_grad_norm = phase.max_grad_norm
        self._constants = self._constants_of = None
        # A GPU's host would have to wait to see whether records changed.
        held = self.data.on_device and self.device.type == "cpu"
        if self.units.persons is None and held and self.augmentation is None:
            self._constants = self.kernel.constants(self.x)
        if self._constants is not None:
            self._constants_of = torch.cat([_digest_of_rows(rows) for rows in self.x.split(BLOCK)])
        self._moved = False
        default = Setting(phase.lr, phase.weight_decay)
        self._optimizer = make_optimizer(
            phase.optimizer,
            self._parameters,
            settings_by_name(self._parameters, default, phase.parameter_groups),
            lambda lr, step: self.lr_scale * self.phases[number].step_size(lr, step),
            phase.momentum,
        )
        self._phase = number
        return self._optimizer

    def _refuse_nothing_trained(self, phase: TrainingPhase) -> NoReturn:
        """InputError that says why the phase trains no parameter."""
        if not self._gradients_wanted:
            raise InputError("model", "no parameters", "a network with some")
        if "" in phase.trainable:
            allowed = "some with requires_grad=True, or their names in `trainable`"
            raise InputError("model", "requires_grad=False in all parameters", allowed)
        names = ", ".join(sorted({name.split(".")[0] for name in self._gradients_wanted}))
        raise InputError("trainable", list(phase.trainable), f"prefixes among {names}")

    def _trace(self) -> None:
        """Trace the loss of one record, and its views, once for all phases and before any noise."""
        self.record: RecordGraph | None = None
        self._kernels: dict[int, NetworkGradients | SoftmaxGradients] = {}
        # The views of records, those of each one consecutively; and a digest of how they are made.
        self._views_of: Callable[[Tensor, Tensor], Tensor] | None = None
        self._views_digest = ""
        x, target = self.data.sample()
        held = dict(self.model.named_buffers()) | {
            name: value.data for name, value in self._own.items()
        }
        refuse_held(self.data, held)
        if self.augmentation is not None:
            if not isinstance(x, Tensor):
                found = f"{type(self.augmentation).__name__} of several tensors"
                raise InputError("augmentation", found, "None, or records that are one tensor")
            x = self._trace_views(x)
        closed = closed_form(self.model, self.loss) and self.augmentation is None
        closed &= self.units.persons is None
        if closed:
            weight = next(iter(self._own.values()))
            kind = weight.shape[1:], weight.dtype
            closed = isinstance(x, Tensor) and (x.shape[1:], x.dtype) == kind
        if closed and all(isinstance(_clipping_of(phase), str) for phase in self.phases):
            outputs = next(iter(self._own.values())).shape[0]
        else:
            self.record = trace_record(self.model, self.loss, x, target, self.autocast)
            refuse_held(self.data, self.record.origins)
            if not self.isolate:
                refuse_meeting(self.model, self.loss, self.record, x, target)
            outputs = self.record.outputs
        if self.data.targets is not None:
            check_labels(target if self.labels is None else self.labels, outputs, self.loss)

    def _trace_views(self, x: Tensor) -> Tensor:
        """Trace how a record's views are made; gives one of them, without its numbers."""
        augmentation = self.augmentation
        assert augmentation is not None
        one, other = (drawn_views(augmentation, generator(ROWS_KEY), 1) for _ in range(2))
        if not torch.equal(one, other):
            where = f"augmentation ({type(augmentation).__name__})"
            allowed = "views by `draws` alone, whatever was drawn before"
            raise InputError(where, "two results of `draw` for the same numbers", allowed)
        parameters = to_device(one, self.device)
        if type(augmentation) is ShiftAndFlip and not vars(augmentation).keys() & {"draw", "apply"}:
            self._views_of = augmentation.apply
            return torch.empty_like(x[:1])
        views_of = trace_views(augmentation.apply, x[:1], parameters)
        refuse_held(self.data, views_of.graph.origins)
        made = views_of(torch.zeros_like(x[:1]), parameters)
        if len(made) != self.views:
            where = f"augmentation ({type(augmentation).__name__})"
            raise InputError(where, f"{len(made)} views of one record", f"{self.views}, as it says")
        self._views_of, self._views_digest = views_of, views_of.graph.digest[:16]
        return torch.empty_like(made[:1])

    def _kernel_of(self, phase: TrainingPhase) -> NetworkGradients | SoftmaxGradients:
        clipping, names = _clipping_of(phase), list(self._parameters)
        if self.record is None:
            layer, prefix = single_layer(self.model)
            return SoftmaxGradients(layer, prefix, names)
        return NetworkGradients(
            self.model,
            self.loss,
            self.views,
            clipping,
            record=self.record,
            trained=names,
            autocast=self.autocast,
        )

    def _claim(self) -> None:
        """Claim the noise of this repetition; InputError if another training has drawn it."""
        if self._began_at is None:
            self._began_at = values_of(self.model)
        start = (self._began_at, self.first_step)
        records = (self.data.identity(), self.units.facts())
        phases = [phase_facts(phase) for phase in self.phases]
        training = (self._network, self._augmented, phases, *records, *start, self._frozen)
        self.noise.claim(self.repetition, digest(training), self.shared_noise)
        self._claimed = self.repetition

    def _clipped_sum(self, phase: TrainingPhase, bound: float, step: int) -> ClippedSum:
        device = self.device
        drawn = None
        if not isinstance(phase.sampler, FullBatch):
            drawn = phase.sampler.batch_indices(self.noise, self.repetition, step)
        limit = phase.max_physical_batch
        if limit and self.processes is not None:
            limit *= self.processes.count
        chunks = list(self.units.chunks(drawn, limit))
        views = None
        if self.augmentation:
            draws = self.noise.generator(repetition=self.repetition, step=step, use="views")
            count = sum(row_count(rows) for _, rows in chunks)
            views = to_device(drawn_views(self.augmentation, draws, count), device)

        def parts() -> Iterator[ClippedSum]:
            stop = 0
            for size, rows in chunks:
                start, stop = stop, stop + row_count(rows)
                if self.processes is not None:
                    before, rows = self.processes.share(size, rows)
                    start += before
                where = rows if isinstance(rows, slice) else to_device(rows, device)
                x, labels = self.data.take(rows, where)
                constants = self._constants_at(where, x)
                if self._views_of is not None and views is not None:
                    if len(x):
                        x = self._views_of(x, views[start : start + len(x)])
                    labels = pytree.tree_map_only(
                        Tensor, lambda each: each.repeat_interleave(self.views, 0), labels
                    )
                kernel = self.kernel
                if isinstance(kernel, NetworkGradients):
                    kernel = kernel.with_rows(size * self.views)
                yield kernel.clipped_sum(x, labels, bound, constants, self._draws_of(rows, step))

        total = added(parts())
        if self.processes is not None:
            self.processes.add(total, step)
        return total

    def _draws_of(self, rows: Any, step: int) -> Callable[[int, int], list[Tensor]] | None:
        """The random numbers of the network for some of these rows, keyed by record and step."""
        if self.record is None or not self.record.draws:
            return None
        wanted = self.record.draws
        of_rows = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()

        def of_view(at: int) -> list[Tensor]:
            record, view = divmod(at, self.views)
            key = self.noise.key(self.repetition, step, "network", f"{of_rows[record]} {view}")
            source = device_generator(key, self.device)
            return [draw.numbers(self.device, generator=source) for draw in wanted]

        def draws(start: int, stop: int) -> list[Tensor]:
            return list(map(torch.stack, zip(*map(of_view, range(start, stop)), strict=True)))

        return draws

    def _constants_at(self, where: Located, x: Tensor) -> Tensor | None:
        """The kernel's constants of the rows x; None where it has none, or x are others by now.

        Torch does not see what is written to records through `.data` or `.numpy()`.
        """
        if self._constants is None or self._constants_of is None:
            return None
        if not torch.equal(rows_of(self._constants_of, where), _digest_of_rows(x)):
            return None
        return rows_of(self._constants, where)

    def _average(self) -> None:
        if self.ema is None or self.ema_decay is None:
            return
        # A smaller decay at first: the initial weights would dominate for 1 / (1 - decay) steps.
        decay = min(self.ema_decay, (1 + self.steps_done) / (10 + self.steps_done))
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                self.ema[name].lerp_(value, 1 - decay)


def array_of(value: Tensor) -> np.ndarray:
    """A copy as an array; of bfloat16, which numpy has not, the bits."""
    host = value.detach().cpu()
    host = host.view(torch.int16) if host.dtype == torch.bfloat16 else host
    array: np.ndarray = host.numpy().copy()
    return array


def tensor_of(array: np.ndarray, like: Tensor) -> Tensor:
    """The tensor of `array_of`, of the type of `like`."""
    value = torch.from_numpy(array)
    return value.view(torch.bfloat16) if like.dtype == torch.bfloat16 else value


def _number_of(sums: Mapping[str, Tensor]) -> Any:
    """A complex number in which a change of the sums shows; on a GPU a tensor: no host waits."""
    total: Any = 0.0
    for value in sums.values():
        part: Any = value.detach().reshape(-1)
        part = part[:: max(1, part.shape[0] // SHOWN_NUMBERS)].double()
        # Gradients by class sum to 0: all alike, their sum would show nothing.
        weights: Any = _weights(part.shape[0], part.device)
        on_host = part.device.type == "cpu"
        total += part.numpy() @ weights if on_host else part.to(weights.dtype) @ weights
    return total


@functools.lru_cache(maxsize=64)
def _weights(count: int, device: torch.device) -> Any:
    angles = torch.arange(count, dtype=torch.float64, device=device)
    weights = torch.polar(torch.ones_like(angles), angles)
    return weights.numpy() if device.type == "cpu" else weights


def _clipping_of(phase: TrainingPhase) -> str | LayerBounds:
    """How records are clipped, at whatever bound."""
    return "flat" if isinstance(phase.clipping, AdaptiveClip) else phase.clipping


def _digest_of_rows(x: Tensor) -> Tensor:
    """A number for each row of x (rows, d), in which a change of the row shows; it is private.

    The last rows are taken within four, as all others are: alone, torch adds them up otherwise.
    """
    x, projection = x.detach(), _projection(x.shape[1]).to(x)
    alone = x.shape[0] % 4
    if not alone or x.shape[0] < 4:
        return torch.mv(x, projection)
    return torch.cat([torch.mv(x[:-alone], projection), torch.mv(x[-4:], projection)[-alone:]])


@functools.cache
def _projection(width: int) -> Tensor:
    return torch.from_numpy(generator(ROWS_KEY).standard_normal(width))


def loss_name(loss: Loss) -> str:
    """By which a plan knows a loss: a function's name, or a dataclass with its settings."""
    if is_dataclass(loss) and not isinstance(loss, type):
        return repr(loss)
    return str(getattr(loss, "__qualname__", type(loss).__name__))


def single_layer(model: nn.Module) -> tuple[nn.Linear, str]:
    """The one linear layer of a network that `closed_form` holds for; the prefix of its names."""
    name, layer = next((n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear))
    return layer, f"{name}." if name else ""


def closed_form(model: nn.Module, loss: Loss) -> bool:
    """Whether the network is one plain linear layer under the cross-entropy."""
    layers = [
        layer
        for _, layer in model.named_modules(remove_duplicate=False)
        # TorchScript's classes have no such attribute.
        if getattr(type(layer), "forward", None) is not nn.Sequential.forward
        or "forward" in vars(layer)
    ]
    plain = len(layers) == 1 and type(layers[0]) is nn.Linear and "forward" not in vars(layers[0])
    # Numbers of 16 bits are added up in float32, which the traced graph does.
    plain = plain and all(value.itemsize >= 4 for value in model.parameters())
    # Hooks may change a layer's output, which the closed form would ignore.
    return (plain and loss is cross_entropy) and not any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )


def device_of(model: nn.Module) -> torch.device:
    """The device of all parameters; InputError for several, and for parameters without values."""
    devices = {name: value.device for name, value in model.named_parameters()}
    first = next(iter(devices.values()), torch.device("cpu"))
    for name, device in devices.items():
        if device.type == "meta":
            raise InputError(f"parameter {name}", f"on {device}", "cpu or a GPU")
        if device != first:
            raise InputError(f"parameter {name}", f"on {device}", f"{first}, as the others")
    return first


def check_classes(targets: Any) -> None:
    """InputError for what the cross-entropy does not take: none, or other than int64 (n,)."""
    if not isinstance(targets, Tensor | np.ndarray):
        found = "none" if targets is None else type(targets).__name__
        raise InputError("labels", found, "torch.int64 for the cross-entropy, or another loss")
    if targets.ndim != 1 or str(targets.dtype).removeprefix("torch.") != "int64":
        found = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise InputError("labels", found, f"torch.int64 of shape ({len(targets)},)")


def check_labels(labels: Any, outputs: int, loss: Loss) -> None:
    """InputError for labels outside of the `outputs` classes of the cross-entropy."""
    if loss is not cross_entropy:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= outputs:
        found = f"{low if low < 0 else high}"
        raise InputError("labels", found, f"whole numbers from 0 to {outputs - 1}")
