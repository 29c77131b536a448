"""Inputs through which a record escapes its clip bound, sent through several tools.

Each case is two neighbouring data sets under one network and loss. `measured(case, tool)` computes
the noise-free clipped sum of both and says how far they are apart, in units of the clip bound C, or
with which message the tool refuses. A record that is removed may move the sum by C, a replaced one
by 2 C. Tools: dpatlas, Opacus by hooks, Opacus by ghost clipping; adversarial_opake.py and
adversarial_jax.py send the same cases through opake and jax-privacy.
"""

import contextlib
import io
import itertools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from opacus.validators.errors import UnsupportedModuleError
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpatlas.errors import InputError
from dpatlas.privacy import Cyclic, FullBatch, Noise, Poisson, PrivateTraining, TrainingPhase

TOOLS = ("dpatlas", "Opacus hooks", "Opacus ghost")
# No two updates of ours share their noise.
UPDATES = itertools.count()
# Rounding of a float32 sum that moves by C.
ROUNDING = 1e-4


class Apply(nn.Module):
    """A function as a layer without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Tied(nn.Module):
    """An autoencoder whose decoder uses the encoder's weights by a function, not by a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t())


class RunningMean(nn.Module):
    """Subtracts a running mean of the records in evaluation mode, and nothing in training."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x - self.mean
        self.mean = (0.9 * self.mean + 0.1 * x.mean(0)).detach()
        return x


class CentredLinear(nn.Linear):
    """The same, in a layer with weights."""

    def __init__(self) -> None:
        super().__init__(8, 3)
        self.centre = RunningMean()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.centre(x))


class Remembering(nn.Linear):
    """Subtracts the mean of the records of the step before."""

    kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        centre = 0 if self.kept is None else self.kept
        self.kept = x.detach().mean(0)
        return super().forward(x - centre)


class Centred(torch.autograd.Function):
    """Subtracts the mean of the batch, also under vmap, by a rule of its own."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x - x.mean(0)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info, in_dims, x: Tensor) -> tuple[Tensor, int]:
        rows = x.movedim(in_dims[0], 0)
        return rows - rows.mean(0), 0


class Standardised:
    """An augmentation of one view that standardises by the batch."""

    views = 1

    def draw(self, draws, records: int) -> Tensor:
        return torch.zeros(records, 1)

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return (x - x.mean(0)) / (x.std(0, correction=0) + 1e-6)


