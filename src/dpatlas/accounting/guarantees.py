"""From samplers and noise to a guaranteed (epsilon, delta).

Each pair of sampler and neighbour relation has the mechanism that dominates it, in units of the
clip bound C, for noise multiplier s:

    poisson      steps Gaussians of sensitivity 1 (add_remove) on a Poisson sample. For replace_one
                 the dominating pair of a step is (1 - q) N(0, s^2) + q N(1, s^2) against
                 (1 - q) N(0, s^2) + q N(-1, s^2): the gradients of the old and the new record
                 point in opposite directions.
    fixed-size   replace_one: steps Gaussians of sensitivity 2 on a sample without replacement
                 (Wang, Balle and Kasiviswanathan 2019, Theorem 27).
    shuffled     replace_one: a record is in at most one batch of an epoch, whichever permutation,
                 so an epoch is one Gaussian of sensitivity 2; the shuffle's amplification is not
                 claimed. Under add_remove the permutation and every batch would change.
    cyclic       as shuffled, without a shuffle.
    full-batch   steps Gaussians of sensitivity 1 (add_remove) or 2 (replace_one).
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.accounting.accountants import (
    RDP_ORDERS,
    Mechanism,
    fft_error,
    pld_epsilon,
    rdp_curve,
    rdp_epsilon,
    sensitivity,
)
from dpatlas.accounting.samplers import (
    Cyclic,
    FixedSize,
    FullBatch,
    Poisson,
    Sampler,
    Shuffled,
    check_sampler,
)
from dpatlas.base.guard import checked, hold, integer, one_of, plain, real
from dpatlas.errors import InputError

RELATIONS = ("add_remove", "replace_one")
CHOICES = ("auto", "pld", "rdp")
# What every guarantee is asked for.
ACCOUNTS = {
    "delta": real(gt=0, lt=1),
    "relation": one_of(*RELATIONS),
    "accountant": one_of(*CHOICES),
}
# The accountants of each pair of sampler and relation, the tighter one first.
ACCOUNTANTS = {
    (Poisson.name, "add_remove"): ("pld", "rdp"),
    (Poisson.name, "replace_one"): ("pld",),
    (FixedSize.name, "replace_one"): ("pld", "rdp"),
    (Shuffled.name, "replace_one"): ("pld", "rdp"),
    (Cyclic.name, "replace_one"): ("pld", "rdp"),
    (FullBatch.name, "add_remove"): ("pld", "rdp"),
    (FullBatch.name, "replace_one"): ("pld", "rdp"),
}
NO_CROSS_CHECK = "no cross-check"

# PLD is used only where the error of its convolutions is at most this share of delta.
UNRESOLVED_DELTA = 0.1
# Range of calibration: a target that needs a noise multiplier outside of it is a mistake.
LEAST_NOISE, MOST_NOISE = 0.01, 1e6
# Where PLD gives infinity, RDP stands in for it below this epsilon.
MOST_EPSILON = 1e6
# Beyond it the squares of accountants overflow.
MOST_STATED_NOISE = 1e100
# Less noise counts as none: squares of its inverse would overflow.
LEAST_ACCOUNTED_NOISE = 1e-70
DIGITS = 4
TINY_EPSILON = 1e-9


@dataclass(frozen=True)
class Phase:
    """`steps` updates with one sampler and one noise.

    `noise_multiplier`: standard deviation of the noise on the SUM of the clipped gradients, divided
    by the clip bound. Raises InputError unless both numbers are >= 0 and `steps` is whole.
    """

    sampler: Sampler
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        check_sampler(self.sampler)
        hold(self, "noise_multiplier", real(ge=0, le=MOST_STATED_NOISE))
        hold(self, "steps", integer(ge=0))


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy under `relation`, of all steps together.

    `epsilon` is an upper bound, infinity without noise. `event` says in words what was accounted;
    `cross_check` gives the other accountant's epsilon or says "no cross-check".
    """

    epsilon: float
    delta: float
    relation: str
    accountant: str
    event: str
    cross_check: str
    warnings: tuple[str, ...] = ()


