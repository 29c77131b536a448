"""What somebody says about a private training: its settings and, perhaps, its epsilon.

`read_claim` is the one entry for the command line, for files and for Python: a mapping of plain
values becomes a `EpsilonClaim`, or an InputError names the key, what was found and what is allowed.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from dpatlas.base.fields import Model, setting
from dpatlas.base.guard import integer, number_in, one_of, real
from dpatlas.base.schema import joined, validated
from dpatlas.errors import InputError

# What audits take, and what the checker takes beside it.
Plain = Literal["poisson", "shuffled", "cyclic", "fixed-size", "full-batch"]
Sampler = Literal[Plain, "truncated-poisson", "balls-in-bins"]
Noisy = Literal["laplace", "discrete-laplace", "discrete-gaussian"]
Mechanism = Literal["gaussian", Noisy, "randomized-response", "tree", "banded"]
Relation = Literal["add_remove", "replace_one", "zero_out"]
Released = Literal["every-sum", "last-iterate"]
SAMPLERS, RELATIONS, RELEASED = map(get_args, (Sampler, Relation, Released))
EVERY_SUM = RELEASED[0]
IN_ORDER = ("shuffled", "cyclic", "balls-in-bins")
NOISY = get_args(Noisy)
# The samplers that go with a mechanism, the one that is meant if none is given first.
SAMPLERS_OF: dict[str, tuple[str, ...]] = {
    "gaussian": SAMPLERS,
    **dict.fromkeys(NOISY, ("poisson", "full-batch")),
    "randomized-response": ("full-batch",),
    "tree": ("shuffled", "cyclic"),
    "banded": ("poisson", "cyclic"),
}
# Keys that belong to one mechanism or sampler.
OWN = {"buckets": "randomized-response", "bands": "banded", "largest_batch": "truncated-poisson"}
# Other words for samplers.
SPOKEN = {
    "shuffle": "shuffled",
    "full": "full-batch",
    "fixed": "fixed-size",
    "without-replacement": "fixed-size",
}
# Keys whose texts are no numbers.
WORDS = ("claimed", "name", "source", "sampler", "mechanism", "relation", "released")
# A rounded number supports a claim by at most this share, and half a unit of its last digit.
ROUNDING = 0.005
# A recomputed number hits a printed one within one unit of the last digit, and this share of it.
NEAR = 0.05
MOST_TRIALS = 100_000
# Within these the accountants compute with doubles; beyond them no training makes sense.
NOISE = real(ge=1e-3, le=1e6)
# dp-accounting tables every value of noise on whole numbers; an answer at random has a probability.
WHOLE = real(ge=0.2, le=1e5)
NOISE_OF = {**dict.fromkeys(NOISY[1:], WHOLE), "randomized-response": real(gt=0, le=1)}
MOST_RECORDS, MOST_STEPS = 10**12, 10**7
Names = Callable[[str], str]
# Text that UTF-8 can write.
Text = Annotated[str, AfterValidator(lambda given: given.encode().decode())]


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


def printed(claimed: Any, where: str = "") -> Printed:
    """An epsilon as it was published, a number or its digits; InputError for any other value."""
    text = (claimed if isinstance(claimed, str) else repr(_plain(claimed))).strip()
    value = number_in(text)
    if isinstance(value, str) or not (0 <= value < 1e12 and Printed(text).unit):
        raise InputError(where, repr(claimed), "a number >= 0 and < 1e12, as it was printed")
    return Printed(text)


def _sampler(given: Any) -> str:
    spoken = str(given).replace("_", "-").lower()
    return SPOKEN.get(spoken, spoken)


class ClaimedPhase(Model):
    """Noisy sums with one sampler, batch size and noise."""

    # As it is given any key may be absent, a number may be a text, and null is nothing. Of a
    # complete one steps is set, n is None only for full batches, of which it does not matter, noise
    # only where it is asked for, and epochs where steps were given.
    sampler: Annotated[Sampler, BeforeValidator(_sampler)] = setting(
        "How batches are drawn.", default=None
    )
    n: int | None = setting("Number of records.", ge=1, le=MOST_RECORDS, default=None)
    batch: int | None = setting("(Expected) batch size.", ge=1, default=None)
    noise: float | None = setting(
        "Standard deviation on the SUM of clipped gradients over the clip bound.",
        ge=NOISE.ge,
        le=NOISE.le,
        default=None,
    )
    steps: int = setting("Number of noisy sums.", ge=1, le=MOST_STEPS, default=0)
    epochs: float | None = setting("Passes over the records.", gt=0, le=1e6, default=None)
    drop_last: bool = setting("Whether the smaller last batch is left out.", default=False)
    mechanism: Mechanism = setting("What gets noise.", default="gaussian")
    sample_rate: float | None = setting("In place of batch.", gt=0, le=1, default=None)
    largest_batch: int | None = setting("Records that a batch keeps.", ge=1, default=None)
    buckets: int | None = setting("Answers of randomized response.", ge=2, default=None)
    bands: int | None = setting("Bands of the factored matrix.", ge=1, default=None)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        meant = {key: _meant(key, value) for key, value in given.items()}
        return {key: value for key, value in meant.items() if value is not None}

    def but(self, **changes: Any) -> "ClaimedPhase":
        """The phase with other values, which are not checked."""
        return self.model_copy(update=changes)

    def complete(self, noisy: bool) -> "ClaimedPhase":
        """The phase with its steps, of `epochs` rounded up; noisy: whether it needs a noise.

        Raises InputError, with the key, for what is missing and for what does not go together.
        """
        fitting = SAMPLERS_OF[self.mechanism]
        if self.sampler is None:
            return self.but(sampler=fitting[0]).complete(noisy)
        if self.sampler not in fitting:
            found = f"{self.sampler} with {self.mechanism}"
            raise InputError("sampler", found, " or ".join(fitting))
        if self.sample_rate is None:
            return self._complete(noisy)
        if self.sampler != "poisson" or self.batch is not None:
            found = f"{self.sampler} batches" if self.batch is None else "batch as well"
            raise InputError("sample_rate", found, "poisson batches, and no batch")
        rate = Fraction(repr(self.sample_rate))
        batch = round(rate * (self.n or 1))
        if self.n and math.isclose(batch, rate * self.n, rel_tol=1e-9):
            return self.but(batch=batch, sample_rate=None)._complete(noisy)
        return self.but(n=rate.denominator, batch=rate.numerator)._complete(noisy)

    def _complete(self, noisy: bool) -> "ClaimedPhase":
        for key, owner in OWN.items():
            if (getattr(self, key) is None) is (owner in (self.mechanism, self.sampler)):
                allowed = f"a number with {owner}, and with nothing else"
                raise InputError(key, getattr(self, key) or "nothing", allowed)
        if self.mechanism in NOISE_OF:
            NOISE_OF[self.mechanism].check("noise", self.noise or 1.0)
        if self.bands and self.n and self.batch:
            integer(ge=1, le=self.n // self.batch).check("bands", self.bands)
        full, in_order = self.sampler == "full-batch", self.sampler in IN_ORDER
        for key in (*(() if full else ("n", "batch")), *(("noise",) if noisy else ())):
            if getattr(self, key) is None:
                raise InputError(key, "nothing", f"a number, with {self.sampler} batches")
        if full and self.batch not in (None, self.n):
            raise InputError("batch", self.batch, "nothing, or n, with full batches")
        if self.n and self.batch and self.batch > self.n:
            raise InputError("batch", self.batch, f"a whole number >= 1 and <= {self.n}")
        if self.drop_last and self.sampler not in ("shuffled", "cyclic"):
            raise InputError("drop_last", f"{self.sampler} batches", "shuffled or cyclic ones")
        if bool(self.steps) == (self.epochs is not None):
            found = "epochs as well" if self.steps else "nothing"
            raise InputError("steps", found, "steps or epochs, one of the two")
        if self.epochs is None:
            return self.but(batch=self.n) if full else self
        a_pass: float = self.batches_per_epoch if in_order else 1
        if not full and not in_order and self.n and self.batch:
            a_pass = self.n / self.batch
        # But for the rounding of doubles.
        steps = max(1, math.ceil(self.epochs * a_pass - 1e-9))
        if steps > MOST_STEPS:
            raise InputError("epochs", f"{steps} steps", f"at most {MOST_STEPS}")
        return self.but(steps=steps, batch=self.n if full else self.batch)

    @property
    def records(self) -> int | None:
        """Number of records; None of a rate alone, whose fraction n and batch then are."""
        return self.n if self.sample_rate is None else None

    @property
    def batches_per_epoch(self) -> int:
        """Of batches in order, or bins."""
        assert self.n is not None and self.batch is not None
        return self.n // self.batch if self.drop_last else math.ceil(self.n / self.batch)

    @property
    def epochs_touched(self) -> int:
        """In how many epochs a record of batches in order can take part."""
        if self.epochs is not None:
            return math.ceil(self.epochs)
        return math.ceil(self.steps / self.batches_per_epoch)

    def describe(self) -> str:
        """In words."""
        many = f"{self.steps} step{'s' if self.steps != 1 else ''}"
        if self.epochs is not None and self.sampler != "full-batch":
            many += f" ({self.epochs:g} epoch{'s' if self.epochs != 1 else ''})"
        noise = "" if self.noise is None else f", noise multiplier {self.noise:g}"
        if self.mechanism != "gaussian":
            noise = f", {self.mechanism}{noise}"
        for key in OWN:
            noise += f", {key.replace('_', ' ')} {value}" if (value := getattr(self, key)) else ""
        if self.sampler == "full-batch":
            return f"all records at every step{noise}, {many}"
        share = f"{self.batch} of {self.n}"
        assert self.n is not None and self.batch is not None
        expected = f", {share} expected" if self.records else ""
        poisson = f"Poisson batches{expected} (q = {self.batch / self.n:.6g})"
        drawn = {
            "poisson": poisson,
            "truncated-poisson": f"truncated {poisson}",
            "balls-in-bins": f"batches of records thrown into {self.batches_per_epoch} bins",
            "fixed-size": f"batches of exactly {share}, drawn without replacement at each step",
            "shuffled": f"shuffled batches, {share}, {self.batches_per_epoch} an epoch",
            "cyclic": f"batches in a fixed order, {share}, {self.batches_per_epoch} an epoch",
        }
        return f"{drawn[self.sampler]}{noise}, {many}"


class ClaimedTraining(ClaimedPhase):
    """Settings of a training; what stands beside `phases` holds in each of them."""

    phases: list[ClaimedPhase] = setting("Phases, in their order.", min_length=1, default=None)


NumberOfTrials = Annotated[
    int,
    Tag("number"),
    Field(
        title="number",
        ge=1,
        le=MOST_TRIALS,
        description="Trainings that were compared, this one included; or a list of their settings.",
    ),
]


class ClaimSettings(ClaimedTraining):
    """All that a claim may say."""

    parts: list[ClaimedTraining] = setting("On other records.", min_length=1, default=None)
    delta: float = setting("Of the guarantee, such as 1e-5.", ge=1e-50, lt=1)
    claimed: Annotated[Printed, PlainValidator(printed), WithJsonSchema({"type": "string"})] = (
        setting("The epsilon claimed, with the digits that were printed.", default=None)
    )
    target: float = setting("The epsilon to meet, in place of noise.", gt=0, default=None)
    relation: Annotated[Relation, BeforeValidator(lambda given: str(given).replace("-", "_"))] = (
        setting("The neighbour relation meant.", default=None)
    )
    runs: int = setting("Such trainings, all released.", ge=1, le=MOST_TRIALS, default=1)
    trials: Annotated[
        Annotated[list[ClaimedTraining], Tag("list"), Field(title="list")] | NumberOfTrials,
        Discriminator(lambda given: "list" if isinstance(given, list) else "number"),
    ] = setting("What was compared, beside this training or with it.", default=None)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = setting(
        "Lists of values by setting; every combination is a trial.", min_length=1, default=None
    )
    released: Released = setting("What is released.", default=EVERY_SUM)
    name: Text = setting("A name of the claim.", default="")
    source: Text = setting("Where it was printed.", default="")


PHASE_KEYS, CLAIM_KEYS = tuple(ClaimedPhase.model_fields), tuple(ClaimSettings.model_fields)
# Phases of a training, and how many such trainings there were.
Trainings = tuple[tuple[tuple[ClaimedPhase, ...], int], ...]


@dataclass(frozen=True)
class EpsilonClaim:
    """A training in words, what else was trained on the same records, and the epsilon claimed.

    phases: of the reported training, one after the other. runs: trainings with these settings that
    are released. trials: the other trainings whose results were compared to select this one.
    parts: phases of trainings on other records. relation: the one meant, None if nobody said.
    """

    phases: tuple[ClaimedPhase, ...]
    delta: float
    claimed: Printed | None = None
    target: float | None = None
    relation: str | None = None
    runs: int = 1
    trials: Trainings = ()
    parts: tuple[tuple[ClaimedPhase, ...], ...] = ()
    released: str = EVERY_SUM
    name: str = ""
    source: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """The relation meant, or all."""
        return RELATIONS if self.relation is None else (self.relation,)

    @property
    def n(self) -> int | None:
        """Number of records, of all parts together; None if nobody said."""
        each = [phases[0].records for phases in (self.phases, *self.parts)]
        return None if None in each else sum(filter(None, each))

    @property
    def disjoint(self) -> tuple["EpsilonClaim", ...]:
        """The claim of each disjoint part of the records, with what was trained on it alone."""
        return tuple(replace(self, phases=each, parts=()) for each in (self.phases, *self.parts))

    @property
    def trainings(self) -> Trainings:
        """Everything trained on the records: phases, and how many times."""
        return ((self.phases, self.runs), *self.trials)

    @property
    def every_phase(self) -> Iterator[ClaimedPhase]:
        """Of all trainings, also those on other parts of the records."""
        for phases in (*(each for each, _ in self.trainings), *self.parts):
            yield from phases

    def map_phases(self, change: Callable[[ClaimedPhase], ClaimedPhase]) -> "EpsilonClaim":
        """The claim with every phase of every training changed."""
        phases = tuple(map(change, self.phases))
        trials = tuple((tuple(map(change, each)), count) for each, count in self.trials)
        parts = tuple(tuple(map(change, each)) for each in self.parts)
        return replace(self, phases=phases, trials=trials, parts=parts)

    def with_noise(self, noise: float) -> "EpsilonClaim":
        """The claim with one noise multiplier wherever none is stated."""
        return self.map_phases(
            lambda phase: phase.but(noise=noise) if phase.noise is None else phase
        )


def read_claim(
    settings: Mapping[str, Any], names: Names = str, *, plain: bool = True
) -> EpsilonClaim:
    """The claim that plain values describe.

    names: how a key is called where the values come from, for error messages. plain: of Gaussian
    sums of the samplers `Plain` on one set of records alone. Raises InputError for a key that is
    unknown, missing, out of range, or that does not go with another.
    """
    try:
        given = validated(ClaimSettings, _plain(settings)).plain()
        noisy = "target" not in given
        pairs = ("target", "noise"), ("target", "claimed"), ("trials", "grid")
        for one, other in (*pairs, *(("parts", key) for key in ("target", "trials", "grid"))):
            if one in given and other in given:
                raise InputError(one, f"{names(other)} as well", "one of the two")
        phases = _phases(given, noisy)
        parts = []
        for number, entry in enumerate(given.get("parts", [])):
            with _at(f"parts.{number}"):
                parts.append(_phases(_changed(given, entry), noisy))
        if not noisy and all(phase.noise is not None for phase in phases):
            allowed = "a phase without one: it gets what is found"
            raise InputError("target", "a noise for every phase", allowed)
        trials = _trials(given, phases, noisy)
        claim = EpsilonClaim(phases, given["delta"], trials=trials, parts=tuple(parts))
        if plain:
            integer(ge=0, le=0).check("parts", len(parts))
            for phase in claim.every_phase:
                one_of(*get_args(Plain)).check("sampler", phase.sampler)
                one_of("gaussian").check("mechanism", phase.mechanism)
    except InputError as error:
        raise InputError(names(error.where), error.found, error.allowed) from None
    own = {each.name for each in fields(EpsilonClaim)} - {"phases", "trials", "parts"}
    return replace(claim, **{key: given[key] for key in given.keys() & own})


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Errors inside name their keys from `place` on."""
    try:
        yield
    except InputError as error:
        raise InputError(joined(place, error.where), error.found, error.allowed) from None