def classify(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def with_temperature(outputs: Tensor, labels: Tensor) -> Tensor:
    return classify(outputs / outputs.std(correction=0), labels)


def contrastive(outputs: Tensor, labels: Tensor) -> Tensor:
    """Each record's output against those of the batch; the labels are ignored."""
    unit = F.normalize(outputs, dim=1)
    return F.cross_entropy(10 * unit @ unit.T, torch.arange(len(unit)), reduction="none")


def reconstruct(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - 1).square().sum(1)


def summed(outputs: Tensor, labels: Tensor) -> Tensor:
    return outputs.flatten(1).sum(1)


@dataclass(frozen=True)
class Case:
    """Two neighbouring data sets under one network and loss."""

    title: str
    make: Callable[[], nn.Module]
    x: Tensor
    other: Tensor
    loss: Callable[[Tensor, Tensor], Tensor] = classify
    clip: float = 1e-2
    labels: int = 3
    augmentation: Standardised | None = None
    # Applied to the records before any tool sees them.
    before: Callable[[Tensor], Tensor] = torch.clone
    autocast: bool = False

    @property
    def allowed(self) -> int:
        """What a record may move the sum by, in units of the clip bound."""
        return 1 if len(self.x) != len(self.other) else 2


@dataclass(frozen=True)
class Outcome:
    """What a tool does, and the message or the number.

    kind: refuses; fails, where the arithmetic does not work out; warns; keeps to the bound, or
    breaks it; silent, where nothing is broken but the record of the training does not tell.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def normals(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def removed(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x[:-1]


def replaced(x: Tensor) -> tuple[Tensor, Tensor]:
    other = x.clone()
    other[0] = 300 * x[0]
    return x, other


def first_layer(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(Apply(function), nn.Linear(8, 3))


def folded() -> nn.Module:
    """Frames as records, each classified, and the outputs averaged."""
    return nn.Sequential(
        Apply(lambda x: x.reshape(-1, 8)),
        nn.Linear(8, 3),
        Apply(lambda rows: rows.reshape(-1, 16, 3).mean(1)),
    )


def folded_then_pooled() -> nn.Module:
    return nn.Sequential(
        Apply(lambda x: x.reshape(-1, 8)),
        nn.Linear(8, 6),
        Apply(lambda rows: rows.reshape(-1, 16, 6).mean(1)),
        nn.Linear(6, 3),
    )


def time_first() -> nn.Module:
    return nn.Sequential(
        Apply(lambda x: x.transpose(0, 1)), nn.Linear(8, 3), Apply(lambda rows: rows.mean(0))
    )


# Positions that are added and subtracted in turn: in the gradient their offset cancels.
SIGNS = torch.tensor([1.0, -1.0]).repeat(8)


def differences() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 16), Apply(lambda rows: (rows * SIGNS[:, None]).mean(1)[:, :3])
    )


def large_gradient() -> nn.Module:
    return nn.Linear(3162, 3162, bias=False)


def half_precision() -> nn.Module:
    return nn.Linear(8, 3).to(torch.bfloat16)


# Clip bound of the two steps of `second_step`.
MEMORY_CLIP = 1e-2
FRAMES = normals(8, 1, 8).expand(8, 16, 8).contiguous()
RECORDS = normals(21, 8)
CASES = {
    case.title: case
    for case in (
        Case("frames folded into the batch, outputs pooled", folded, *removed(FRAMES), clip=1e-3),
        Case("the same, a layer after the pooling", folded_then_pooled, *removed(FRAMES)),
        Case("time first inside the network", time_first, *removed(normals(8, 16, 8))),
        *(
            Case(
                f"linear layer over positions, offset {offset:g}",
                differences,
                *removed(normals(2, 16, 8) + offset),
                clip=0.1,
            )
            for offset in (1e4, 1e6)
        ),
        Case(
            "`x - x[:1]` inside the network", first_layer(lambda x: x - x[:1]), *replaced(RECORDS)
        ),
        Case(
            "`x.cumsum(0)` inside the network",
            first_layer(lambda x: x.cumsum(0)),
            *replaced(RECORDS),
        ),
        Case(
            "`autograd.Function` with a vmap rule that reads the batch",
            first_layer(lambda x: Centred.apply(x)),
            *replaced(RECORDS),
        ),
        Case(
            "loss with a temperature of the batch",
            lambda: nn.Linear(8, 3),
            *replaced(RECORDS),
            loss=with_temperature,
            clip=0.3,
        ),
        Case("contrastive loss", lambda: nn.Linear(8, 3), *removed(RECORDS), loss=contrastive),
        Case(
            "augmentation that standardises by the batch",
            lambda: nn.Linear(8, 3),
            *replaced(RECORDS),
            augmentation=Standardised(),
        ),
        Case(
            "records standardised by their own statistics beforehand",
            lambda: nn.Linear(8, 3),
            *replaced(RECORDS),
            before=lambda x: Standardised().apply(x, x),
        ),
        Case(
            "BatchNorm in training mode",
            lambda: nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)),
            *replaced(RECORDS),
        ),
        Case(
            "bfloat16 parameters, 4,096 records",
            half_precision,
            *removed(normals(4096, 8).bfloat16()),
            clip=1.0,
        ),
        Case(
            "autocast to bfloat16", lambda: nn.Linear(8, 3), *removed(normals(2, 8)), autocast=True
        ),
        Case(
            "1e7 equal entries of a gradient",
            large_gradient,
            *removed(torch.ones(2, 3162)),
            loss=summed,
            clip=1.0,
        ),
    )
}


def measured(case: Case, tool: str) -> Outcome:
    """What the tool does with the case."""
    sums = []
    try:
        for x in (case.x, case.other):
            sums.append(clipped_sum(case, tool, x, case.clip))
    except Exception as error:  # a tool may refuse by any
        return refusal(error)
    return moved(case, sums)


def moved(case: Case, sums: list[Tensor]) -> Outcome:
    """Whether the sums of both data sets are no farther apart than a record may move them."""
    distance = float((sums[0] - sums[1]).norm()) / case.clip
    kept = distance <= case.allowed * (1 + ROUNDING)
    bound = "C" if case.allowed == 1 else "2 C"
    return Outcome("keeps" if kept else "breaks", f"{distance:.4g} C of {bound}")


def refusal(error: Exception) -> Outcome:
    """Refuses, if the tool found what is wrong; fails, if the arithmetic did not work out."""
    meant = isinstance(error, (InputError, UnsupportedModuleError, NotImplementedError))
    return Outcome("refuses" if meant else "fails", message(error))


def message(error: Exception) -> str:
    """The first sentence of what a tool says, with the kind of the error."""
    line = str(error).strip().splitlines()[0]
    # A list of errors stands for its first.
    line = re.sub(r'^[\[(]*(\w+Error)\("', "", line)
    sentence = line.split(". ")[0]
    shortened = sentence if len(sentence) <= 150 else f"{sentence[:150].rsplit(' ', 1)[0]} ..."
    return f"{type(error).__name__}: {shortened}".replace("|", "/")


def clipped_sum(case: Case, tool: str, x: Tensor, clip: float) -> Tensor:
    """The noise-free sum of one step on all records, flat, in float64."""
    torch.manual_seed(0)
    model, x = case.make(), case.before(x)
    labels = torch.arange(len(x)) % case.labels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if tool == "dpatlas":
            return _ours(case, model, x, labels, clip)
        with casting(case):
            return _opacus(case, tool, model, x, labels, clip)


def casting(case: Case) -> contextlib.AbstractContextManager[object]:
    """torch's autocast, where the case is of it."""
    return torch.autocast("cpu", torch.bfloat16) if case.autocast else contextlib.nullcontext()


def _ours(case: Case, model: nn.Module, x: Tensor, labels: Tensor, clip: float) -> Tensor:
    sums: list[Tensor] = []
    training = PrivateTraining(
        model,
        [TrainingPhase(FullBatch(len(x)), 0.0, clip, 1, lr=1e-9)],
        x,
        labels,
        noise=Noise(f"update {next(UPDATES)}", source="keyed"),
        loss=case.loss,
        augmentation=case.augmentation,
        autocast=torch.bfloat16 if case.autocast else None,
        on_update=lambda step, found: sums.append(flat(found.values())),
    )
    training.run()
    return sums[0]


class Criterion(nn.Module):
    """A loss by record in the form that Opacus expects of ghost clipping."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.loss, self.reduction = loss, "sum"

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        losses = self.loss(outputs, labels)
        return losses.sum() if self.reduction == "sum" else losses


def _opacus(
    case: Case, tool: str, model: nn.Module, x: Tensor, labels: Tensor, clip: float
) -> Tensor:
    if case.augmentation is not None:
        # Opacus has no augmentations: they belong to the loop of its user.
        x = case.augmentation.apply(x, x)
    mode = tool.removeprefix("Opacus ")
    criterion = Criterion(case.loss)
    private = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-9),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(x, labels), batch_size=len(x)),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        poisson_sampling=False,
        loss_reduction="sum",
        grad_sample_mode=mode,
    )
    wrapped, optimizer = private[:2]
    if mode == "ghost":
        private[2](wrapped(x), labels).backward()
        optimizer.accumulate()
    else:
        criterion(wrapped(x), labels).backward()
        optimizer.clip_and_accumulate()
    return flat(each.summed_grad for each in model.parameters())


def flat(tensors) -> Tensor:
    return torch.cat([each.detach().double().flatten() for each in tensors])


def tied_error(tool: str) -> Outcome:
    """How far the unclipped sum of a functional tie is from autograd's gradient."""
    case = Case("tie", Tied, *removed(RECORDS), loss=reconstruct)
    try:
        found = clipped_sum(case, tool, RECORDS, 1e6)
    except Exception as error:  # a tool may refuse by any
        return refusal(error)
    return with_error(measured(case, tool), found)


def with_error(outcome: Outcome, found: Tensor) -> Outcome:
    """The outcome, and how far an unclipped sum is from autograd's gradient."""
    torch.manual_seed(0)
    model = Tied()
    reconstruct(model(RECORDS), RECORDS).sum().backward()
    true = flat(each.grad for each in model.parameters())
    error = float((found - true).norm() / true.norm())
    return Outcome(outcome.kind, f"{outcome.text}; gradient wrong by {error:.0%}")


def buffer_moved(tool: str, make: Callable[[], nn.Module]) -> Outcome:
    """How far a record moves a buffer that is published with the weights."""
    case = Case("buffer", make, *replaced(RECORDS))
    means: list[nn.Module] = []

    def watched() -> nn.Module:
        means.append(case.make())
        return means[-1]

    watching = Case(case.title, watched, case.x, case.other)
    outcome = measured(watching, tool)
    if outcome.kind == "refuses":
        return outcome
    first, other = (next(model.buffers()) for model in means)
    distance = float((first - other).norm())
    return Outcome("breaks", f"moves by {distance:.3f} without noise")


def second_step(tool: str) -> Outcome:
    """How far a record of the first step moves the sum of the second, which it is not in."""
    try:
        sums = [second_sum(tool, first) for first in replaced(RECORDS[:10])]
    except Exception as error:  # a tool may refuse by any
        return refusal(error)
    return of_second(sums)


def of_second(sums: list[Tensor]) -> Outcome:
    """The outcome of two sums that must be equal."""
    distance = float((sums[0] - sums[1]).norm()) / MEMORY_CLIP
    kind = "keeps" if distance <= ROUNDING else "breaks"
    return Outcome(kind, f"moves the next sum by {distance:.4g} C")


def second_sum(tool: str, first: Tensor) -> Tensor:
    """The noise-free sum of a second step on other records than the first's."""
    torch.manual_seed(0)
    model, second, labels = Remembering(8, 3), RECORDS[10:20], torch.arange(20) % 3
    if tool == "dpatlas":
        sums: list[Tensor] = []
        PrivateTraining(
            model,
            [TrainingPhase(Cyclic(20, 10), 0.0, MEMORY_CLIP, 2, lr=1e-9)],
            torch.cat([first, second]),
            labels,
            noise=Noise(f"update {next(UPDATES)}", source="keyed"),
            loss=classify,
            on_update=lambda step, found: sums.append(flat(found.values())),
        ).run()
        return sums[1]
    case = Case("memory", lambda: model, first, first, clip=MEMORY_CLIP)
    _opacus(case, tool, model, first, labels[:10], MEMORY_CLIP)
    kept = model.kept
    torch.manual_seed(0)
    model = Remembering(8, 3)
    model.kept = kept
    return _opacus(case, tool, model, second, labels[10:], MEMORY_CLIP)


def noise_shared(tool: str) -> Outcome:
    """How much noise is left in the difference of two trainings' noisy sums."""
    if tool == "dpatlas":
        sums = []
        try:
            for clip in (1.0, 0.5):
                training = PrivateTraining(
                    nn.Linear(8, 3),
                    [TrainingPhase(FullBatch(21), 1 / clip, clip, 1, lr=0.1)],
                    RECORDS,
                    torch.arange(21) % 3,
                    noise=Noise("my run", source="keyed"),
                    on_update=lambda step, found: sums.append(flat(found.values())),
                )
                training.run()
        except InputError as error:
            return Outcome("refuses", message(error))
        return Outcome("breaks", "two trainings drew the same noise")
    noisy, clean = [], []
    for clip in (1.0, 0.5):
        for sigma, kept in ((1 / clip, noisy), (0.0, clean)):
            torch.manual_seed(0)
            model = nn.Linear(8, 3)
            wrapped, optimizer, _ = PrivacyEngine().make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                data_loader=DataLoader(TensorDataset(RECORDS, torch.arange(21) % 3), batch_size=21),
                noise_multiplier=sigma,
                max_grad_norm=clip,
                poisson_sampling=False,
                loss_reduction="sum",
                noise_generator=torch.Generator().manual_seed(7),
            )
            classify(wrapped(RECORDS), torch.arange(21) % 3).sum().backward()
            optimizer.clip_and_accumulate()
            optimizer.add_noise()
            kept.append(flat(each.grad for each in model.parameters()))
    left = (noisy[0] - noisy[1]) - (clean[0] - clean[1])
    return Outcome("breaks", f"noises differ by {float(left.std()):.1g} C")


