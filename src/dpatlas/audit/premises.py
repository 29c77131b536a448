"""Premises of a claim, each tested by itself: noise, sensitivity, sampling, steps.

The tests are one-sided: they fail for code that gives less privacy than claimed, at their stated
error, and let pass code that gives more. Sensitivity, steps and what acts beside the sums are seen
without error; the others share the error that `premises` is given.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special, stats

from dpatlas.audit.claim import Claim
from dpatlas.audit.pairs import (
    ANOTHER,
    EQUAL_SHARE,
    FAILED,
    ROUNDED,
    UPDATES,
    Pair,
    differing,
    sampled_steps,
)
from dpatlas.audit.run import OUTSIDE, RECORDS
from dpatlas.base.rounding import upward

MASKED = (
    "the clean sums vary too, or there is more noise than stated: less noise could hide behind "
    "them; a canary with coordinates of its own would show it"
)
HOLDS, VIOLATED, UNTESTED = "holds", "violated", "not tested"
BESIDE, NOISE, SAMPLING = "acts through sums only", "noise", "sampling"
GRADIENT = "acts through its gradient only"
CLAIMED_BESIDE = "what is published follows from the noisy sums"
# Rows that compare settings and count sums: without another no fault of the training could be seen.
COUNTED = ("accounting", "steps")
# Clipped norms may exceed C by the rounding of float32, and by the constant in x / (norm + 1e-6).
ROUNDING = 1e-3
# Of the coordinates, the share with the least variance in the runs that select them.
QUIET = 0.25
QUIET_SHARES = (QUIET, QUIET / 16)
# Half-widths of intervals, in standard deviations, in which noise of another law may have more.
WIDTHS = (0.25, 0.5, 1.0, 1.5, 1.85, 2.0, 2.5, 3.0, 3.5)
# Equal sums of different batches are less likely than this, or nothing is concluded from them.
BY_CHANCE = 1e-6
# Samplers that draw a record anew at each step; another explanation of its first steps than a rate
# has to be so many times as likely.
DRAWN, LIKELIER = {"poisson", "fixed-size"}, 20.0
# Pairs behind a test of the noise or of the sampling.
FEWEST_PAIRS = 8
TOO_FEW = f"{{}} pairs of runs, and {FEWEST_PAIRS} are needed"
OTHER_NOISE = "equal seeds do not give equal noise in both worlds"
# Differences of sums that vary by less than this share of the noise are no differences of noise, if
# so many independent numbers agree.
STEADY, STEADY_NUMBERS = 0.1, 8
# Beyond this probability a count of pairs tells nothing.
CERTAIN = 1 - 1e-9


@dataclass(frozen=True)
class Premise:
    """What was found of one premise. p_value: of a statistical test, None where none was needed.

    note: what else a reader should know although nothing is violated. could_show: of how many pairs
    could a fault have been seen in; None where in all of them.
    """

    name: str
    status: str
    found: str
    claimed: str
    p_value: float | None = None
    note: str = ""
    could_show: int | None = None


def premises(claim: Claim, pairs: Sequence[Pair], error: float) -> list[Premise]:
    """Every premise that these pairs can test. error: the chance that honest code fails any."""
    seen = [pair for pair in pairs if pair.without.sums or pair.with_.sums]
    # A world without any sum says nothing of noise and sampling, but much of the canary.
    compared = [pair for pair in seen if pair.without.sums and pair.with_.sums]
    rows = [_accounting(claim)]
    if not seen:
        unseen = Premise("noisy sums", UNTESTED, "none were given to run.see", "seen")
        return [row for row in (*rows, unseen if pairs else None) if row is not None]
    reason = uncoupled(claim, seen)
    rows += [_steps(claim, seen), _sensitivity(claim, compared, reason)]
    rows += [_beside(seen, reason), _gradient_only(claim, seen)]
    statistical = [*_noise_tests(claim, compared), _sampling(claim, compared, reason)]
    asked = sum(1 for test in statistical if callable(test))
    rows += [test(error / asked) if callable(test) else test for test in statistical]
    return [row for row in rows if row is not None]


def measured(claim: Claim, pairs: Sequence[Pair]) -> dict[str, tuple[float, float, float]]:
    """Least, mean and largest of what these pairs show of the training's settings, by name."""
    worlds = [world for pair in pairs for world in (pair.without, pair.with_) if world.sums]
    numbers = {
        name: np.concatenate([world.facts.get(name, []) for world in worlds])
        for name in {name: None for world in worlds for name in world.facts}
    }
    if RECORDS in numbers and claim.n:
        numbers["rate drawn"] = numbers[RECORDS] / claim.n
    seen = [pair for pair in pairs if pair.without.sums and pair.with_.sums]
    if seen and not uncoupled(claim, seen) and {phase.sampler for phase in claim.phases} <= DRAWN:
        acted = sum(pair.acted is not None for pair in seen)
        looked = sum(pair.acted or pair.without.sums for pair in seen)
        numbers["rate at which the canary is drawn"] = np.array([acted / looked])
    if worlds and claim.steps is not None:
        skipped = np.array([claim.steps - world.sums for world in worlds])
        numbers["steps without a sum, of a run"] = skipped.clip(min=0)
    return {
        name: (float(each.min()), float(each.mean()), float(each.max()))
        for name, each in numbers.items()
    }