@checked(**ACCOUNTS)
def guarantee(
    phases: Sequence[Phase], delta: float, relation: str, accountant: str = "auto"
) -> Guarantee:
    """The guarantee of all `phases`, run one after the other from step 0.

    "auto" takes PLD where every phase has its event and delta is large enough for it, unless RDP
    gives less; else RDP. Raises InputError where samplers, relation, delta and accountant do not go
    together, and for phases of different n. A `TrainingPhase` counts with its
    schedule of noise and adaptive clip.
    """
    accounted = accounted_phases(phases)
    return _guaranteed(accounted, mechanisms_of(accounted), delta, relation, accountant)


@checked(**ACCOUNTS)
def composition(
    trainings: Sequence[Sequence[Phase]], delta: float, relation: str, accountant: str = "auto"
) -> Guarantee:
    """The guarantee of releasing all `trainings` on the same records, or any choice among them.

    Each training is a list of phases that starts at step 0, with independent noise and batches;
    later trainings may depend on what earlier ones released. Raises InputError as `guarantee`.
    """
    accounted = [accounted_phases(training) for training in trainings]
    phases = [phase for training in accounted for phase in training]
    mechanisms = [mechanism for training in accounted for mechanism in mechanisms_of(training)]
    return _guaranteed(phases, _merged(mechanisms), delta, relation, accountant)


def accounted_phases(phases: Iterable[Any]) -> tuple[Phase, ...]:
    """Phases as accountants see them; InputError for what is neither a phase nor a training phase.

    Of a `TrainingPhase`, one for every run of steps with the same noise.
    """
    allowed = "a list of phases: Phase, or TrainingPhase"
    if not isinstance(phases, Iterable):
        raise InputError("phases", type(phases).__name__, allowed)
    accounted: list[Phase] = []
    for each in phases:
        if not isinstance(each, Phase) and not hasattr(each, "accounted_phases"):
            raise InputError("phases", f"one of type {type(each).__name__}", allowed)
        accounted += [each] if isinstance(each, Phase) else each.accounted_phases
    return tuple(accounted)


def default_relation(phases: Sequence[Phase]) -> str:
    """The first of `RELATIONS` under which every phase's sampler has an accountant."""
    covered = [
        relation
        for relation in RELATIONS
        if all((phase.sampler.name, relation) in ACCOUNTANTS for phase in phases)
    ]
    return covered[0] if covered else RELATIONS[-1]


def default_delta(n: int) -> float:
    """1e-5, or 1 / (10 n) where that is less: at 1 / n one could publish a random record."""
    return min(1e-5, 0.1 / n)


def _guaranteed(
    phases: Sequence[Phase],
    mechanisms: Sequence[Mechanism],
    delta: float,
    relation: str,
    accountant: str,
) -> Guarantee:
    name, *others = available = _accountants(phases, mechanisms, delta, relation, accountant)
    epsilon, warning = _epsilon(mechanisms, delta, relation, name)
    if accountant == "auto" and epsilon == math.inf and others:
        # Too many steps for PLD, or too little noise for either.
        by_rdp, told = _epsilon(mechanisms, delta, relation, available[-1])
        if by_rdp < MOST_EPSILON:
            name, epsilon, warning = available[-1], by_rdp, told
    cross_check = NO_CROSS_CHECK
    for other in set(available) - {name}:
        if 0 < epsilon < math.inf:
            check, told = _epsilon(mechanisms, delta, relation, other)
            if accountant == "auto" and check < epsilon:
                # PLD rounds every loss up to its grid: much, in a sum of very many tiny losses.
                name, other, epsilon, check, warning = other, name, check, epsilon, told
            cross_check = f"{other.upper()}: epsilon {check:.6g}"
    event = "; then ".join(_describe(mechanism, relation) for mechanism in mechanisms)
    warnings = (warning,) if warning else ()
    return Guarantee(epsilon, delta, relation, name, event or "no steps", cross_check, warnings)


@checked(epsilon=real(gt=0), **ACCOUNTS)
def calibrate(
    phases_at: Callable[[float], Sequence[Phase]],
    epsilon: float,
    delta: float,
    relation: str,
    accountant: str = "auto",
) -> float:
    """The smallest noise multiplier whose guarantee meets (epsilon, delta).

    `phases_at` gives the phases for a noise multiplier, as for `guarantee`. The result has four
    significant digits and is rounded up: its guaranteed epsilon never exceeds the target. Raises
    InputError for a target that no noise multiplier between 0.01 and 1e6 meets, or that each of
    them meets.
    """

    def epsilon_at(noise_multiplier: float) -> float:
        phases = accounted_phases(phases_at(noise_multiplier))
        mechanisms = mechanisms_of(phases)
        name = _accountants(phases, mechanisms, delta, relation, accountant)[0]
        return _epsilon(mechanisms, delta, relation, name)[0]

    return smallest_noise(epsilon_at, epsilon, delta)


