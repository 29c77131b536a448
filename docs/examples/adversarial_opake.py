"""The cases of adversarial.py by opake, in an environment that has this package's and opake.

python adversarial_opake.py prints {title: [kind, text]} as JSON. A loss gets one record at a time,
as opake's `vmap(grad(loss))` calls it: the network, made functional by opake's `make_functional`,
gets the record as a batch of one.
"""

import json
import sys
import warnings
from collections.abc import Callable

import adversarial
import torch
from adversarial import Case, Outcome, flat, removed, replaced
from opake.dpsgd.clipping import clipped_grad
from opake.dpsgd.noise import gaussian_noise
from opake.functional import make_functional
from opake.random import key
from torch import Tensor, nn


def gradients(case: Case, model: nn.Module, clip: float) -> tuple[Callable, object, tuple]:
    """opake's function of clipped sums, its state, and the parameters."""
    forward, params = make_functional(model, disable_autograd_tracking=True)

    def loss(params: tuple, x: Tensor, label: Tensor) -> Tensor:
        return case.loss(forward(params, x[None]), label[None]).sum()

    return *clipped_grad(loss, clipping_norm=clip, batch_argnums=(1, 2)), params


def clipped_sum(case: Case, x: Tensor, clip: float) -> Tensor:
    """The noise-free sum of one step on all records, flat, in float64."""
    torch.manual_seed(0)
    model, x = case.make(), case.before(x)
    if case.augmentation is not None:
        # opake has no augmentations: they belong to the loop of its user.
        x = case.augmentation.apply(x, x)
    labels = torch.arange(len(x)) % case.labels
    function, state, params = gradients(case, model, clip)
    with adversarial.casting(case):
        found, _ = function(params, x, labels, state=state)
    return flat(found.pytree)


def measured(case: Case) -> Outcome:
    """What opake does with the case, as `adversarial.measured` says it."""
    try:
        sums = [clipped_sum(case, x, case.clip) for x in (case.x, case.other)]
    except Exception as error:  # a tool may refuse by any
        return refusal(error)
    return adversarial.moved(case, sums)


def refusal(error: Exception) -> Outcome:
    """Refuses, if opake found what is wrong; fails, if torch did."""
    meant = type(error).__module__.startswith("opake")
    return Outcome("refuses" if meant else "fails", adversarial.message(error))


def tied() -> Outcome:
    """As `adversarial.tied_error`."""
    case = Case(
        "tie", adversarial.Tied, *removed(adversarial.RECORDS), loss=adversarial.reconstruct
    )
    return adversarial.with_error(measured(case), clipped_sum(case, case.x, 1e6))


def buffer_moved(make: Callable[[], nn.Module]) -> Outcome:
    """As `adversarial.buffer_moved`."""
    means: list[nn.Module] = []

    def watched() -> nn.Module:
        means.append(make())
        return means[-1]

    outcome = measured(Case("buffer", watched, *replaced(adversarial.RECORDS)))
    if outcome.kind in ("refuses", "fails"):
        return outcome
    try:
        first, other = (next(model.buffers()) for model in means)
        distance = float((first - other).norm())
    except RuntimeError as error:
        return Outcome("fails", adversarial.message(error))
    return Outcome("breaks", f"moves by {distance:.3f} without noise")


def second_step() -> Outcome:
    """As `adversarial.second_step`."""
    sums = []
    try:
        for first in replaced(adversarial.RECORDS[:10]):
            torch.manual_seed(0)
            model, second = adversarial.Remembering(8, 3), adversarial.RECORDS[10:20]
            case = Case("memory", lambda model=model: model, first, first)
            function, state, params = gradients(case, model, adversarial.MEMORY_CLIP)
            labels = torch.arange(20) % 3
            _, state = function(params, first, labels[:10], state=state)
            found, _ = function(params, second, labels[10:], state=state)
            sums.append(flat(found.pytree))
    except Exception as error:  # a tool may refuse by any
        return refusal(error)
    return adversarial.of_second(sums)


def noise_shared() -> Outcome:
    """Two trainings that name one key."""
    noisy, clean = [], []
    case = Case("seed", lambda: nn.Linear(8, 3), *removed(adversarial.RECORDS))
    labels = torch.arange(21) % 3
    for clip in (1.0, 0.5):
        torch.manual_seed(0)
        function, state, params = gradients(case, case.make(), clip)
        found, _ = function(params, case.x, labels, state=state)
        add, noise_state = gaussian_noise(noise_multiplier=1 / clip, key=key(7))
        clean.append(flat(found.pytree))
        noisy.append(flat(add(found, noise_state)[0].pytree))
    left = (noisy[0] - noisy[1]) - (clean[0] - clean[1])
    return Outcome("breaks", f"noises differ by {float(left.std()):.1g} C")


OTHERS: dict[str, Callable[[], Outcome]] = {
    "buffer updated from records, in a layer without weights": lambda: buffer_moved(
        lambda: nn.Sequential(adversarial.RunningMean(), nn.Linear(8, 3))
    ),
    "buffer updated from records, in a layer with weights": lambda: buffer_moved(
        adversarial.CentredLinear
    ),
    "a value of one step, kept by a module and used in the next": second_step,
    "weights tied by a function": tied,
    "two trainings with the same seed of the noise": noise_shared,
    "the best of several trainings by private validation records": lambda: Outcome(
        "silent", "counts what its user composes"
    ),
}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    found = {title: measured(case) for title, case in adversarial.CASES.items()}
    found |= {title: make() for title, make in OTHERS.items()}
    json.dump({title: [each.kind, each.text] for title, each in found.items()}, sys.stdout)