def is_absent(claim: Claim, pairs: Sequence[Pair]) -> bool:
    """Whether the canary changes no sum, no weights and no output of any pair, as if not planted.

    Only where it would have been drawn in some pair, but for a chance of BY_CHANCE.
    """
    law = first_step_law(claim)
    kinds = {phase.sampler for phase in claim.phases}
    drawn_for_sure = kinds <= {"full-batch", "cyclic", "shuffled"}
    never = float(law[-1]) if law is not None else float(not drawn_for_sure)
    return never ** len(pairs) <= BY_CHANCE and not any(
        pair.acted
        or pair.touched
        or pair.beside is not None
        or differing(pair.without.published, pair.with_.published)
        for pair in pairs
    )


def unrepeated(pairs: Sequence[Pair]) -> str:
    """Why no runs on equal seeds can be compared; empty if they can."""
    repeated = max((pair.repeated for pair in pairs if pair.repeated is not None), default=0.0)
    return "a run on the same seed does not repeat itself" if repeated > ANOTHER else ""


def uncoupled(claim: Claim, pairs: Sequence[Pair]) -> str:
    """Why equal seeds do not give runs that differ by the canary alone; empty if they do.

    They do not where noise or batches come from the operating system, and where removing a record
    shifts the random numbers: of the noise, so that the first sums differ by noise of twice the
    variance in every coordinate, also where the records hardly act, or of the batches.
    """
    if reason := unrepeated(pairs):
        return reason
    pairs = [pair for pair in pairs if pair.first.size]
    if not pairs:
        return ""
    first = np.array([pair.first for pair in pairs])
    noise = claim.noise or 0.0
    if noise:
        other = _quiet(first) >= noise**2 / 2 and not _steady(first[first.any(1)], noise)
    else:
        other = not (first == 0).any()
    if other:
        return OTHER_NOISE
    if claim.relation == "add_remove" and not _same_batches(claim, pairs):
        return (
            "equal seeds may give other batches where a record is removed: relation='zero_out', "
            "and a blank record in its place, would show more"
        )
    return ""


def _quiet(differences: np.ndarray) -> float:
    """Mean square of (pairs, coordinates) in the quarter of the coordinates with the least."""
    size = max(1, int(QUIET * differences.shape[1]))
    return float(np.sort((differences**2).mean(0))[:size].mean())


def _steady(differences: np.ndarray, noise: float) -> bool:
    """Whether these (pairs, coordinates) are one vector, as a canary's gradient without noise."""
    pairs, coordinates = differences.shape
    if (pairs - 1) * coordinates < STEADY_NUMBERS:
        return False
    return bool(differences.var(0, ddof=1).mean() < (STEADY * noise) ** 2)


