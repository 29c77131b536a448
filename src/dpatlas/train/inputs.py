"""What the settings name: records, network, loss, and the training as the engine takes it."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from scipy.stats import mannwhitneyu
from torch import Tensor, nn

from dpatlas.accounting import schedules
from dpatlas.accounting.clip_bounds import AdaptiveClip, LayerBounds
from dpatlas.accounting.samplers import Sampler, sampler
from dpatlas.base.arrays import read_arrays
from dpatlas.base.canonical import sha256
from dpatlas.base.progress import say
from dpatlas.base.scripts import error_place, imported_from, named_function
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.privacy import losses
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.data import FromDataset, InMemory, data_of
from dpatlas.privacy.digest import digest, row_digests, values_of
from dpatlas.privacy.optimizers import OPTIMIZER_NAMES, ParameterGroup
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.plain_batch import refuse_meeting
from dpatlas.privacy.saved import BUILT
from dpatlas.privacy.trace import called, outputs_alone
from dpatlas.privacy.training import PrivateTraining, check_classes, check_labels
from dpatlas.privacy.units import OneRecord, PersonsWithRecords
from dpatlas.train.canaries import Canaries
from dpatlas.train.files import read_table
from dpatlas.train.settings import NETWORK_NAMES, TABLES, Select, TrainSettings

ARRAYS = ("x", "y", "groups")
NAMED_LOSSES: dict[str, losses.Loss] = {
    "cross_entropy": losses.cross_entropy,
    "binary_cross_entropy": losses.binary_cross_entropy,
    "squared_error": losses.squared_error,
    "token_cross_entropy": losses.TokenCrossEntropy(),
}
# Rows of a pass without gradients.
ROWS = 1000
# Training records whose loss is shown on request.
LOSS_RECORDS = 256
MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Records:
    """Records with their targets and, per record, the person that it is of."""

    x: Any
    y: Any = None
    groups: Any = None

    def on(self, device: str, workers: int = 0) -> InMemory | FromDataset:
        """The records as they are fetched for a model on that device."""
        return data_of(self.x, self.y, torch.device(device), workers)

    @functools.cached_property
    def digest(self) -> str | None:
        """Digest of arrays and tensors in memory; of a dataset its `fingerprint`, if it has one."""
        if isinstance(self.x, Tensor | np.ndarray | tuple | dict):
            return digest(self.x, self.y, self.groups)
        named = getattr(self.x, "fingerprint", getattr(self.x, "_fingerprint", None))
        return named if isinstance(named, str) else None

    @property
    def row_digests(self) -> list[bytes]:
        """A digest of each record, if all are one tensor or array in memory; otherwise empty."""
        in_memory = isinstance(self.x, Tensor | np.ndarray) and not isinstance(self.x, np.memmap)
        return row_digests(self.x) if in_memory else []


class Inputs:
    """The functions and files that `settings` name; paths are relative to the folder `base`.

    prepared: the data set, where they name one by its name or manifest.
    """

    def __init__(
        self, settings: TrainSettings, base: Path = Path(), prepared: Prepared | None = None
    ):
        self.settings, self.base, self.prepared = settings, base, prepared
        # Digests of the files that were read, by name.
        self.files: dict[str, str] = {}
        data = self._prepared("train") if prepared else self._records("data", settings.data)
        assert data is not None
        self.train = data
        # Of the private records, without canaries.
        self.digest = data.digest
        self.test = self._held_out("test", settings.test)
        chosen = settings.select
        self.validation = None
        if chosen:
            self.validation = self._held_out("select.validation", chosen.validation)
            if self.validation is None:
                raise InputError("select.validation", "none in the data set", "records")
        self.loss = NAMED_LOSSES.get(settings.loss) or self._function("loss", settings.loss)
        named = settings.model in NETWORK_NAMES
        self._make = None if named else self._function("model", settings.model)
        # Before canaries join the records and change their digest.
        self._check_parts()
        self.canaries: Canaries | None = None
        if settings.canaries:
            self._add_canaries(settings.canaries.number)
        right = chosen.right if chosen else None
        self._right = self._function("select.right", right) if right else None
        if chosen:
            self._check_scores(chosen)
        network = self._fresh_network()
        # Refuse test and validation records that network, loss or score do not take.
        if self.validation is not None:
            self.right(network, "cpu")
        self.measured(network, "cpu")
        self.files |= imported_from(base)

    def network(self, seed: int, device: str) -> nn.Module:
        """A network whose initial weights follow from the seed."""
        if config := self.config:
            of = (config[name] for name in BUILT)
            model: Any = build(*of, key="train", run=0, base_seed=seed)
        else:
            assert self._make is not None
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                with torch.enable_grad():
                    model = self._called("model", self._make)
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        return (self.canaries.network(model) if self.canaries else model).to(device)

    @property
    def config(self) -> dict[str, Any] | None:
        """What `load_model` builds the network from, where it has a name."""
        if self._make is not None:
            return None
        table = self.settings.table
        if self.prepared:
            manifest = self.prepared.manifest
        else:
            assert table is not None
            shape = self.canaries.shape if self.canaries else self.train.x.shape[1:]
            manifest = {"classes": table.classes, "image_shape": (1, 1, *shape)}
        for name in ("classes", "image_shape"):
            if not manifest.get(name):
                raise InputError("data", f"a data set without {name}", "labelled images")
        return {
            "network": self.settings.model,
            "image_shape": list(manifest["image_shape"]),
            "outputs": len(manifest["classes"]),
            "classes": list(map(str, manifest["classes"])),
        }

    def _add_canaries(self, number: int) -> None:
        """Records, and from here on networks, with an input for each of so many canaries."""
        parts = [self.train, *([self.test] if self.test else [])]
        if not all(isinstance(part.x, Tensor) and part.x.is_floating_point() for part in parts):
            raise InputError("canaries", "records of another kind", "tensors of numbers")
        if self.train.groups is not None:
            raise InputError("canaries", "them with groups", "records that are of a person each")
        x, y = self.train.x, self.train.y
        output = self._called("model", called, self.network(0, "cpu"), x[:1])
        canaries = Canaries(number, x.shape[1:], output.shape[-1], len(x), self.settings.seed)
        self.train = Records(*canaries.added_to(x, y))
        if self.test:
            self.test = Records(canaries.inputs(self.test.x), self.test.y)
        self.canaries = canaries

    def _fresh_network(self) -> nn.Module:
        """A network; InputError unless the function makes a new one each time, by torch's seed."""
        one, other = (self.network(self.settings.seed, "cpu") for _ in range(2))
        allowed = "a new network at every call, whose weights follow from torch.manual_seed"
        if values_of(one) != values_of(other):
            raise InputError("model", "two different networks for one seed", allowed)
        first, second = (
            {value.data_ptr() for value in each.state_dict().values()} for each in (one, other)
        )
        # An empty tensor has address 0.
        if one is other or (first & second) - {0}:
            raise InputError("model", "weights that it has returned before", allowed)
        return other

    def _check_parts(self) -> None:
        """InputError where private records are other ones too, or measured without noise."""
        held_out = {"test": self.test, "select.validation": self.validation}
        parts = {key: part for key, part in held_out.items() if part is not None}
        for key, part in parts.items():
            # Refuses what are no records, or none at all.
            self._called(key, part.on, "cpu")
            if part.digest == self.train.digest is not None:
                raise InputError(key, "the records of data", "records that are not trained on")
        test, chosen = self.test, self.settings.select
        private = self.validation if chosen and chosen.score_noise is not None else None
        if test and private and test.digest == private.digest is not None:
            allowed = "public records: what is measured on them carries no noise"
            raise InputError("test", "the records of select.validation", allowed)
        known = set(self.train.row_digests) if parts else set()
        for key, part in parts.items():
            if both := sum(each in known for each in part.row_digests):
                say(
                    f"{key}: {both:,} of its records equal records of data: if these are the same "
                    "records, the guarantee does not cover what is measured on them"
                )

    @functools.cached_property
    def units(self) -> int:
        """How many records, or persons, batches are drawn from."""
        records = self.train.on("cpu").n
        groups = self.train.groups
        unit = OneRecord(records) if groups is None else PersonsWithRecords(groups, records)
        return unit.n

    def phase(self) -> TrainingPhase:
        """The training as one phase; its noise multiplier is 1 where it is to be calibrated.

        Of settings that each trial of a selection draws it has the low ends.
        """
        given, n = self.settings, self.units
        ranges = given.select.ranges if given.select else {}
        low = {name: ends[0] for name, ends in ranges.items()}
        batches: Sampler = sampler(given.sampler, n, given.batch)
        if self.canaries:
            batches = self.canaries.sampler(given.batch or n)
        steps = given.steps or batches.steps_in(given.epochs or 0.0)
        if given.epochs and steps > MOST_STEPS:
            raise InputError("epochs", f"{steps:.3g} steps", f"at most {MOST_STEPS:,} steps")
        bounds = LayerBounds(given.layer_bounds) if given.layer_bounds else None
        clipping: Any = bounds or given.clipping
        if given.adaptive_clip:
            clipping = AdaptiveClip(**given.adaptive_clip.plain())
        noise = 1.0 if given.noise_multiplier is None else given.noise_multiplier
        return TrainingPhase(
            batches,
            noise,
            max_grad_norm=bounds.total if bounds else low.get("max_grad_norm", given.max_grad_norm),
            steps=steps,
            lr=low.get("lr", given.lr),
            optimizer=_optimizer(given.optimizer, given.optimizer_settings),
            momentum=given.momentum,
            weight_decay=given.weight_decay,
            trainable=tuple(given.trainable),
            clipping=clipping,
            max_physical_batch=given.max_physical_batch,
            lr_schedule=_schedule("lr_schedule", given.lr_schedule, steps),
            noise_schedule=_schedule("noise_schedule", given.noise_schedule, steps),
            parameter_groups=tuple(
                ParameterGroup(**each.plain()) for each in given.parameter_groups
            ),
        )

    def augmentation(self) -> ShiftAndFlip | None:
        """Views of each record."""
        views = self.settings.augmentation
        return ShiftAndFlip(**views.whole()) if views else None

    def measured(self, model: nn.Module, device: str) -> dict[str, Any]:
        """Mean loss on the test records, and `class_scores` where their labels are classes."""
        if self.test is None:
            return {"n_test": 0}
        data = self.test.on(device, self.settings.workers)
        total, outputs, labels = 0.0, [], []
        for output, targets in self._passes("test", model, data):
            values = self._called("test", losses.losses_of, self.loss, output, targets)
            total += float(values.double().sum())
            if self._classes(targets):
                outputs.append(output.double().cpu().numpy())
                labels.append(targets.cpu().numpy())
        mean = total / data.n
        metrics: dict[str, Any] = {"n_test": data.n, "loss": mean if math.isfinite(mean) else None}
        if not self._classes(data.targets):
            return metrics
        return metrics | class_scores(np.concatenate(outputs), np.concatenate(labels))

    def loss_of(self, training: PrivateTraining) -> str:
        """Mean loss of the first training records, without noise: not for release."""
        some = slice(0, min(training.data.n, LOSS_RECORDS))
        x, targets = training.data.take(some, some)
        with torch.no_grad():
            values = losses.losses_of(self.loss, called(training.model, x), targets)
        return f"{float(values.mean()):.4g}"

    def right(self, model: nn.Module, device: str) -> int:
        """How many of the validation records the model gets right."""
        assert self.validation is not None
        validation, count = self.validation.on(device, self.settings.workers), 0
        for output, targets in self._passes("select.validation", model, validation):
            if self._right is None:
                count += int((output.argmax(1) == targets).sum())
                continue
            # Row by row: a record that moved another's answer would move the count by more than 1.
            for row in range(len(output)):
                one = slice(row, row + 1)
                answer = self._called("select.right", self._right, output[one], targets[one])
                dtype, shape = getattr(answer, "dtype", None), tuple(getattr(answer, "shape", ()))
                if dtype != torch.bool or shape != (1,):
                    found = f"{dtype or type(answer).__name__} of shape {shape}"
                    raise InputError("select.right", found, "torch.bool of shape (1,) for one row")
                count += int(answer)
        return count

    def _check_scores(self, chosen: Select) -> None:
        """InputError where trials cannot be scored, or a score's noise would not cover a person."""
        if self._right is None and self.settings.loss != "cross_entropy":
            allowed = "FILE.py:FUNCTION that says of each record whether it is right"
            raise InputError("select.right", "nothing with this loss", allowed)
        grouped = any(part.groups is not None for part in (self.train, self.validation) if part)
        if chosen.score_noise is not None and grouped:
            allowed = "public_validation: a person may have several of the records that are counted"
            raise InputError("select.score_noise", "it with groups", allowed)

    def _classes(self, targets: Any) -> bool:
        return self.settings.loss == "cross_entropy" and targets is not None

    @torch.no_grad()
    def _passes(
        self, key: str, model: nn.Module, data: InMemory | FromDataset
    ) -> Iterator[tuple[Tensor, Any]]:
        """Outputs and targets of all records, some at a time, in evaluation mode."""
        rows = min(self.settings.max_physical_batch or ROWS, ROWS)
        was_training = model.training
        classes = self.settings.loss == "cross_entropy" and (key == "test" or self._right is None)
        model.eval()
        chosen = self.settings.select
        network = functools.partial(called, model)
        if key == "select.validation" and chosen and chosen.score_noise is not None:
            # Private: a record moves the count by 1 only if it moves no other one's answer.
            network = self._called(key, _alone, model, data.sample()[0])
        try:
            for start in range(0, data.n, rows):
                chunk = slice(start, min(start + rows, data.n))
                x, targets = data.take(chunk, chunk)
                output = self._called(key, network, x)
                if classes:
                    self._called(key, _check_targets, targets, output)
                yield output, targets
        finally:
            model.train(was_training)

    def _function(self, key: str, target: str) -> Callable[..., Any]:
        path, _, name = target.rpartition(":")
        try:
            function, _, file = named_function(
                f"{self.base / path}:{name}", "FILE.py:FUNCTION, relative to the settings' folder"
            )
        except InputError as error:
            raise InputError(f"{key}: {error.where}", error.found, error.allowed) from None
        self.files[Path(path).as_posix()] = sha256(file.read_bytes())
        return function

    def _held_out(self, key: str, target: str | None) -> Records | None:
        """Records that are not trained on: as the settings say, or of the prepared data set."""
        if target is not None:
            return self._records(key, target)
        return self._prepared(key.rpartition(".")[2]) if self.prepared else None

    def _prepared(self, part: str) -> Records | None:
        """A part of the prepared data set; None for one without records."""
        x, y = (torch.from_numpy(getattr(self.prepared, f"{axis}_{part}")) for axis in "xy")
        return Records(x, y) if len(x) or part == "train" else None

    def _records(self, key: str, target: str) -> Records:
        if target.endswith(".npz"):
            return self._arrays(key, target)
        if target.endswith(TABLES):
            assert self.settings.table is not None
            x, y, persons = read_table(key, self.base / target, self.settings.table)
            return Records(torch.from_numpy(x), torch.from_numpy(y), persons)
        found = self._called(key, self._function(key, target))
        if not isinstance(found, tuple | list):
            return Records(_converted(found, "f"))
        if len(found) not in (2, 3):
            raise InputError(key, f"{len(found)} values", "(x, y) or (x, y, groups)")
        x, y, *groups = found
        # Whole numbers stay as they are in x, where they may be the bytes of many images.
        return Records(_converted(x, "f"), _converted(y, "biuf"), *groups)

    def _arrays(self, key: str, target: str) -> Records:
        path, allowed = self.base / target, "an npz file with arrays x, y and perhaps groups"
        try:
            arrays = read_arrays(path)
            self.files[Path(target).as_posix()] = sha256(path.read_bytes())
        except OSError as error:
            raise InputError(key, f"{path}: {error.strerror or error}", allowed) from None
        except ValueError:
            found = f"{path}: a damaged file, or arrays of objects"
            raise InputError(key, found, allowed) from None
        if not {"x", "y"} <= arrays.keys() <= set(ARRAYS):
            raise InputError(key, f"{path} with {', '.join(arrays) or 'no array'}", allowed)
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf" or array.dtype == np.uint64:
                raise InputError(key, f"{name} of type {array.dtype}", "numbers that torch takes")
        return Records(**{name: torch.from_numpy(_usual(array)) for name, array in arrays.items()})

    def _called(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a stranger's function returns; InputError for what it raises."""
        try:
            return function(*arguments)
        except InputError as error:
            raise InputError(f"{key}: {error.where}", error.found, error.allowed) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a stranger's code raises
            found = error_place(error).splitlines()[0]
            raise InputError(key, found, "a call without an error") from None


def class_scores(outputs: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    """Scores of outputs (n, classes) for labels (n,), classes from 0.

    accuracy: share of right answers. majority: that of the largest class. By means over the classes
    present, balanced_accuracy: share of theirs that is right; auc: chance that one of theirs has a
    larger output (softmax) for the class than one of the others, ties by half. auc is None for
    less than two classes and for outputs that are not finite.
    """
    right = outputs.argmax(1) == labels
    present, counts = np.unique(labels, return_counts=True)
    aucs: list[float] = []
    if len(present) > 1 and np.isfinite(outputs).all():
        shares = softmax(outputs, axis=1)
        for each in present:
            samples = shares[labels == each, each], shares[labels != each, each]
            pairs_won = mannwhitneyu(*samples, method="asymptotic").statistic
            aucs.append(pairs_won / (len(samples[0]) * len(samples[1])))
    return {
        "accuracy": float(right.mean()),
        "majority": float(counts.max() / len(labels)),
        "balanced_accuracy": float(np.mean([right[labels == each].mean() for each in present])),
        "auc": float(np.mean(aucs)) if aucs else None,
    }


def _check_targets(targets: Any, output: Tensor) -> None:
    check_classes(targets)
    check_labels(targets, output.shape[-1], losses.cross_entropy)


def _usual(array: np.ndarray) -> np.ndarray:
    """Whole numbers as int64 and others as float32, as networks and losses take them."""
    # What float32 does not hold becomes infinite, and is counted as such by the training.
    with np.errstate(over="ignore"):
        return array.astype(np.int64 if array.dtype.kind in "iub" else np.float32, copy=False)


def _converted(values: Any, kinds: str) -> Any:
    """Arrays of these kinds in their usual types, also in a tuple or dict; mapped files as read."""
    if isinstance(values, dict):
        return {name: _converted(each, kinds) for name, each in values.items()}
    if isinstance(values, tuple):
        return tuple(_converted(each, kinds) for each in values)
    if not isinstance(values, np.ndarray) or isinstance(values, np.memmap):
        return values
    return _usual(values) if values.dtype.kind in kinds else values


def _optimizer(name: str, settings: dict[str, Any]) -> Any:
    """What a phase takes: a name, or a factory of a class of torch.optim."""
    if name in OPTIMIZER_NAMES:
        return name
    kind = getattr(torch.optim, name, None)
    if not isinstance(kind, type):
        allowed = f"{', '.join(OPTIMIZER_NAMES)}, or a class of torch.optim"
        raise InputError("optimizer", name, allowed)
    return functools.partial(kind, **settings)


def _schedule(key: str, given: Any, steps: int) -> Any:
    """The schedule of the settings as a function of the step."""
    if given is None:
        return None
    values = given.plain_without("name")
    if given.name == "warmup-cosine":
        if given.warmup > steps:
            raise InputError(f"{key}.warmup", given.warmup, f"at most {steps}, the steps")
        return schedules.WarmupCosine(steps=steps, **values)
    return {"inverse-time": schedules.InverseTime, "step-decay": schedules.StepDecay}[given.name](
        **values
    )


def _alone(model: nn.Module, x: Any) -> Callable[[Any], Tensor]:
    """`outputs_alone` of a network that does with a batch what it does with each record."""

    def total(output: Any, _: Any) -> Tensor:
        return getattr(output, "logits", output).flatten(1).sum(1)

    network = outputs_alone(model, x)
    refuse_meeting(model, total, network.graph, x, None)  # type: ignore[attr-defined]
    return network
