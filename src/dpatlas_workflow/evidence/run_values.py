"""The values of single runs behind a comparison, as comparisons.csv has them, and their intervals.

With them a reader of a publication can compute its intervals again, without the records.
"""

import math
from collections.abc import Mapping, Sequence

from dpatlas.errors import InputError
from dpatlas_workflow.evidence.looks import EVERYTHING, LOOKS, MOST_EQUAL
from dpatlas_workflow.statistics import Estimate, difference_estimate, mean_estimate

# Significant digits of a value, and of the other numbers of a csv.
DIGITS, OTHER_DIGITS = 8, 6
BETWEEN_SAMPLES = " | "


def values_text(estimate: Estimate) -> str:
    """The column `values`: of each run in its order; two groups that are not paired by a bar.

    Empty for a quantity of more runs than the last look has: those are draws of a simulation.
    """
    if any(len(sample) > LOOKS[-1] for sample in estimate.samples):
        return ""
    return BETWEEN_SAMPLES.join(
        " ".join(f"{value:.{DIGITS}g}" for value in sample) for sample in estimate.samples
    )


def samples_of(row: Mapping[str, str]) -> list[list[float]]:
    """The values of a row of comparisons.csv, by group; none where its quantity has no runs.

    Raises InputError for what is no such text.
    """
    if not (text := row.get("values") or ""):
        return []
    where = f"comparisons.csv, {row['claim']}, values"
    try:
        samples = [[float(value) for value in part.split()] for part in text.split("|")]
    except ValueError as error:
        raise InputError(where, error, "numbers") from None
    if len(samples) > 2 or not all(samples):
        raise InputError(where, text[:40], "one or two groups")
    return samples


def differences_from_values(row: Mapping[str, str]) -> list[str]:
    """What of a row of comparisons.csv does not follow from its values, in words.

    That is the observed mean (or difference of two), and the ends of the interval, which lie
    between those at the last look and those of all looks together: of a quantity whose name changes
    with the runs the intervals of earlier looks do not count. A row without values has none.

    Raises InputError for a cell that is no number.
    """
    if not (samples := samples_of(row)):
        return []
    runs = min(map(len, samples))
    try:
        observed, level = float(row["observed"]), float(row["level"])
        low, high = float(row["low"] or -math.inf), float(row["high"] or math.inf)
    except ValueError as error:
        raise InputError(f"comparisons.csv, {row['claim']}", error, "numbers") from None
    last = estimate_of(samples)
    size = max(abs(value) for sample in samples for value in sample)
    found = []
    if _beyond(observed, last.value, last.value, size):
        found.append(f"observed {observed:g} in place of {last.value:.6g}")
    if runs < 2:
        return found
    looks = [look for look in LOOKS if look < runs]
    intervals = [estimate_of([s[:look] for s in samples]).interval(level) for look in looks]
    intervals.append(last.interval(level))
    half = (intervals[-1][1] - intervals[-1][0]) / 2
    # Rounded values move the half width by their rounding times the quantile of Student's law.
    room = size * (1 + (half / last.standard_error if last.standard_error else 0.0))
    lows, highs = zip(*intervals, strict=True)
    # Too many equal runs give no interval: those of earlier looks count, or none.
    equal = not last.standard_error or last.equal > MOST_EQUAL
    if (low, high) == EVERYTHING and (equal or max(lows) > min(highs)):
        return found
    outer = (min(lows), max(highs)) if equal else intervals[-1]
    ends = ("low", low, outer[0], max(lows)), ("high", high, outer[1], min(highs))
    for name, end, loosest, inner in ends:
        if _beyond(end, loosest, inner, room):
            found.append(f"{name} {end:g} in place of {inner:.6g}")
    return found


def estimate_of(samples: Sequence[Sequence[float]]) -> Estimate:
    """The mean of one sample (runs,), or the difference of the means of two."""
    if len(samples) == 1:
        return mean_estimate(samples[0])
    return difference_estimate(*samples, paired=False)


def _beyond(value: float, first: float, second: float, room: float) -> bool:
    """Whether a rounded number lies outside two others, by more than rounding explains."""
    allowed = 10.0**-DIGITS * room * 5 + 10.0 ** (1 - OTHER_DIGITS) * max(abs(value), 1e-300)
    low, high = sorted((first, second))
    return not low - allowed <= value <= high + allowed or not math.isfinite(value)