def _phases(given: Mapping[str, Any], noisy: bool) -> tuple[ClaimedPhase, ...]:
    common = {key: given[key] for key in PHASE_KEYS if key in given}
    if "phases" not in given:
        return (ClaimedPhase(**common).complete(noisy),)
    phases = []
    for number, entry in enumerate(given["phases"]):
        with _at(f"phases.{number}"):
            phases.append(ClaimedPhase(**_merged(common, entry)).complete(noisy))
    if len({phase.records for phase in phases}) > 1:
        found = " and ".join(str(phase.records) for phase in phases)
        raise InputError("phases", f"n of {found}", "the same records in every phase")
    return tuple(phases)


def _trials(given: Mapping[str, Any], phases: tuple[ClaimedPhase, ...], noisy: bool) -> Trainings:
    """Other trainings than the reported one, whose settings may be a number, a list or a grid."""
    key = "grid" if "grid" in given else "trials"
    changes = _combinations(given["grid"]) if key == "grid" else given.get("trials", [])
    if isinstance(changes, int):
        return ((phases, changes - 1),) if changes > 1 else ()
    others: list[tuple[ClaimedPhase, ...]] = []
    reported = None
    for number, change in enumerate(changes):
        with _at(f"{key}.{number}"):
            others.append(_phases(_changed(given, change), noisy))
        # An entry that changes nothing is a training that differs in what no key says.
        if reported is None and change and _released(others[-1]) == _released(phases):
            reported = number
    if reported is not None:
        del others[reported]
    if any(phase.records != phases[0].records for each in others for phase in each):
        raise InputError(key, "other numbers of records", "trials on the same records")
    return tuple((each, 1) for each in others)


