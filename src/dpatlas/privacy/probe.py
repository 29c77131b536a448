"""A check that what a record adds to a clipped sum depends on no other record.

Accounting assumes it, and layers, losses or augmentations that look across a batch break it. So
before a kernel reads a record, synthetic ones go through a copy of the network, with the real loss,
augmentation, views and shapes: one by one and in several batches (all, in another order, with one
removed, with one replaced; with duplicates and offsets up to 1e6). For a small clip bound C and for
one that clips nothing, the clipped sum of a batch must equal the sum over its records alone; where
nothing is clipped, it must also equal autograd's gradient of the summed losses, and no record may
add more than its norm. The same holds with records that have missing values, padding or labels to
be ignored, as far as the network takes them, in a batch of 32 to 256 of all these, and with a few
numbers that stand in the network's or the loss's own code in the place of some entries. Gradients,
parameters, buffers, attributes and global generators must not change. What fails is refused by
name.

The copy is in float64, where equality means a relative error of 1e-5; a network that only works in
its own precision is compared in that, to 1e-3. Its weights are moved at random, because zero
weights would hide a dependence.
"""

import copy
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpatlas.core.seeds import generator
from dpatlas.errors import InputError
from dpatlas.privacy.augmentation import Augmentation, drawn_views
from dpatlas.privacy.clipping import ClippedSum
from dpatlas.privacy.fingerprint import fingerprint, numbers_in
from dpatlas.privacy.kept_state import (
    hooks_of_all,
    nothing_else_changed,
    refuse_changes,
    refuse_set_by_records,
    state_of,
    state_of_both,
    unchanged,
)
from dpatlas.privacy.rules import Unsupported
from dpatlas.privacy.structured import Structured
from dpatlas.privacy.synthetic import (
    TARGETS,
    calm_records,
    gap_values,
    padded,
    synthetic_labels,
    synthetic_records,
    unusual_labels,
    with_gap,
    with_gaps,
)

# A module's inputs and outputs: a list of tensors for each pass.
Passage = tuple[list[list[Tensor]], list[list[Tensor]]]
# A clipped sum by parameter, and the norms of its records.
Contribution = tuple[dict[str, Tensor], Tensor]

# Relative to what is compared: float64 rounding, amplified by an offset of 1e6, is far below.
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}
# A bound that clips no gradient of a synthetic record.
NO_CLIP = 1e30
# Clip bound relative to the median gradient norm, small enough to clip nearly every record.
CLIPPED_SHARE = 1e-2
# A parameter's gradient is compared down to this share of the whole gradient: below is rounding.
NOTHING = 1e-7
# A record's numbers are perturbed by about so many units in the last place, somewhat more than a
# product loses, to see what rounding does to its gradient. A difference between a batch and its
# records that rounding explains is no mixing, up to this share of a record's own gradient.
PERTURBATION, MOST_ROUNDING = 16, 0.01
# Records of the largest batch: as many as have WORK numbers together, in inputs and gradients.
LEAST, MOST, WORK = 32, 256, 2**20
# Standard deviation of the change of the weights, relative to their root mean square.
WEIGHT_NOISE = 0.5
# Key of the generator: "probe" in ASCII.
KEY = 0x70726F6265
# Number of passed probes whose fingerprints are cached.
CACHE_SIZE = 64

Loss = Callable[[Tensor, Tensor], Tensor]


class Mismatch(Unsupported):
    """Gradients that are not what autograd finds, of a network in which no records meet."""


class Kernel(Protocol):
    """A way to compute clipped sums of per-record gradients."""

    def clipped_sum(self, x: Tensor, labels: Tensor, max_grad_norm: float) -> ClippedSum:
        """The sum over the records of x."""


@dataclass(frozen=True)
class Subject:
    """The network, loss and data types to probe, and how a kernel is built on a copy.

    x (records, ...) and labels (records, ...): only shapes, types and device of a record are used.
    views: rows of x per record, where no augmentation makes them. settings: whatever else
    determines how the kernel computes.
    """

    model: nn.Module
    loss: Loss
    kernel_of: Callable[[nn.Module, Loss], Kernel]
    x: Tensor
    labels: Tensor
    views: int = 1
    augmentation: Augmentation | None = None
    settings: tuple[Any, ...] = ()