def _as_other_noise(claim: Claim, changes: Sequence[np.ndarray | None]) -> bool:
    """Whether all these changes of pairs may be noise that was drawn anew where the canary acts.

    So it is where the record is really removed and each record of a batch draws numbers, for a view
    of it, before the noise is drawn: the runs agree until the canary acts, and no further.
    """
    noise = claim.noise or 0.0
    if not noise:
        return False
    differences = np.array(changes)
    number, coordinates = differences.shape
    # The difference of two noises has a mean square of 2 noise^2, and of `share` times that in the
    # quarter of the coordinates where its mean over the pairs is least. The threshold is a fourth
    # of this, with few pairs a sixteenth.
    share = stats.chi2.cdf(stats.chi2.ppf(QUIET, number), number + 2) / QUIET
    least = share * 2 * noise**2 / (4 if number >= FEWEST_PAIRS else 16)
    most = noise * math.sqrt(2 * stats.chi2.isf(BY_CHANCE / number, coordinates))
    return (
        _quiet(differences) >= least
        and np.linalg.norm(differences, axis=1).max() <= claim.sensitivity + most
        and not _steady(differences, noise)
    )


def _same_batches(claim: Claim, pairs: Sequence[Pair]) -> bool:
    """Whether equal seeds surely give the other records the same batches in both worlds.

    Where the record is really removed, the random numbers that draw the batches may shift in the
    first step or in a later one. Sums then agree only where the batches do by chance. Poisson
    batches count as the same if sums agree in the first two steps more often than the chance of two
    usual ways to draw them explains. Fixed-size and shuffled batches may agree for most of an
    epoch, so nothing is concluded from them. Full batches are not drawn.
    """
    kinds = {phase.sampler for phase in claim.phases}
    if kinds != {"poisson"} or not claim.batch or not claim.n:
        return kinds == {"full-batch"}
    rate = claim.batch / claim.n
    # Of masks that are independent: no record is in one of them alone. Of members that are drawn as
    # numbers below the count of records: each is the same below n and n - 1 half the time, and a
    # batch has about a Poisson number of them.
    chance = max((1 - 2 * rate * (1 - rate)) ** (claim.n - 1), math.exp(-claim.batch / 2))
    for step in (1, 2):
        asked = [pair for pair in pairs if pair.acted is None or pair.acted >= step]
        asked = [pair for pair in asked if min(pair.without.sums, pair.with_.sums) >= step]
        equal = sum(pair.acted != step for pair in asked)
        if asked and stats.binom.sf(equal - 1, len(asked), chance) > BY_CHANCE:
            return False
    return True


def _accounting(claim: Claim) -> Premise | None:
    """Whether the settings support the epsilon that is claimed beside them."""
    if claim.epsilon is None or not claim.phases:
        return None
    guaranteed = claim.guaranteed
    settings = claim.settings
    assert settings is not None and settings.claimed is not None
    most = settings.claimed.value + settings.claimed.rounding
    fits = guaranteed is not None and guaranteed <= most
    found = "nothing is proved" if guaranteed is None else f"epsilon {upward(guaranteed)}"
    return Premise(
        "accounting",
        HOLDS if fits else VIOLATED,
        f"{found} at delta {claim.delta:g} for these settings, under {claim.relation}",
        f"epsilon {claim.epsilon:g}",
    )


def _steps(claim: Claim, pairs: Sequence[Pair]) -> Premise | None:
    if claim.steps is None:
        return None
    counts = [world.sums for pair in pairs for world in (pair.without, pair.with_)]
    least, most = min(counts), max(counts)
    found = f"{most} sums" if most == least else f"{least} to {most} sums"
    status, note = VIOLATED if most > claim.steps else HOLDS, ""
    if most == least < claim.steps:
        note = "fewer sums than accounted break no epsilon: every run has this number"
    elif least < most <= claim.steps and claim.relation == "add_remove":
        status, note = UNTESTED, "a number of sums that varies may depend on who is present"
        if _skips_empty_batches(claim, [pair.with_.sums for pair in pairs]):
            status = VIOLATED
            found += ", as many as batches with a record in them: it depends on who is present"
            note = "an empty batch has to release noise, too"
    elif least < most < claim.steps:
        note = "a number of sums that varies must not depend on the records"
    return Premise("steps", status, found, f"{claim.steps} noisy sums", note=note)