def restored(tool: str) -> Outcome:
    """The epsilon that is stated for 9 steps without noise that go on with noise 50."""
    x, labels = normals(64, 8), torch.arange(64) % 3
    if tool == "dpatlas":
        noise = Noise("restored", source="keyed")

        def ours(sigma: float) -> PrivateTraining:
            phase = TrainingPhase(Poisson(64, 16), sigma, 1.0, 10, lr=0.1)
            return PrivateTraining(nn.Linear(8, 3), [phase], x, labels, noise=noise)

        first = ours(0.0)
        for _ in range(9):
            first.step()
        try:
            ours(50.0).restore(*first.state())
        except InputError as error:
            return Outcome("refuses", message(error))
        return Outcome("breaks", "goes on")
    file = io.BytesIO()
    texts = []
    for engine_sigma, steps in ((0.0, 9), (50.0, 1)):
        model, engine = nn.Linear(8, 3), PrivacyEngine()
        wrapped, optimizer, _ = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(x, labels), batch_size=16),
            noise_multiplier=engine_sigma,
            max_grad_norm=1.0,
        )
        if engine_sigma:
            file.seek(0)
            engine.load_checkpoint(path=file, module=wrapped, optimizer=optimizer)
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(wrapped(x[:16]), labels[:16]).backward()
            optimizer.step()
        if not engine_sigma:
            engine.save_checkpoint(path=file, module=wrapped, optimizer=optimizer)
    try:
        texts.append(f"{engine.get_epsilon(1e-5):.3g}")
    except Exception as error:  # what the accountant says of no noise
        return Outcome("fails", f"`get_epsilon` raises {type(error).__name__}")
    sigma = optimizer.noise_multiplier
    kind = "keeps" if texts[0] == "inf" else "breaks"
    return Outcome(kind, f"goes on with noise {sigma:g} and states epsilon {texts[0]}")