def probe(subject: Subject) -> int:
    """Refuse what makes records depend on each other; return the size of a record's output.

    The result is cached for subjects that differ only in the values of weights. Raises InputError
    that names the layer, the loss, the augmentation or the parameter.
    """
    refuse_half_precision(subject.model, subject.x.device)
    key = _key(subject)
    outputs = _passed.get(key)
    if outputs is None:
        outputs = _Probe(subject).run()
        _passed[key] = outputs
        while len(_passed) > CACHE_SIZE:
            _passed.popitem(last=False)
    return outputs


def refuse_half_precision(model: nn.Module, device: torch.device) -> None:
    """InputError for autocast, and for trainable parameters in less than float32.

    Rounding each record's clipped gradient to so few digits would exceed the clip bound.
    """
    refuse_autocast(device)
    for name, value in model.named_parameters():
        if value.requires_grad and value.dtype not in TOLERANCES:
            raise InputError(f"parameter {name}", str(value.dtype), "float32 or float64")


def refuse_autocast(device: torch.device) -> None:
    """InputError where autocast is on."""
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
        raise InputError("autocast", f"on, to {dtype}", "off: the clip bound holds in float32")


def losses_of(model: Callable[[Tensor], Tensor], loss: Loss, x: Tensor, labels: Tensor) -> Tensor:
    """The loss of each row of x; InputError for a result of another shape."""
    losses = loss(model(x), labels)
    if losses.shape != (len(x),):
        found = f"a result of shape {tuple(losses.shape)} for {len(x)} records"
        allowed = "one value a record (reduction='none', then a mean over each record's own values)"
        raise InputError("loss", found, allowed)
    return losses