def _skips_empty_batches(claim: Claim, counts: Sequence[int]) -> bool:
    """Whether the numbers of sums of runs are those of Poisson batches that are not empty.

    Of a phase of T steps at rate q these are Binomial(T, 1 - (1 - q)^n). Their mean is compared to
    four of its standard errors. Numbers that vary for another reason, which depends on no record,
    would have to have the same mean to be taken for these.
    """
    mean = variance = 0.0
    for phase in claim.phases:
        empty = 0.0
        if phase.sampler == "poisson" and phase.n and phase.batch:
            empty = (1 - phase.batch / phase.n) ** phase.n
        mean += phase.steps * (1 - empty)
        variance += phase.steps * empty * (1 - empty)
    deviation = abs(float(np.mean(counts)) - mean)
    return min(counts) < max(counts) and deviation <= 4 * math.sqrt(variance / len(counts))


def _sensitivity(claim: Claim, pairs: Sequence[Pair], reason: str) -> Premise:
    name, claimed = "sensitivity", f"at most {claim.sensitivity:g} C"
    # Where it acted beside the sums before, these are at other weights.
    clean = [pair for pair in pairs if pair.change is not None and pair.beside is None]
    changes = [pair.change for pair in clean if pair.change is not None]
    norms = [float(np.linalg.norm(each)) for each in changes]
    if reason:
        return Premise(name, UNTESTED, reason, claimed)
    if not norms:
        return Premise(name, UNTESTED, "the canary acted in none", claimed, could_show=0)
    found = f"the canary moves the sum by up to {max(norms):.3g} C"
    most = claim.sensitivity * (1 + ROUNDING)
    # Sums, which are compared in float32, may differ by so much of their norm and be equal.
    energies = [pair.without.energy[(pair.acted or 1) - 1] for pair in clean]
    broken = [
        pair
        for pair, norm, energy in zip(clean, norms, energies, strict=True)
        if norm - EQUAL_SHARE * math.sqrt(energy) > most
    ]
    if broken and _as_other_noise(claim, [pair.change for pair in broken]):
        return Premise(name, UNTESTED, OTHER_NOISE, claimed)
    weak = claim.sensitivity / 2 > max(norms)
    note = "a canary whose gradient is clipped would attack better" if weak else ""
    status = VIOLATED if broken else HOLDS
    return Premise(name, status, found, claimed, note=note, could_show=len(clean))


def _beside(pairs: Sequence[Pair], reason: str) -> Premise:
    """Whether the record acts on something else than a noisy sum."""
    name, claimed = BESIDE, CLAIMED_BESIDE
    if reason:
        return Premise(name, UNTESTED, reason, claimed)
    beside = [pair.beside for pair in pairs if pair.beside is not None]
    if beside and not any(UPDATES in pair.changing for pair in pairs):
        found = f"in {len(beside)} of {len(pairs)} pairs it changes an update, but no sum before"
        return Premise(name, VIOLATED, found, claimed)
    stopped = [pair for pair in pairs if pair.acted and pair.change is None and not pair.touched]
    if stopped:
        found = f"in {len(stopped)} of {len(pairs)} pairs it changes when the training stops"
        return Premise(name, VIOLATED, found, claimed)
    changing = sorted({each for pair in pairs for each in pair.changing})
    replays = [pair for pair in pairs if pair.replayed is not None]
    leaking = [pair for pair in replays if {*(pair.replayed or ())}.difference(changing)]
    if leaking:
        names = {each for pair in leaking for each in pair.replayed or ()}.difference(changing)
        found = (
            f"in {len(leaking)} of {len(replays)} pairs it changes {', '.join(sorted(names))} of a "
            "run that goes on from the noisy sums without it"
        )
        return Premise(name, VIOLATED, found, claimed)
    untouched = [pair for pair in pairs if pair.acted is None and not pair.touched]
    for pair in untouched:
        for published in differing(pair.without.published, pair.with_.published):
            if published not in changing:
                found = f"it changes {published!r} in a run in which it changes no sum"
                return Premise(name, VIOLATED, found, claimed)
    if not untouched and not replays:
        return Premise(name, UNTESTED, "in every pair a sum changes", claimed, could_show=0)
    found = "nothing changes where no sum does"
    if replays:
        found = "nothing changes where the noisy sums are those without it"
    note = ""
    if changing:
        note = f"not compared, as a run on the same seed changes it: {', '.join(changing)}"
    could_show = len({id(pair) for pair in (*untouched, *replays)})
    return Premise(name, HOLDS, found, claimed, note=note, could_show=could_show)