def smallest_noise(epsilon_at: Callable[[float], float], epsilon: float, delta: float) -> float:
    """As `calibrate`, for any function `epsilon_at` that falls with the noise multiplier."""
    real(ge=TINY_EPSILON, le=1 / TINY_EPSILON).check("epsilon", plain(epsilon))

    def excess(log_noise: float) -> float:
        # Beyond the ends of what may be asked for, so that the root is at no end.
        least = TINY_EPSILON / 10
        cost = min(max(epsilon_at(math.exp(log_noise)), least), 1 / least)
        return math.log(cost / epsilon)

    from scipy.optimize import brentq

    low, high = _bracket(epsilon_at, epsilon, delta)
    root = math.exp(brentq(excess, math.log(low), math.log(high), xtol=1e-4))
    noise_multiplier, unit = _round_up(root)
    while epsilon_at(noise_multiplier) > epsilon:
        noise_multiplier, _ = _round_up(noise_multiplier + unit / 2)
    return noise_multiplier


@checked(relation=one_of(*RELATIONS))
def renyi_curve(phases: Sequence[Phase], relation: str) -> np.ndarray:
    """Renyi divergence of the composition of `phases` at every order of `RDP_ORDERS`.

    Infinite without noise. Raises InputError for a sampler without Renyi divergences under
    `relation`.
    """
    phases = accounted_phases(phases)
    for phase in phases:
        pair = (phase.sampler.name, relation)
        if "rdp" not in ACCOUNTANTS.get(pair, ()):
            covered = [" with ".join(key) for key, names in ACCOUNTANTS.items() if "rdp" in names]
            found = f"{' with '.join(pair)}, whose Renyi divergences nobody has bounded"
            raise InputError("sampler and relation", found, ", ".join(covered))
    orders, mechanisms = np.array(RDP_ORDERS, dtype=float), mechanisms_of(phases)
    if any(mechanism.noise_multiplier < LEAST_ACCOUNTED_NOISE for mechanism in mechanisms):
        return np.full(len(orders), math.inf)
    return rdp_curve(mechanisms, relation, orders) + np.zeros(len(orders))


def mechanisms_of(phases: Sequence[Phase]) -> list[Mechanism]:
    """The releases of each phase that has any."""
    mechanisms, start = [], 0
    for phase in phases:
        count, end = phase.steps, start + phase.steps
        if count and isinstance(phase.sampler, Shuffled):
            # The epochs touched: one more than the length suggests, if it begins inside of one.
            epoch = phase.sampler.steps_per_epoch
            count = (end - 1) // epoch - start // epoch + 1
        if count:
            mechanisms.append(Mechanism(phase.sampler, phase.noise_multiplier, count))
        start = end
    return mechanisms


def accountants_of(samplers: Iterable[Sampler], relation: str) -> tuple[str, ...]:
    """The accountants of all `samplers` composed, the tighter one first; () where there is none.

    PLD composes batches of fixed size with each other only.
    """
    names = {sampler.name for sampler in samplers}
    together = names == {FixedSize.name} or FixedSize.name not in names
    return tuple(
        accountant
        for accountant in ("pld", "rdp")
        if all(accountant in ACCOUNTANTS.get((name, relation), ()) for name in names)
        and (together or accountant == "rdp")
    )


