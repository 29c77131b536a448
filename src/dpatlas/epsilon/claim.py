"""What somebody says about a private training: its settings and, perhaps, its epsilon.

`read_claim` is the one entry for the command line, for files and for Python: a mapping of plain
values becomes a `Claim`, or an InputError names the key, what was found and what is allowed.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from dpatlas.core.guard import Domain, integer, one_of, real
from dpatlas.errors import InputError

SAMPLERS = ("poisson", "shuffled", "cyclic", "fixed-size", "full-batch")
# Other words for them.
SPOKEN = {
    "shuffle": "shuffled",
    "full": "full-batch",
    "fixed": "fixed-size",
    "without-replacement": "fixed-size",
}
RELATIONS = ("add_remove", "replace_one", "zero_out")
EVERY_SUM, LAST = "every-sum", "last-iterate"
RELEASED = (EVERY_SUM, LAST)
PHASE_KEYS = ("sampler", "n", "batch", "noise", "steps", "epochs", "drop_last")
CLAIM_KEYS = (
    *PHASE_KEYS,
    "phases",
    "delta",
    "claimed",
    "target",
    "relation",
    "runs",
    "trials",
    "grid",
    "released",
    "name",
    "source",
)
# A rounded number supports a claim by at most this share, and half a unit of its last digit.
ROUNDING = 0.005
# A recomputed number hits a printed one within one unit of the last digit, and this share of it.
NEAR = 0.05
MOST_TRIALS = 100_000
# Within these the accountants compute with doubles; beyond them no training makes sense.
NOISE = real(ge=1e-3, le=1e6)
DELTA = real(ge=1e-50, lt=1)
MOST_RECORDS, MOST_STEPS = 10**12, 10**7
PLAIN_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
Names = Callable[[str], str]


@dataclass(frozen=True)
class Printed:
    """A number as it was printed: "2.92" is known to half a hundredth."""

    text: str

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text)

    @property
    def unit(self) -> float:
        """One unit of the last printed digit."""
        exponent = Decimal(self.text).as_tuple().exponent
        return float(10.0 ** int(exponent))

    @property
    def rounding(self) -> float:
        """By how much what supports the number may exceed it: rounding, at most half a percent."""
        return min(self.unit / 2, ROUNDING * self.value)

    @property
    def window(self) -> float:
        """How far a recomputed number may lie away: a unit of the last digit, at most 5 %."""
        return min(self.unit, NEAR * self.value) * (1 + 1e-9)

    def hit_by(self, number: float) -> bool:
        """Whether `number` is the printed one."""
        return abs(number - self.value) <= self.window


@dataclass(frozen=True)
class Phase:
    """`steps` noisy sums with one sampler, batch size and noise.

    noise: standard deviation on the SUM of clipped gradients over the clip bound; None where it is
    asked for. n is None only for full batches, of which it does not matter. epochs: as given, None
    if steps were. drop_last: of shuffled batches, whether the smaller last one is left out.
    """

    sampler: str
    n: int | None
    batch: int | None
    noise: float | None
    steps: int
    epochs: float | None = None
    drop_last: bool = False

    @property
    def batches_per_epoch(self) -> int:
        """Of shuffled or cyclic batches."""
        assert self.n is not None and self.batch is not None
        return self.n // self.batch if self.drop_last else math.ceil(self.n / self.batch)

    @property
    def epochs_touched(self) -> int:
        """In how many epochs a record of shuffled or cyclic batches can take part."""
        if self.epochs is not None:
            return math.ceil(self.epochs)
        return math.ceil(self.steps / self.batches_per_epoch)

    def describe(self) -> str:
        """In words."""
        many = f"{self.steps} step{'s' if self.steps != 1 else ''}"
        if self.epochs is not None and self.sampler != "full-batch":
            many += f" ({self.epochs:g} epoch{'s' if self.epochs != 1 else ''})"
        noise = "" if self.noise is None else f", noise multiplier {self.noise:g}"
        if self.sampler == "full-batch":
            return f"all records at every step{noise}, {many}"
        share = f"{self.batch} of {self.n}"
        assert self.n is not None and self.batch is not None
        drawn = {
            "poisson": f"Poisson batches, {share} expected (q = {self.batch / self.n:.6g})",
            "fixed-size": f"batches of exactly {share}, drawn without replacement at each step",
            "shuffled": f"shuffled batches, {share}, {self.batches_per_epoch} an epoch",
            "cyclic": f"batches in a fixed order, {share}, {self.batches_per_epoch} an epoch",
        }
        return f"{drawn[self.sampler]}{noise}, {many}"


@dataclass(frozen=True)
class Claim:
    """A training in words, what else was trained on the same records, and the epsilon claimed.

    phases: of the reported training, one after the other. runs: trainings with these settings that
    are released. trials: the other trainings whose results were compared to select this one.
    relation: the neighbour relation meant, None if nobody said.
    """

    phases: tuple[Phase, ...]
    delta: float
    claimed: Printed | None = None
    target: float | None = None
    relation: str | None = None
    runs: int = 1
    trials: tuple[tuple[tuple[Phase, ...], int], ...] = ()
    released: str = EVERY_SUM
    name: str = ""
    source: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """The relation meant, or all."""
        return RELATIONS if self.relation is None else (self.relation,)

    @property
    def n(self) -> int | None:
        """Number of records."""
        return self.phases[0].n

    @property
    def trainings(self) -> list[tuple[tuple[Phase, ...], int]]:
        """Everything trained on the records: phases, and how many times."""
        return [(self.phases, self.runs), *self.trials]

    def map_phases(self, change: Callable[[Phase], Phase]) -> "Claim":
        """The claim with every phase of every training changed."""

        def changed(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
            return tuple(change(phase) for phase in phases)

        trials = tuple((changed(phases), count) for phases, count in self.trials)
        return replace(self, phases=changed(self.phases), trials=trials)

    def with_noise(self, noise: float) -> "Claim":
        """The claim with one noise multiplier wherever none is stated."""
        return self.map_phases(
            lambda phase: replace(phase, noise=noise) if phase.noise is None else phase
        )


def read_claim(settings: Mapping[str, Any], names: Names = str) -> Claim:
    """The claim that plain values describe.

    names: how a key is called where the values come from, for error messages. Raises InputError for
    a key that is unknown, missing, out of range, or that does not go with another.
    """
    given = {key: _plain(value) for key, value in settings.items() if value is not None}
    _known(given, CLAIM_KEYS, names)
    target = given.get("target")
    if target is not None:
        _check(real(gt=0), names("target"), target)
        for other in ("noise", "claimed"):
            if other in given:
                raise InputError(names("target"), f"{names(other)} as well", "one of the two")
    phases = _phases(given, names, noisy=target is None)
    if target is not None and all(phase.noise is not None for phase in phases):
        found, allowed = "a noise for every phase", "a phase without one: it gets what is found"
        raise InputError(names("target"), found, allowed)
    if (delta := given.get("delta")) is None:
        raise InputError(names("delta"), "nothing", f"{DELTA.describe()}, such as 1e-5")
    _check(DELTA, names("delta"), delta)
    relation = given.get("relation")
    if relation is not None:
        relation = relation.replace("-", "_") if isinstance(relation, str) else relation
        one_of(*RELATIONS).check(names("relation"), relation)
    released = given.get("released", EVERY_SUM)
    one_of(*RELEASED).check(names("released"), released)
    runs = given.get("runs", 1)
    _check(integer(ge=1, le=MOST_TRIALS), names("runs"), runs)
    return Claim(
        phases,
        float(delta),
        printed(given["claimed"], names("claimed")) if "claimed" in given else None,
        None if target is None else float(target),
        relation,
        runs,
        _trials(given, phases, names, noisy=target is None),
        released,
        _text(given, "name", names),
        _text(given, "source", names),
    )


def _text(given: Mapping[str, Any], key: str, names: Names) -> str:
    text = str(given.get(key, ""))
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(names(key), repr(text), "text that UTF-8 can write")
    return text


def _phases(given: Mapping[str, Any], names: Names, noisy: bool) -> tuple[Phase, ...]:
    common = {key: given[key] for key in PHASE_KEYS if key in given}
    if "phases" not in given:
        return (_phase(common, names, noisy),)
    listed = given["phases"]
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise InputError(names("phases"), repr(listed), "a list of settings, one entry a phase")
    phases = []
    for number, entry in enumerate(listed, 1):

        def inner(key: str, number: int = number) -> str:
            return names(f"phases[{number}].{key}")

        if not isinstance(entry, Mapping):
            raise InputError(names(f"phases[{number}]"), repr(entry), "settings of a phase")
        _known(entry, PHASE_KEYS, inner)
        phases.append(_phase(_merged(common, entry), inner, noisy))
    if len({phase.n for phase in phases}) > 1:
        found = " and ".join(str(phase.n) for phase in phases)
        raise InputError(names("phases"), f"n of {found}", "the same records in every phase")
    return tuple(phases)


def _phase(given: Mapping[str, Any], names: Names, noisy: bool) -> Phase:
    spoken = given.get("sampler")
    if spoken is None:
        raise InputError(names("sampler"), "nothing", f"one of {', '.join(SAMPLERS)}")
    sampler = str(spoken).replace("_", "-").lower()
    sampler = SPOKEN.get(sampler, sampler)
    one_of(*SAMPLERS).check(names("sampler"), sampler)
    full = sampler == "full-batch"
    n, batch = given.get("n"), given.get("batch")
    if n is not None or not full:
        _check(integer(ge=1, le=MOST_RECORDS), names("n"), n)
    if full:
        if batch is not None and batch != n:
            raise InputError(names("batch"), batch, "nothing, or n, with full batches")
        batch = n
    else:
        _check(integer(ge=1, le=n), names("batch"), batch)
    noise = given.get("noise")
    if noisy or noise is not None:
        _check(NOISE, names("noise"), noise)
    drop_last = given.get("drop_last", False)
    if not isinstance(drop_last, bool):
        raise InputError(names("drop_last"), repr(drop_last), "true or false")
    if drop_last and sampler not in ("shuffled", "cyclic"):
        raise InputError(names("drop_last"), f"{sampler} batches", "shuffled or cyclic ones")
    steps, epochs = given.get("steps"), given.get("epochs")
    if (steps is None) == (epochs is None):
        found = "both" if steps is not None else "neither"
        raise InputError(f"{names('steps')} and {names('epochs')}", found, "one of the two")
    phase = Phase(sampler, n, batch, None if noise is None else float(noise), 0, None, drop_last)
    if steps is not None:
        _check(integer(ge=1, le=MOST_STEPS), names("steps"), steps)
        return replace(phase, steps=steps)
    assert epochs is not None
    _check(real(gt=0, le=1e6), names("epochs"), epochs)
    a_pass: float = 1
    if sampler in ("shuffled", "cyclic"):
        a_pass = phase.batches_per_epoch
    elif n is not None and batch is not None and not full:
        a_pass = n / batch
    # Rounded up, but for the rounding of doubles.
    count = max(1, math.ceil(epochs * a_pass - 1e-9))
    integer(le=MOST_STEPS).check(f"{names('epochs')}, as steps", count)
    return replace(phase, steps=count, epochs=float(epochs))


def _trials(
    given: Mapping[str, Any], phases: tuple[Phase, ...], names: Names, noisy: bool
) -> tuple[tuple[tuple[Phase, ...], int], ...]:
    """Other trainings than the reported one, whose settings may be a number, a list or a grid."""
    trials, grid = given.get("trials"), given.get("grid")
    if trials is not None and grid is not None:
        raise InputError(names("trials"), f"{names('grid')} as well", "one of the two")
    if trials is None and grid is None:
        return ()
    if isinstance(trials, int) and not isinstance(trials, bool):
        _check(integer(ge=1, le=MOST_TRIALS), names("trials"), trials)
        return ((phases, trials - 1),) if trials > 1 else ()
    if grid is not None:
        changes, key = _product(grid, names), "grid"
    elif isinstance(trials, Sequence) and not isinstance(trials, str):
        changes, key = list(trials), "trials"
    else:
        allowed = "how many trainings were compared, this one included, or a list of settings"
        raise InputError(names("trials"), repr(trials), allowed)
    base = {name: given[name] for name in (*PHASE_KEYS, "phases") if name in given}
    others: list[tuple[Phase, ...]] = []
    reported = None
    for number, change in enumerate(changes, 1):

        def inner(name: str, number: int = number, key: str = key) -> str:
            return names(f"{key}[{number}].{name}")

        if not isinstance(change, Mapping):
            raise InputError(names(f"{key}[{number}]"), repr(change), "settings that it changes")
        _known(change, (*PHASE_KEYS, "phases"), inner)
        others.append(_phases(_changed(base, change), inner, noisy))
        # An entry that changes nothing is a training that differs in what no key says.
        if reported is None and change and _released(others[-1]) == _released(phases):
            reported = number - 1
    if reported is not None:
        del others[reported]
    if any(phase.n != phases[0].n for each in others for phase in each):
        raise InputError(names(key), "other numbers of records", "trials on the same records")
    return tuple((each, 1) for each in others)


def _released(phases: tuple[Phase, ...]) -> list[Phase]:
    """What a training releases, whether its steps were given or its epochs."""
    return [
        phase if phase.sampler in ("shuffled", "cyclic") else replace(phase, epochs=None)
        for phase in phases
    ]


def _changed(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trial: a change holds in every phase."""
    given = _merged(base, change)
    if "phases" in given and "phases" not in change:
        given["phases"] = [_merged(phase, change) for phase in given["phases"]]
    return given


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `change` laid over it: steps take the place of epochs, and epochs of steps."""
    merged = {**base, **change}
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if one in change and other not in change:
            merged.pop(other, None)
    return merged


def _product(grid: Any, names: Names) -> list[dict[str, Any]]:
    if not isinstance(grid, Mapping) or not grid:
        raise InputError(names("grid"), repr(grid), "lists of values by setting")
    _known(grid, PHASE_KEYS, lambda key: names(f"grid.{key}"))
    for key, values in grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise InputError(names(f"grid.{key}"), repr(values), "a list of values")
    size = math.prod(map(len, grid.values()))
    _check(integer(le=MOST_TRIALS), f"{names('grid')}, number of trials", size)
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def printed(claimed: Any, where: str) -> Printed:
    """An epsilon as it was published, a number or its digits; InputError for any other value."""
    claimed = _plain(claimed)
    text = claimed if isinstance(claimed, str) else repr(claimed)
    text = text.strip()
    try:
        # Decimal takes underscores and digits of other scripts.
        value = Decimal(text if PLAIN_NUMBER.fullmatch(text) else "NaN")
    except InvalidOperation:
        value = Decimal("NaN")
    if not (value.is_finite() and 0 < value < Decimal(10**12) and Printed(text).unit):
        raise InputError(where, repr(claimed), "a number > 0 and < 1e12, as it was printed")
    return Printed(text)


def _plain(value: Any) -> Any:
    """Numbers of numpy, in lists and mappings too, as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _check(domain: Domain, where: str, value: Any) -> None:
    if value is None:
        raise InputError(where, "nothing", domain.describe())
    domain.check(where, value)


def _known(given: Mapping[Any, Any], keys: Sequence[str], names: Names) -> None:
    for key in given:
        if key not in keys:
            raise InputError(names(str(key)), "an unknown key", ", ".join(keys))