def selected(tool: str) -> Outcome:
    """What is said of settings that were selected by private validation records."""
    if tool == "dpatlas":
        training = PrivateTraining(
            nn.Linear(8, 3),
            [TrainingPhase(Poisson(21, 7), 2.0, 1.0, 1, lr=0.1)],
            RECORDS,
            torch.arange(21) % 3,
            noise=Noise(),
        )
        training.run()
        (said,) = training.ledger()["chosen_on_private_data"]
        return Outcome("warns", f"the ledger says `{said['cost']}`")
    return Outcome("silent", "`get_epsilon` is of one training")


OTHERS = {
    "buffer updated from records, in a layer without weights": partial(
        buffer_moved, make=lambda: nn.Sequential(RunningMean(), nn.Linear(8, 3))
    ),
    "buffer updated from records, in a layer with weights": partial(
        buffer_moved, make=CentredLinear
    ),
    "a value of one step, kept by a module and used in the next": second_step,
    "weights tied by a function": tied_error,
    "two trainings with the same seed of the noise": noise_shared,
    "a checkpoint without noise goes on with noise 50": restored,
    "the best of several trainings by private validation records": selected,
}


def outcome(title: str, tool: str) -> Outcome:
    """What the tool does with the case of that title."""
    if title in OTHERS:
        return OTHERS[title](tool)
    return measured(CASES[title], tool)


if __name__ == "__main__":
    for title in (*CASES, *OTHERS):
        for tool in TOOLS:
            print(f"{title} | {tool} | {outcome(title, tool)}")