def _gradient_only(claim: Claim, pairs: Sequence[Pair]) -> Premise:
    """Whether records whose loss has weight zero act: on statistics, a schedule, a choice.

    The two runs that show it are both without the canary, so that its removal shifts no numbers.
    """
    reason = unrepeated(pairs)
    name, claimed = GRADIENT, "records of loss weight zero change nothing"
    changing = {each for pair in pairs for each in pair.changing}
    asked = [pair for pair in pairs if pair.silent is not None]
    made = [pair for pair in asked if pair.silent not in ((ROUNDED,), (FAILED,))]
    rounded = sum(pair.silent == (ROUNDED,) for pair in asked)
    found_in = [pair for pair in made if {*(pair.silent or ())} - changing]
    sums = [pair.silent_change for pair in found_in if pair.silent_change is not None]
    if not reason and sums and _as_other_noise(claim, sums):
        reason = OTHER_NOISE
    if reason or not made:
        words = "it needs run.loss_weights and plant"
        if asked:
            failed = "runs with half of the records at weight zero end with bad input"
            words = "sums differ by rounding" if rounded else failed
        note = ""
        if rounded and not reason:
            note = (
                f"so they do in {rounded} of {len(asked)} pairs: do class weights or means look at "
                "records? A larger clip bound, or a canary of another class, would show more"
            )
        return Premise(name, UNTESTED, reason or words, claimed, note=note, could_show=0)
    read = any(OUTSIDE in pair.without.facts for pair in pairs)
    note = "records are read outside of steps: is what is published chosen by them?" if read else ""
    names = {each for pair in found_in for each in pair.silent or ()} - changing
    what = ", ".join(sorted(names)) or "anything"
    found = f"in {len(found_in)} of {len(made)} pairs they change {what}"
    status = VIOLATED if found_in else HOLDS
    return Premise(name, status, found, claimed, note=note, could_show=len(made))


Test = Callable[[float], Premise]