def _combinations(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid's values."""
    if (size := math.prod(map(len, grid.values()))) > MOST_TRIALS:
        raise InputError("grid", f"{size} trials", f"at most {MOST_TRIALS}")
    combinations = (
        dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())
    )
    return [
        validated(ClaimedPhase, each, place=f"grid.{number}.").plain()
        for number, each in enumerate(combinations)
    ]


def _released(phases: tuple[ClaimedPhase, ...]) -> list[ClaimedPhase]:
    """What a training releases, whether its steps were given or its epochs."""
    return [
        phase if phase.sampler in ("shuffled", "cyclic") else phase.but(epochs=None)
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
    if ("steps" in change) != ("epochs" in change):
        base = {key: value for key, value in base.items() if key not in ("steps", "epochs")}
    return {**base, **change}


def _meant(key: str, value: Any) -> Any:
    """What a text of a file or of the command line means; any other value is itself."""
    if not isinstance(value, str) or (key in WORDS and value not in ("", "null", "~")):
        return value
    words = {"": None, "null": None, "~": None, "true": True, "yes": True, "false": False}
    return {**words, "no": False}.get(value.lower(), number_in(value))


def _plain(value: Any) -> Any:
    """Numbers of numpy, mappings and sequences as Python's numbers, dicts and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