class _Probe:
    """One probe: a copy of the network, synthetic records, and the comparisons."""

    def __init__(self, subject: Subject):
        self.subject = subject
        augmentation = subject.augmentation
        self.views = augmentation.views if augmentation else subject.views
        self.draws = generator(KEY)
        self.precision = torch.float64

    def run(self) -> int:
        """The size of a record's output, if nothing is refused."""
        subject = self.subject
        with nothing_else_changed(subject.model):
            try:
                outputs = self._in(torch.float64)
            except InputError:
                raise
            except Exception:  # a user's network may raise anything
                # A network or a loss may hold constants in its own precision.
                real = subject.x.is_floating_point()
                outputs = self._in(subject.x.dtype if real else torch.float32)
            self._refuse_hidden_half_precision()
        return outputs

    def _in(self, precision: torch.dtype) -> int:
        self.precision, self.tolerance = precision, TOLERANCES[precision]
        self.draws = generator(KEY)
        # Tensors that gradients of the last pass reached, beside the network's.
        self._leaves: list[Tensor] = []
        self._sensitivities: dict[int, float] = {}
        self.model, self.loss = self._copies(self.draws)
        self.kernel = self.subject.kernel_of(self.model, self.loss)
        self.rows = self._rows()
        fresh = state_of_both(self.model, self.loss)
        with torch.no_grad():
            output = self._called("model", lambda: self.model(torch.cat(self.rows)))
        count = sum(map(len, self.rows))
        if len(output) != count:
            raise InputError("model", f"{len(output)} outputs for {count} records", "one a record")
        self._called("loss", lambda: self._choose_labels(output))
        first, usual = state_of_both(self.model, self.loss), len(self.rows)
        outputs = output.shape[-1] if output.dim() > 1 else 1
        self._compare()
        refuse_changes(first, state_of_both(self.model, self.loss))
        everyone = range(usual)
        # What a pass keeps of its first record is the same after [0, 0, ...].
        again, *others = (
            partial(self._after_first_pass, batch) for batch in (everyone, [0] * usual, [1] * usual)
        )
        refuse_set_by_records(fresh, first, again, others)
        return outputs

    def _after_first_pass(self, records: Sequence[int]) -> dict[str, str]:
        """The state of new copies after a pass over these records."""
        model, loss = self._copies(generator(KEY))
        with torch.no_grad():
            self._called("model", lambda: losses_of(model, loss, *self._batch(records)))
        return state_of_both(model, loss)

    def _copies(self, draws: np.random.Generator) -> tuple[nn.Module, Loss]:
        """The network with weights moved by `draws`, and the loss, in the probe's precision."""
        loss = _copied(self.subject.loss)
        if isinstance(loss, nn.Module):
            loss = loss.to(self.precision)
        try:
            model = copy.deepcopy(self.subject.model)
        except Exception as error:
            name, remedy = _computed_weight(self.subject.model)
            if name:
                found = f"weights that are computed before a call: {name}"
                raise InputError("model", found, remedy) from None
            found = f"no copy can be made: {_line(error)}"
            raise InputError("model", found, "a model that copy.deepcopy takes") from None
        model.to(self.precision)
        with torch.no_grad():
            for value in model.parameters():
                value.grad = None
                spread = float(value.double().square().mean().sqrt()) if value.numel() else 0.0
                spread = spread or max(1, value[0].numel() if value.dim() > 1 else 1) ** -0.5
                moved = torch.from_numpy(draws.standard_normal(tuple(value.shape)))
                value.add_(WEIGHT_NOISE * spread * moved.to(value))
        return model, loss

    def _rows(self) -> list[Any]:
        """Synthetic records as the network sees them: each (rows of a record, ...)."""
        weights = sum(value.numel() for value in self.model.parameters())
        records = synthetic_records(
            self.subject.x, self.subject.views, weights, self.draws, self.precision
        )
        if self.subject.augmentation is None:
            return records
        augmentation = _copied(self.subject.augmentation)
        rows = self._views(augmentation, records, self._called)
        real = records[0].is_floating_point()
        for other in with_gaps(records[0], self.draws) if real else ():
            some = [records[0], other, records[1]]
            try:
                self._views(augmentation, some, lambda _, call: call())
            except InputError:
                raise
            except Exception:  # an honest augmentation may take no missing values
                continue
        return rows

    def _views(
        self,
        augmentation: Augmentation,
        records: list[Tensor],
        called: Callable[[str, Callable[[], Any]], Any],
    ) -> list[Tensor]:
        """The views of each record, made of it alone; InputError where others change them."""
        where = f"augmentation ({type(augmentation).__name__})"
        count = len(records)
        parameters = called(where, lambda: drawn_views(augmentation, self.draws, count))
        parameters = parameters.to(self.subject.x.device)
        before = state_of(where, augmentation)
        called(where, lambda: drawn_views(augmentation, generator(KEY), count))
        if state_of(where, augmentation) != before:
            # What it keeps, such as how many it has drawn, depends on how many records there were.
            found = "something kept from one `draw` to the next"
            raise InputError(where, found, "parameters drawn from the generator alone")
        batch = torch.cat(records)

        def apply(rows: slice) -> Tensor:
            return augmentation.apply(batch[rows], parameters[rows])

        def after(records: Tensor) -> dict[str, str]:
            new = _copied(self.subject.augmentation)
            called(where, lambda: new.apply(records, parameters))
            return state_of(where, new)

        fresh = state_of(where, augmentation)
        together = called(where, lambda: apply(slice(None)))
        others = [torch.cat([records[number]] * count) for number in (0, 1)]
        first = state_of(where, augmentation)
        if len(together) != count * self.views:
            found = f"{len(together)} rows for {count} records of {self.views} views"
            raise InputError(where, found, "each view of each record once")
        with unchanged(where, augmentation):
            again = called(where, lambda: apply(slice(None)))
        again_after, *others_after = (partial(after, rows) for rows in (batch, *others))
        refuse_set_by_records(fresh, first, again_after, others_after)
        if not _close(together, again, self.tolerance):
            found = "two results for the same parameters"
            raise InputError(where, found, "randomness from `draw` alone, which is keyed")
        alone = [
            called(f"{where} on one record", partial(apply, slice(number, number + 1)))
            for number in range(count)
        ]
        for views, in_batch in zip(alone, together.split(self.views), strict=True):
            if not _close(views, in_batch, self.tolerance):
                found = "a record's views depend on other records"
                raise InputError(where, found, "views of one record each")
        return alone

    def _choose_labels(self, output: Tensor) -> None:
        """Set labels that the loss takes; what it makes once, at its first call, is made here."""
        choices = TARGETS if self.subject.labels.is_floating_point() else TARGETS[:1]
        for targets in choices:
            like, records = self.subject.labels, len(self.rows)
            self.labels = synthetic_labels(
                like, output, records, self.views, targets, self.precision
            )
            rows, labels = self._batch(range(len(self.rows)))
            try:
                with torch.no_grad():
                    losses_of(lambda _: output, self.loss, rows, labels)
                return
            except Exception:  # a user's loss may raise anything
                if targets is choices[-1]:
                    raise

    def _autograd(self, records: Sequence[int]) -> dict[str, Tensor]:
        """Gradient of the mean loss over views, summed over these records."""
        x, labels = self._batch(records)
        trainable = [
            (name, value) for name, value in self.model.named_parameters() if value.requires_grad
        ]
        with torch.enable_grad():
            total = losses_of(self.model, self.loss, x, labels).sum() / self.views
            self._refuse_other_leaves(total)
            values = [value for _, value in trainable]
            gradients = torch.autograd.grad(total, values, allow_unused=True)
        found = {}
        for (name, _), gradient in zip(trainable, gradients, strict=True):
            if gradient is None:
                raise InputError(
                    self._owner(name),
                    f"{name} is trainable, but no gradient of the loss reaches it",
                    "parameters that the loss depends on, or that are frozen",
                )
            found[name] = gradient
        return found

    def _refuse_other_leaves(self, total: Tensor) -> None:
        """InputError for a tensor outside of the network that a gradient would reach.

        Nothing trains it, and the gradient of the private records would stay in it. It occurs in
        two passes, unlike what a pass makes for itself.
        """
        own = set(map(id, self.model.parameters()))
        before = self._leaves
        self._leaves = [leaf for leaf in _leaves(total) if id(leaf) not in own]
        outside = [leaf for leaf in self._leaves if any(leaf is other for other in before)]
        if outside:
            of_loss = self.loss.named_parameters() if isinstance(self.loss, nn.Module) else ()
            names = {id(value): f"parameter {key} of the loss" for key, value in of_loss}
            name = names.get(id(outside[0]), f"a tensor of shape {tuple(outside[0].shape)}")
            raise InputError(
                "model or loss",
                f"{name}, which requires a gradient and is not trained",
                "parameters of the network, or requires_grad=False",
            )

    @property
    def _everyone(self) -> list[int]:
        """Indices of all records but the one that replaces another."""
        return list(range(len(self.rows) - 1))

    def _batches(self) -> list[list[int]]:
        """Indices of all records; in another order; less the first; less the last; one replaced."""
        everyone = self._everyone
        order = self.draws.permutation(len(everyone)).tolist()
        replaced = [len(everyone), *everyone[1:]]
        return [everyone, order, everyone[1:], everyone[:-1], replaced]

    def _batch(self, records: Iterable[int]) -> tuple[Tensor, Tensor]:
        indices = list(records)
        rows, labels = (torch.cat([part[i] for i in indices]) for part in (self.rows, self.labels))
        return rows, labels

    def _sum(self, records: Sequence[int], max_grad_norm: float) -> Contribution:
        x, labels = self._batch(records)
        where = "model on one record" if len(records) == 1 else "model"
        clipped = self._called(where, lambda: self.kernel.clipped_sum(x, labels, max_grad_norm))
        return {name: value.double() for name, value in clipped.gradients.items()}, clipped.norms

    def _compare(self) -> None:
        everyone = range(len(self.rows))
        batches = self._batches()
        first, _ = self._sum(batches[0], NO_CLIP)
        unclipped = {number: self._sum([number], NO_CLIP) for number in everyone}
        lengths = torch.stack([norms.double().sum() for _, norms in unclipped.values()])
        if not torch.isfinite(lengths).any():
            found = "no finite gradient for made-up records"
            raise InputError("model", found, "a network that learns from numbers of size 1")
        for gradients, norms in unclipped.values():
            length, norm = _length(gradients), float(norms.double().sum())
            if math.isfinite(norm) and length > norm + self.tolerance * max(norm, 1e-6):
                found = f"a norm of {norm:.3g} for a record that adds {length:.3g}"
                raise Mismatch("model", found, "norms that are at least those of the gradients")
        positive = lengths[torch.isfinite(lengths) & (lengths > 0)]
        bound = CLIPPED_SHARE * float(positive.median()) if len(positive) else 1.0
        clipped = {number: self._sum([number], bound) for number in everyone}
        self._check_sum(batches[0], first, unclipped)
        for batch in batches:
            self._check_sum(batch, self._sum(batch, bound)[0], clipped)
        # The engine counts gradients that are not finite as zero, autograd does not.
        finite = [number for number in everyone if torch.isfinite(lengths[number])]
        calm = [number for number in calm_records(len(everyone)) if number in finite] or finite
        self._compare_with_autograd(finite, calm[0], unclipped)
        beside = {number: unclipped[number] for number in calm}
        self._compare_many(beside | self._unusual(self._unusual_records()))
        # One number at a time: gradients beside a large one would not show.
        parts = [*self.model.modules(), self.loss]
        for gap in gap_values(numbers_in(parts), self.precision):
            self._compare_one_by_one(beside, self._unusual(self._records_with(gap)))

    def _compare_with_autograd(
        self, finite: Sequence[int], calm: int, alone: Mapping[int, Contribution]
    ) -> None:
        """InputError unless the sum of records, and that of a calm one, are autograd's."""
        total = self._total(finite, alone)
        scale = sum(_length(alone[number][0]) for number in finite)
        for name, gradient in self._autograd(finite).items():
            if not _close(total[name], gradient.double(), self.tolerance, scale) and not _close(
                total[name], gradient.double(), 1.0, self._rounding_of(finite, alone)
            ):
                # Records that meet in what is passed through one by one show here only.
                self._name_what_mixes(finite)
                raise self._mismatch(name)
        # Beside the gradients of a record with an offset of 1e6, others would not show.
        single = alone[calm][0]
        scale = NOTHING * _length(single)
        for name, gradient in self._autograd([calm]).items():
            limit = max(self.tolerance * _length({name: gradient.double()}), scale)
            if _differ({name: single[name]}, {name: gradient.double()}, limit):
                raise self._mismatch(name)

    def _compare_many(self, alone: Mapping[int, Contribution]) -> None:
        """InputError unless a large batch, of repeated records, is the sum of them alone.

        Some code acts in large batches only: experts of a limited capacity, the largest losses.
        """
        records = max(len(alone), min(MOST, max(LEAST, WORK // self._size)))
        batch = list(itertools.islice(itertools.cycle(alone), records))
        self._check_sum(batch, self._sum(batch, NO_CLIP)[0], alone)

    def _compare_one_by_one(
        self, usual: Mapping[int, Contribution], others: Mapping[int, Contribution]
    ) -> None:
        """InputError unless each batch of usual records and one of the others is their sum."""
        for number, contribution in others.items():
            alone = {**usual, number: contribution}
            batch = [*alone, number]
            self._check_sum(batch, self._sum(batch, NO_CLIP)[0], alone)

    @property
    def _size(self) -> int:
        """Numbers in a record and its gradient."""
        weights = sum(value.numel() for value in self.model.parameters())
        return weights + self.views * self.subject.x[:1].numel()

    def _check_sum(
        self,
        batch: Sequence[int],
        together: dict[str, Tensor],
        alone: Mapping[int, Contribution],
    ) -> None:
        """InputError unless the sum over a batch is that of what its records add alone."""
        counts = Counter(batch).items()
        scale = sum(count * _length(alone[number][0]) for number, count in counts)
        total, limit = self._total(batch, alone), self.tolerance * scale
        if _differ(together, total, limit) and _differ(
            together, total, limit + self._rounding_of(batch, alone)
        ):
            self._name_what_mixes(batch)
            raise Mismatch(
                "model",
                "the clipped sum of a batch is not the sum of its records' own",
                "operations on each record alone",
            )

    def _rounding_of(self, batch: Sequence[int], alone: Mapping[int, Contribution]) -> float:
        """How far the sum may differ where products round differently in a batch than alone.

        On some processors they do, and a softmax of numbers near 1e12 shows their last digits.
        """
        return sum(
            min(self._sensitivity(number), MOST_ROUNDING) * _length(alone[number][0])
            for number in batch
        )

    def _sensitivity(self, number: int) -> float:
        """Change of a record's gradient, relative to its length, as its last digits change."""
        if number not in self._sensitivities:
            draws, size = generator(KEY), PERTURBATION * torch.finfo(self.precision).eps

            def perturbed(values: Tensor) -> Tensor:
                if not values.is_floating_point():
                    return values
                steps = torch.from_numpy(draws.standard_normal(tuple(values.shape))).to(values)
                return values * (1 + size * steps)

            rows = self.rows[number]
            other: Any = rows.each(perturbed) if isinstance(rows, Structured) else perturbed(rows)
            one, two = (
                self.kernel.clipped_sum(x, self.labels[number], NO_CLIP).gradients
                for x in (rows, other)
            )
            change = _length({name: one[name] - two[name] for name in one})
            length = max(_length(one), torch.finfo(self.precision).tiny)
            self._sensitivities[number] = change / length
        return self._sensitivities[number]

    def _total(self, batch: Sequence[int], alone: Mapping[int, Contribution]) -> dict[str, Tensor]:
        """The sum of what the records of a batch add alone."""
        parts = [(count, alone[number][0]) for number, count in Counter(batch).items()]
        return {
            name: reduce(torch.add, (count * part[name] for count, part in parts))
            for name in parts[0][1]
        }

    def _unusual(self, records: Iterable[tuple[Any, Tensor]]) -> dict[int, Contribution]:
        """What unusual records add, by index, of those that do not fail."""
        found = {}
        for rows, labels in records:
            number = len(self.rows)
            self.rows.append(rows)
            self.labels.append(labels)
            # An honest network may take no such record: cross_entropy has no class -1.
            try:
                self._try_on_cpu(rows, labels)
                found[number] = self._sum([number], NO_CLIP)
            except Exception:  # a user's network may raise anything
                del self.rows[number], self.labels[number]
        return found

    def _try_on_cpu(self, rows: Any, labels: Tensor) -> None:
        """Fail as the kernel does: an index out of range ends a process's use of its GPU."""
        if rows.device.type == "cpu":
            return
        model, loss = copy.deepcopy(self.model).cpu(), copy.deepcopy(self.loss)
        loss = loss.cpu() if isinstance(loss, nn.Module) else loss
        rows = rows.each(Tensor.cpu) if isinstance(rows, Structured) else rows.cpu()
        self.subject.kernel_of(model, loss).clipped_sum(rows, labels.cpu(), NO_CLIP)

    def _unusual_records(self) -> Iterator[tuple[Any, Tensor]]:
        """Rows and labels of records with missing values, padding, or labels to be ignored."""
        rows, labels = self.rows[0], self.labels[0]
        leaves = rows.leaves if isinstance(rows, Structured) else [rows]
        for place, leaf in enumerate(leaves):
            real = leaf.is_floating_point()
            for other in with_gaps(leaf, self.draws) if real else self._padded(leaf):
                changed = [*leaves[:place], other, *leaves[place + 1 :]]
                yield rows.of(changed) if isinstance(rows, Structured) else other, labels
        for others in unusual_labels(labels, self.draws):
            yield rows, others

    def _records_with(self, gap: float) -> Iterator[tuple[Any, Tensor]]:
        """Rows and labels of records of which some numbers are `gap`, or some targets."""
        rows, labels = self.rows[0], self.labels[0]
        leaves = rows.leaves if isinstance(rows, Structured) else [rows]
        for place, leaf in enumerate(leaves):
            other = with_gap(leaf, gap, self.draws)
            if other is not None:
                changed = [*leaves[:place], other, *leaves[place + 1 :]]
                yield rows.of(changed) if isinstance(rows, Structured) else other, labels
        targets = with_gap(labels, gap, self.draws) if labels.numel() else None
        if targets is not None:
            yield rows, targets

    def _padded(self, values: Tensor) -> Iterator[Tensor]:
        """Whole numbers over the range that the network has embeddings for, each with padding."""
        layers = [
            layer
            for name, (inputs, _) in self._passages([self.rows[0]]).items()
            if isinstance(layer := self.model.get_submodule(name), nn.Embedding | nn.EmbeddingBag)
            and any(torch.equal(given.flatten(), values.flatten()) for given in inputs[0])
        ]
        return padded(values, layers, self.draws)

    def _mismatch(self, name: str) -> Mismatch:
        return Mismatch(
            self._owner(name),
            f"the gradient of {name} is not the derivative of the loss: it is used outside of its "
            "layer's forward too",
            "parameters that one layer uses once",
        )

    def _name_what_mixes(self, batch: Sequence[int]) -> None:
        """InputError that names the innermost module, or the loss, that mixes rows."""
        together = self._passages([torch.cat([self.rows[number] for number in batch])])
        alone = self._passages([self.rows[number] for number in batch])
        for name, (inputs, outputs) in together.items():
            if name not in alone:
                continue
            inputs_alone, outputs_alone = alone[name]
            if _same(inputs, inputs_alone, self.tolerance) and not _same(
                outputs, outputs_alone, self.tolerance
            ):
                raise InputError(
                    self._layer(name),
                    "a record's output depends on other records",
                    "operations on each record alone",
                )
        with torch.no_grad():
            x, labels = self._batch(batch)
            losses = losses_of(self.model, self.loss, x, labels)
            losses_alone = torch.cat(
                [losses_of(self.model, self.loss, *self._batch([number])) for number in batch]
            )
        if not _close(losses, losses_alone, self.tolerance):
            found = "a record's loss depends on other records"
            raise InputError("loss", found, "one value a record, of that record alone")

    def _passages(self, parts: Sequence[Tensor]) -> dict[str, Passage]:
        """Each module's inputs and outputs for every part, by name in the order of completion."""
        passages: dict[str, Passage] = {}

        def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
            def hook(_: nn.Module, module_inputs: Any, module_outputs: Any) -> None:
                inputs, outputs = passages.setdefault(name, ([], []))
                inputs.append(_tensors(module_inputs))
                outputs.append(_tensors(module_outputs))

            return hook

        handles = [
            module.register_forward_hook(note(name)) for name, module in self.model.named_modules()
        ]
        try:
            with torch.no_grad():
                for part in parts:
                    self.model(part)
        finally:
            for handle in handles:
                handle.remove()
        return passages

    def _layer(self, name: str) -> str:
        kind = type(self.model.get_submodule(name)).__name__
        return f"layer {name} ({kind})" if name else f"model ({kind})"

    def _owner(self, parameter: str) -> str:
        return self._layer(parameter.rpartition(".")[0])

    def _called(self, where: str, call: Callable[[], Any]) -> Any:
        """The result of `call`; an error in the network's own precision becomes an InputError."""
        try:
            return call()
        except InputError:
            raise
        except Exception as error:
            if self.precision == torch.float64 and not where.endswith("one record"):
                raise
            raise InputError(where, f"fails: {_line(error)}", "any number of records") from None

    def _refuse_hidden_half_precision(self) -> None:
        """InputError for operations in less than float32 within a forward or backward pass."""
        subject = self.subject
        model = copy.deepcopy(subject.model)
        kernel = subject.kernel_of(model, _copied(subject.loss))
        dtype = subject.x.dtype if subject.x.is_floating_point() else None
        rows = torch.cat([self.rows[number].to(dtype or subject.x.dtype) for number in (0, 1)])
        labels = torch.cat([self.labels[number] for number in (0, 1)]).to(subject.labels.dtype)
        try:
            with _RefuseHalf():
                kernel.clipped_sum(rows, labels, 1.0)
        except InputError:
            raise
        except Exception as error:  # a user's network may raise anything
            found = f"{rows.dtype}, {labels.dtype}, on which the network fails: {_line(error)}"
            own = next(model.parameters()).dtype
            raise InputError("x, labels", found, f"types that the model takes, as {own}") from None


class _RefuseHalf(TorchDispatchMode):
    """Refuses every operation whose result is in bfloat16 or float16."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and else torch imports its compiler for a second."""
        return False

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            if tensor.dtype in (torch.bfloat16, torch.float16):
                raise InputError(
                    f"operation {function.overloadpacket.__name__}",
                    f"a result in {tensor.dtype}",
                    "float32 or float64 throughout the network and the loss",
                )
        return result


_passed: OrderedDict[str, int] = OrderedDict()


def _key(subject: Subject) -> str:
    """Fingerprint of all that determines a pass, except for the values of weights and buffers."""
    records = subject.x, subject.labels
    return fingerprint(
        subject.model,
        [name for name, value in subject.model.named_parameters() if value.requires_grad],
        subject.loss,
        subject.augmentation,
        [(tensor.dtype, tensor.device, *tensor.shape[1:]) for tensor in records],
        subject.views,
        subject.settings,
        hooks_of_all(),
    )


def _copied(value: Any) -> Any:
    """A copy of an object, whose state is its own; a function, or what has no copy, as it is."""
    try:
        return copy.deepcopy(value)
    except Exception:  # a user's object may raise anything
        return value


def _computed_weight(model: nn.Module) -> tuple[str, str]:
    """Layer and attribute of a weight that a hook computes, and what to do; empty for none.

    torch.nn.utils.prune and torch.nn.utils.weight_norm keep such weights.
    """
    for name, layer in model.named_modules():
        for key, value in vars(layer).items():
            if not isinstance(value, Tensor) or value.is_leaf:
                continue
            where = f"{key} of layer {name or 'model'} ({type(layer).__name__})"
            if f"{key}_mask" in layer._buffers:
                return where, f"a layer after torch.nn.utils.prune.remove(layer, {key!r})"
            if f"{key}_g" in layer._parameters:
                new = "torch.nn.utils.parametrizations.weight_norm"
                return where, f"{new} in the place of torch.nn.utils.weight_norm"
    return "", ""


def _leaves(result: Tensor) -> list[Tensor]:
    """The tensors in which `backward` would leave gradients of this result."""
    waiting, seen, found = [result.grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            found.append(getattr(node, "variable"))  # noqa: B009  (unknown to torch's types)
        waiting.extend(below for below, _ in node.next_functions)
    return found


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in a module's inputs or outputs."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return _tensors(list(value.values()))
    return []


def _same(together: list[list[Tensor]], alone: list[list[Tensor]], tolerance: float) -> bool:
    """Whether one pass over all rows gave the joined tensors of separate passes."""
    return len(together) == 1 and all(
        any(
            one.shape == joined.shape and _close(one, joined, tolerance)
            for joined in _joined(parts)
        )
        for one, parts in zip(together[0], zip(*alone, strict=False), strict=False)
    )


def _joined(parts: Sequence[Tensor]) -> list[Tensor]:
    """The tensors joined along each dimension: a layer's states may have the records second."""
    return [
        torch.cat(list(parts), dim)
        for dim in range(parts[0].dim())
        if all(part.shape[:dim] == parts[0].shape[:dim] for part in parts)
        and all(part.shape[dim + 1 :] == parts[0].shape[dim + 1 :] for part in parts)
    ]


def _close(one: Tensor, other: Tensor, tolerance: float, scale: float | None = None) -> bool:
    """Equal up to `tolerance` times a row's largest entry, or `scale`; non-finite entries agree."""
    if one.shape != other.shape:
        return False
    one, other = (
        torch.nan_to_num(torch.atleast_1d(tensor).double(), 0, 0, 0) for tensor in (one, other)
    )
    gap = (one - other).flatten(1).abs() if one.dim() > 1 else (one - other).abs()[:, None]
    if scale is None:
        size = other.abs().flatten(1) if one.dim() > 1 else other.abs()[:, None]
        limit: Tensor | float = tolerance * size.amax(1, keepdim=True).clamp_min(1e-6)
    else:
        limit = tolerance * scale
    return bool((gap <= limit).all())


def _length(gradients: dict[str, Tensor]) -> float:
    parts = (torch.nan_to_num(value, 0, 0, 0).square().sum() for value in gradients.values())
    return math.sqrt(sum(map(float, parts)))


def _differ(one: dict[str, Tensor], other: dict[str, Tensor], limit: float) -> bool:
    return not _length({name: one[name] - other[name] for name in one}) <= limit


def _line(error: Exception) -> str:
    """The error's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