def _noise_tests(claim: Claim, pairs: Sequence[Pair]) -> list[Test | Premise | None]:
    """The noise's scale, independence between coordinates, freshness at each step, and law.

    Clean sums only add variance, whatever they are: given the past, a coordinate's sum of squares
    over runs is at least sigma^2 chi-squared, also after subtracting anything of the past. So a
    lower tail refutes the noise, never the records.
    """
    if claim.noise is None:
        return []
    if len(pairs) < FEWEST_PAIRS:
        return [Premise(NOISE, UNTESTED, TOO_FEW.format(len(pairs)), "at least as stated")]
    steps = min(len(pair.without.sample) for pair in pairs)
    sums = np.array([pair.without.sample[:steps] for pair in pairs])
    # Parameters that are not trained, or not yet, may be shown as zeros, and a number several
    # times, as in a symmetric matrix: nothing is released of them.
    shown = np.zeros(sums.shape[1:], dtype=bool)
    for each in (world for pair in pairs for world in (pair.without, pair.with_)):
        part = each.sample[:steps]
        shown[: len(part)] |= part != 0
    worlds = np.concatenate([each.sample for pair in pairs for each in (pair.without, pair.with_)])
    zeros, later = int((~shown.any(0)).sum()), int((shown.any(0) & ~shown.all(0)).sum())
    note = f"{zeros} coordinates that are always zero are left out" if zeros else ""
    if later:
        said = f"{later} coordinates are left out at steps at which they are always zero"
        note = "; ".join(filter(None, (note, said)))
    distinct = {
        values.tobytes(): index for index, values in enumerate(worlds.T) if shown[:, index].any()
    }
    if distinct:
        sums, shown = (each[..., [*distinct.values()]] for each in (sums, shown))
    else:
        shown[:] = True
    # (steps,) of the sampled steps; the least of all where a run may have left out any.
    by_step = np.concatenate([np.full(phase.steps, phase.noise) for phase in claim.phases])
    sigma = by_step[sampled_steps(claim)[:steps]]
    if min(pair.without.sums for pair in pairs) < len(by_step):
        sigma = np.full(steps, by_step.min())
    paired = sums.shape[2] // 2 * 2
    between = (sums[:, :, 0:paired:2] - sums[:, :, 1:paired:2]) / np.sqrt(2)
    both = shown[:, 0:paired:2] & shown[:, 1:paired:2]
    standard = sums / sigma[:, None]
    return [
        _lower_tail(NOISE, "standard deviation", (standard, shown), note=note),
        _lower_tail(
            "noise in each coordinate",
            "deviation of differences between coordinates",
            (between / sigma[:, None], both),
            (_beside_the_others(standard), shown[:, 1:]),
        ),
        _lower_tail(
            "noise at each step",
            "deviation beside what an earlier step predicts",
            (_beside_the_past(sums, sigma), shown[1:]),
        ),
        _shifted(pairs),
        _law_of_the_noise(standard, shown),
    ]


def _shifted(pairs: Sequence[Pair]) -> Premise | None:
    """Noise of a step that returns at other coordinates of a later one; None if none does."""
    found = [pair.shifted for pair in pairs if pair.shifted[0] > 0]
    if not found:
        return None
    cosine, shift = max(found)
    words = (
        f"in {len(found)} of {len(pairs)} pairs the sums of two steps have a cosine of up to "
        f"{cosine:.2g}, if one is shifted by {shift:g} coordinates"
    )
    claimed = "drawn anew at every step"
    return Premise("noise at other coordinates", VIOLATED, words, claimed)


