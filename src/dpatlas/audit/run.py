"""What the audit hands to one run of the training, and what it gets back."""

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from dpatlas.audit.claim import Claim
from dpatlas.base.scripts import error_place, printing_to_stderr
from dpatlas.errors import InputError

Train = Callable[["Run"], Any]
# Called with the number of sums seen before, and the values as a flat float64 array.
OnValues = Callable[[int, np.ndarray], None]
# Names of facts that the audit looks at.
RECORDS, OUTSIDE = "records of a step", "records read outside of steps"
# An infinite score counts as this.
LARGEST = 1e100
# A number of a sum, in units of C: its square fits float64, and itself float32.
LARGEST_SUM = 1e30


class OutOfTime(Exception):
    """The time for an audit is up, and no run may begin."""


class Run:
    """One run of the training on one of the two data sets.

    member: whether the canary is in the data. included: (canaries,) bool, the same for each canary
    of an audit by one run. seed: everything random in the run derives from it (random, numpy and
    torch are seeded with it before the run begins). claim: the claim that is audited. silenced:
    where it is not None, about half of the records have no gradient, so that they may act on
    nothing; where it is true, copies of the canary stand in their places. replayed_sum: gives the
    noisy sum of a step, from 0, of a run without the canary, times its `scales`; this run goes on
    from it in the place of its own.
    """

    def __init__(
        self,
        claim: Claim,
        seed: int,
        included: np.ndarray,
        on_sum: OnValues | None = None,
        on_weights: OnValues | None = None,
        silenced: bool | None = None,
        replayed_sum: Callable[[int], np.ndarray] | None = None,
    ):
        self.claim, self.seed, self.included = claim, seed, included
        self.silenced = silenced
        self.sums = 0
        # Numbers of the report by name; whether the training can silence records, has planted the
        # canary by `plant`, and can go on from another sum.
        self.facts: dict[str, list[float]] = {}
        self.can_silence = self.has_planted = self.can_replay = False
        self._replayed_sum = replayed_sum
        # By step what a sum in units of C has to be multiplied by, to be the optimizer's gradient.
        self.scales: list[float] = []
        # Called when the run has ended.
        self.at_end: list[Callable[[], None]] = []
        # A data set in which canaries were planted.
        self.planted: Any = None
        self._on_sum, self._on_weights = on_sum, on_weights
        self._size: int | None = None

    @property
    def member(self) -> bool:
        """Whether the canary is in the data. InputError in an audit by one run, which has many."""
        if len(self.included) != 1:
            raise InputError("run.member", f"{len(self.included)} canaries", "run.included")
        return bool(self.included[0])

    def loss_weights(self, records: int) -> np.ndarray:
        """(records,) numbers by which to multiply each record's loss: 0 for a blank record, else 1.

        In some runs half of the records have weight 0 as well: what they hold may change nothing
        then. Statistics of the records and rules that look at them show there.
        """
        self.can_silence = True
        weights = np.ones(records)
        weights[: len(self.included)] = self.counted
        weights[self.silent_places(records)] = 0
        return weights

    def silent_places(self, records: int) -> np.ndarray:
        """Places of the records, of so many, that have weight 0 in this run, but for canaries."""
        many = len(self.included)
        if self.silenced is None:
            return np.zeros(0, dtype=int)
        draws = np.random.default_rng([self.seed, records])
        return many + np.flatnonzero(draws.permutation(max(0, records - many)) % 2)

    @property
    def replayed_sum(self) -> np.ndarray | None:
        """(d,) from which the step that was seen last goes on; None for its own."""
        return None if self._replayed_sum is None else self._replayed_sum(self.sums - 1)

    @property
    def counted(self) -> np.ndarray:
        """(canaries,) bool: whether the loss of the record in its place counts."""
        return self.included | (self.claim.relation == "replace_one")

    def fact(self, name: str, value: float) -> None:
        """Name a number of this step in the report, such as the records drawn or the divisor."""
        self.facts.setdefault(name, []).append(float(value))

    def see(self, noisy_sum: Any) -> None:
        """The attacker sees this noisy sum, in units of C: arrays or tensors, or a list of them.

        Call it once a step with the sum of clipped gradients plus noise, before the division by the
        batch size, divided by the clip bound. Raises InputError for a sum of another size than the
        first, and for one that is empty or not finite. Numbers beyond 1e30 count as 1e30.
        """
        flat = flatten("run.see", noisy_sum)
        if not len(flat):
            raise InputError("run.see", "a sum of 0 numbers", "at least one number")
        if self._size not in (None, len(flat)):
            found = f"a sum of {len(flat)} numbers"
            raise InputError("run.see", found, f"{self._size} numbers, as in the first step")
        if not np.isfinite(flat).all():
            raise InputError("run.see", "a sum with NaN or infinity", "finite numbers")
        self._size = len(flat)
        if self._on_sum is not None:
            self._on_sum(self.sums, flat.clip(-LARGEST_SUM, LARGEST_SUM))
        self.sums += 1

    def weights(self, parameters: Any) -> None:
        """The weights that the training goes on from; call it after each update, if at all.

        They show whether a record acts on an update beside the noisy sum, by a learning rate that
        looks at its loss for one. No bound uses them.
        """
        if self._on_weights is not None:
            self._on_weights(self.sums, flatten("run.weights", parameters))