def _accountants(
    phases: Sequence[Phase],
    mechanisms: Sequence[Mechanism],
    delta: float,
    relation: str,
    accountant: str,
) -> tuple[str, ...]:
    """The accountants that cover all phases: the one asked for first, for "auto" the tightest."""
    real(gt=0, lt=1).check("delta", plain(delta))
    records = sorted({phase.sampler.n for phase in phases})
    if len(records) > 1:
        found = f"batches of {' and of '.join(map(str, records))} records"
        raise InputError("phases", found, "batches of the same records in every phase")
    for phase in phases:
        pair = (phase.sampler.name, relation)
        if pair not in ACCOUNTANTS:
            fitting = [name for name, other in ACCOUNTANTS if other == relation]
            found = f"{relation} with the {phase.sampler.name} sampler, whose batches all change"
            allowed = f"replace_one; for {relation} the sampler {' or '.join(fitting)}"
            raise InputError("relation", f"{found} with the number of records", allowed)
    covering = accountants_of((phase.sampler for phase in phases), relation)
    least_delta = fft_error(mechanisms) / UNRESOLVED_DELTA
    resolved = tuple(name for name in covering if name != "pld" or delta >= least_delta)
    if resolved and accountant in ("auto", *resolved):
        return tuple(sorted(resolved, key=lambda name: name != accountant))
    names = dict.fromkeys(phase.sampler.name for phase in phases)
    texts = [f"{name} ({' or '.join(ACCOUNTANTS[name, relation])})" for name in names]
    found = f"{' and '.join(texts)} under {relation}"
    if resolved:
        raise InputError("accountant", f"{accountant} for {found}", " or ".join(resolved))
    if covering:
        raise InputError("delta", f"{delta:g} for {found}", f"a number >= {least_delta:.1e}")
    raise InputError("phases", found, "phases that one accountant can compose")


def _epsilon(
    mechanisms: Sequence[Mechanism], delta: float, relation: str, accountant: str
) -> tuple[float, str | None]:
    """Guaranteed epsilon, and a warning or None."""
    if not mechanisms:
        return 0.0, None
    if any(mechanism.noise_multiplier < LEAST_ACCOUNTED_NOISE for mechanism in mechanisms):
        return math.inf, None
    return _accounted(tuple(_merged(mechanisms)), delta, relation, accountant)


def _merged(mechanisms: Sequence[Mechanism]) -> list[Mechanism]:
    """Equal releases counted as one mechanism, which an accountant composes at once."""
    counts: Counter[tuple[Sampler, float]] = Counter()
    for mechanism in mechanisms:
        counts[mechanism.sampler, mechanism.noise_multiplier] += mechanism.count
    return [Mechanism(*key, count) for key, count in counts.items()]


# Ledgers ask for the same compositions as calibration and as other arms.
@functools.lru_cache(maxsize=1024)
def _accounted(
    mechanisms: tuple[Mechanism, ...], delta: float, relation: str, accountant: str
) -> tuple[float, str | None]:
    if accountant == "pld":
        return pld_epsilon(mechanisms, delta, relation), None
    return rdp_epsilon(mechanisms, delta, relation)


def _describe(mechanism: Mechanism, relation: str) -> str:
    sampler, count = mechanism.sampler, mechanism.count
    noise = f"{count} x Gaussian, noise multiplier {mechanism.noise_multiplier:g}"
    moved = f"{noise}, sensitivity {'2 C' if sensitivity(relation) == 2 else 'C'}"
    if isinstance(sampler, Poisson):
        rate = f"{sampler.sample_rate:.6g} ({sampler.batch}/{sampler.n})"
        return f"{noise}, on a Poisson sample, q = {rate}"
    if isinstance(sampler, FixedSize):
        return f"{moved}, on {sampler.batch} of {sampler.n} records without replacement"
    if isinstance(sampler, Shuffled):
        return f"one per epoch, {moved}, accounted without amplification"
    return moved


def _bracket(
    epsilon_at: Callable[[float], float], epsilon: float, delta: float
) -> tuple[float, float]:
    """Noise multipliers whose epsilons lie below and above the target."""
    found = f"{epsilon:g} at delta {delta:g}"
    high = 1.0
    while (cost := epsilon_at(high)) > epsilon:
        if high == MOST_NOISE:
            why = "there are too many steps, or the other phases spend it"
            allowed = f"at least {cost:.4g}, which noise multiplier {high:g} costs: {why}"
            raise InputError("epsilon", found, allowed)
        high = min(high * 4, MOST_NOISE)
    low = high / 4
    while (cost := epsilon_at(low)) <= epsilon:
        if low == LEAST_NOISE:
            allowed = f"less than {cost:.4g}, which noise multiplier {low:g} costs"
            raise InputError("epsilon", found, f"{allowed}: nothing to calibrate")
        high, low = low, max(low / 4, LEAST_NOISE)
    return low, high


def _round_up(value: float) -> tuple[float, float]:
    """`value` rounded up to `DIGITS` significant digits, and the unit of the last one."""
    places = DIGITS - 1 - math.floor(math.log10(value))
    return round(math.ceil(value * 10.0**places) / 10.0**places, places), 10.0**-places