def _beside_the_past(sums: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """(runs, steps - 1, coordinates): sums less the multiple of an earlier one, in units of sigma.

    sums: (runs, steps, coordinates). Which earlier step predicts each best, and the multiple, are
    taken from the runs that also select the places of `_lower_tail`. Noise that is drawn twice
    leaves less than its variance; what is fresh keeps it, whatever is subtracted.
    """
    centred = sums[0::2] - sums[0::2].mean(0)
    # The noise is seen best where the clean sums hardly vary.
    quiet = np.argsort((centred**2).sum((0, 1)))[: max(1, int(QUIET * sums.shape[2]))]
    left = []
    for step in range(1, sums.shape[1]):
        here, best = centred[:, step, quiet], np.inf
        for before in range(step):
            past = centred[:, before, quiet]
            power = float((past**2).sum())
            slope = float((past * here).sum()) / power if power else 0.0
            rest = float(((here - slope * past) ** 2).sum())
            if rest < best:
                best, chosen = rest, sums[:, step] - slope * sums[:, before]
        left.append(chosen / sigma[step])
    return np.stack(left, 1) if left else np.empty((len(sums), 0, sums.shape[2]))


def _beside_the_others(standard: np.ndarray) -> np.ndarray:
    """(runs, steps, coordinates - 1): sums less the multiple of an earlier coordinate's.

    standard: (runs, steps, coordinates), in units of sigma. Coordinate and multiple are taken as in
    `_beside_the_past`: two layers whose noise is drawn from one seed leave nothing.
    """
    centred = standard[0::2] - standard[0::2].mean(0)
    flat = centred.reshape(-1, centred.shape[2])
    products = flat.T @ flat
    power = products.diagonal()
    slopes = np.tril(products / np.where(power > 0, power, np.inf), -1)
    best = (slopes * products).argmax(1)
    multiples = slopes[np.arange(len(best)), best]
    return (standard - multiples * standard[:, :, best])[:, :, 1:]


def _lower_tail(
    name: str, what: str, *standard: tuple[np.ndarray, np.ndarray], note: str = ""
) -> Test | None:
    """Test that values have a variance of at least 1 over runs.

    standard: pairs of values (runs, steps, coordinates) and of a mask (steps, coordinates) of those
    to test.
    """
    standard = tuple(each for each in standard if each[1].any())
    if not standard:
        return None

    def test(error: float) -> Premise:
        tails = []
        for values, shown in standard:
            selecting, testing = values[0::2, shown], values[1::2, shown]
            # Where the clean sums hardly vary the noise is seen best; other runs select the places.
            order = np.argsort(selecting.var(axis=0))
            for share in (*QUIET_SHARES, 0.0):
                # A single place at least: one step may be without noise.
                places = order[: max(1, int(share * len(order)))]
                columns = testing[:, places]
                squares = float(((columns - columns.mean(0)) ** 2).sum())
                freedom = (len(columns) - 1) * len(places)
                tails.append((float(stats.chi2.cdf(squares, freedom)), np.sqrt(squares / freedom)))
        p_value = min(1.0, len(tails) * min(tails)[0])
        ratio = (min(tails) if p_value <= error else tails[0])[1]
        said = MASKED if ratio > 1.1 else ""
        if tails[0][1] < 1e-6 and name == NOISE:
            said = "all runs draw the same noise: does the code set a seed of its own?"
        status = VIOLATED if p_value <= error else HOLDS
        found = f"{what} {ratio:.3g} of the stated"
        words = "; ".join(filter(None, (said, note)))
        return Premise(name, status, found, "at least as stated", p_value, words)

    return test


def _law_of_the_noise(standard: np.ndarray, shown: np.ndarray) -> Test | None:
    """Test that no interval has more of (runs, steps, coordinates) than of a normal law around 0.

    shown: a mask (steps, coordinates) of the values to test. Clean sums, whatever they are, only
    shift or spread the noise, and no shift helps (Anderson). Uniform, clamped and Laplace noise of
    the stated deviation have more.
    """
    if not standard.size:
        return None

    def test(error: float) -> Premise:
        selecting, testing = standard[0::2], standard[1::2]
        order = np.argsort(selecting.var(axis=0).sum(0) / shown.sum(0))
        centre = selecting.mean((0, 1))

        def tail(values: np.ndarray, which: np.ndarray, width: float) -> tuple[float, float]:
            inside = (np.abs(values[:, :, which] - centre[which]) <= width)[:, shown[:, which]]
            chance = math.erf(width / math.sqrt(2))
            return float(stats.binom.sf(inside.sum() - 1, inside.size, chance)), inside.mean()

        quiet = [order[: max(1, int(share * len(order)))] for share in QUIET_SHARES]
        coordinates, width = min(product(quiet, WIDTHS), key=lambda each: tail(selecting, *each))
        p_value, share = tail(testing, coordinates, width)
        status = VIOLATED if p_value <= error else HOLDS
        found = f"{share:.3g} of the sums lie within {width:g} stated deviations"
        claimed = f"at most {math.erf(width / math.sqrt(2)):.3g}, as of a normal law"
        return Premise("law of the noise", status, found, claimed, p_value)

    return test


def _sampling(claim: Claim, pairs: Sequence[Pair], reason: str) -> Test | Premise | None:
    """Whether the canary acts as late as its sampling allows: it may not act more often."""
    claimed = "as late as its sampling allows"
    kinds = {phase.sampler for phase in claim.phases}
    if not kinds or kinds == {"full-batch"}:
        return None
    law = first_step_law(claim)
    if reason or law is None:
        words = reason or "these settings say nothing of the step at which a record first acts"
        return Premise(SAMPLING, UNTESTED, words, claimed)
    if len(pairs) < FEWEST_PAIRS:
        return Premise(SAMPLING, UNTESTED, TOO_FEW.format(len(pairs)), claimed)
    steps = np.array([pair.acted or len(law) for pair in pairs]).clip(max=len(law))
    by_then = np.cumsum(law)
    epoch = math.ceil(1 / law[0] - 1e-9)
    # The last entry of the law is that the record is never drawn.
    asked = sorted(
        k
        for k in {1, epoch // 2, min(epoch, len(law) - 1)}
        if 1 <= k < len(law) and by_then[k - 1] < CERTAIN
    )
    if not asked:
        words = "the record is drawn in these steps almost surely"
        return Premise(SAMPLING, UNTESTED, words, claimed)

    def test(error: float) -> Premise:
        tails = {
            k: float(stats.binom.sf((steps <= k).sum() - 1, len(steps), by_then[k - 1]))
            for k in asked
        }
        k = min(tails, key=lambda each: tails[each])
        p_value = min(1.0, len(asked) * tails[k])
        acted = int((steps <= k).sum())
        found = f"the canary acts by step {k} in {acted} of {len(steps)} pairs"
        if k == 1 and acted == len(steps):
            found += ": outside of its batches"
        elif p_value <= error:
            found += f": {_manner(steps, len(law) - 1)}"
        claimed = f"with probability {by_then[k - 1]:.3g}"
        status = VIOLATED if p_value <= error else HOLDS
        return Premise(SAMPLING, status, found, claimed, p_value)

    return test


def _manner(first: np.ndarray, steps: int) -> str:
    """What explains first steps better, steps + 1 if never: a rate, or one step of each epoch."""
    drawn, many = int((first <= steps).sum()), len(first)
    looked = int(first.clip(max=steps).sum())
    rate = drawn / looked
    of_rate = drawn * math.log(rate) + special.xlog1py(looked - drawn, -rate)
    # Of shuffled batches each is as likely, of an epoch that is at least as long as seen.
    batches = float(first.max()) if drawn == many else steps * many / drawn
    of_epoch = -drawn * math.log(batches) + special.xlog1py(many - drawn, -steps / batches)
    by_rate = f"as at a rate of {rate:.2g}"
    by_epoch = f"once in {batches:.3g} steps, as in shuffled batches"
    if abs(of_rate - of_epoch) < math.log(LIKELIER):
        return f"{by_rate}, or {by_epoch}"
    return by_rate if of_rate > of_epoch else by_epoch


def first_step_law(claim: Claim) -> np.ndarray | None:
    """P[the record is first drawn at step k], k = 1 .. steps, and that it never is.

    None where it says nothing: full batches, a fixed order, several kinds of samplers.
    """
    kinds = {phase.sampler for phase in claim.phases}
    if kinds and kinds <= DRAWN:
        rates = np.concatenate(
            [np.full(phase.steps, phase.batch / phase.n) for phase in claim.phases]  # type: ignore[operator]
        )
        if rates[0] >= 1:
            return None
        missed = np.concatenate([[1.0], np.cumprod(1 - rates)])
        return np.append(missed[:-1] * rates, missed[-1])
    if kinds == {"shuffled"}:
        phase = claim.phases[0]
        if {(each.batch, each.drop_last) for each in claim.phases} != {
            (phase.batch, phase.drop_last)
        }:
            return None
        assert phase.n is not None and phase.batch is not None and claim.steps is not None
        batches = phase.batches_per_epoch
        if batches == 1:
            return None
        shares = np.full(batches, phase.batch / phase.n)
        if not phase.drop_last:
            shares[-1] = 1 - shares[:-1].sum()
        # What a dropped batch held waits for the next epoch.
        waits = (1 - shares.sum()) ** np.arange(claim.steps // batches + 1)
        law = (waits[:, None] * shares).ravel()[: claim.steps]
        return np.append(law, max(0.0, 1 - law.sum()))
    return None