def flatten(name: str, value: Any) -> np.ndarray:
    """Numbers, arrays, tensors, lists and dicts of them as one float64 vector, in their order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, list | tuple):
        parts = [flatten(name, each) for each in value]
        return np.concatenate(parts) if parts else np.empty(0)
    try:
        if hasattr(value, "detach") and hasattr(value, "to_dense"):
            value = value.detach().to_dense().cpu()
            # numpy has no bfloat16.
            value = (value.double() if value.is_floating_point() else value).numpy()
        array = np.asarray(value)
        if array.dtype.kind in "cSUMm":
            raise TypeError
        return array.astype(float).reshape(-1)
    except (TypeError, ValueError):
        raise InputError(name, type(value).__name__, "numbers, arrays or tensors") from None


def execute(train: Train, run: Run) -> dict[str, np.ndarray]:
    """What the run published, flat by name. An exception of the training becomes an InputError.

    What the training prints goes to the standard error: the standard output is the report's.
    """
    seed_everything(run.seed)
    try:
        with printing_to_stderr(), _exiting_by_exception():
            flat = _flat(train(run))
    except (InputError, OutOfTime, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever a stranger's code raises
        found = error_place(error)
        raise InputError("the training", found, "a training that runs to its end") from error
    finally:
        for end in run.at_end:
            end()
    if not any(map(len, flat.values())) and not run.sums:
        allowed = "a score, arrays by name, or sums given to run.see"
        raise InputError("the training", "nothing that an attacker sees", allowed)
    return flat


@contextmanager
def _exiting_by_exception() -> Iterator[None]:
    """Where the code inside calls `os._exit`, SystemExit: else the process ends without a report.

    Processes that it forks end as they ask to.
    """
    process, leave = os.getpid(), os._exit

    def exit_or_raise(status: int) -> NoReturn:
        if os.getpid() != process:
            leave(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = exit_or_raise
    try:
        yield
    finally:
        os._exit = leave


def _flat(published: Any) -> dict[str, np.ndarray]:
    """What a training returned, flat by name; a generator in it is run here."""
    if isinstance(published, Iterator):
        allowed = "a function that returns what it publishes"
        raise InputError("the training", "a generator", allowed)
    if published is None:
        published = {}
    if hasattr(published, "state_dict"):
        published = {"weights": list(published.state_dict().values())}
    if not isinstance(published, Mapping):
        published = {"score": published}
    flat = {}
    for name, value in published.items():
        values = flatten(f"published {name}", value)
        if np.isnan(values).any():
            raise InputError(f"published {name}", "NaN", "numbers")
        flat[str(name)] = values.clip(-LARGEST, LARGEST)
    return flat


def seed_everything(seed: int) -> None:
    """Seed random, numpy and, where it is loaded, torch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (other people's code uses the global generator)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
