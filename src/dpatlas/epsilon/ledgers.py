"""What several runs spent on one data set, from the ledgers in their records.

A ledger that says which noisy sums were accounted (sampler, noise, steps) is composed with others
of its kind by an accountant. Of any other only its (epsilon, delta) is used: epsilons and deltas
add up (basic composition).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpatlas.accounting.guarantees import Phase, composition
from dpatlas.accounting.samplers import SAMPLERS, sampler
from dpatlas.base.guard import one_of, real
from dpatlas.base.rounding import rounded_up, upward
from dpatlas.epsilon.claim import MOST_STEPS, MOST_TRIALS, NOISE
from dpatlas.errors import InputError

# How a ledger's neighbour relation begins.
RELATIONS = {
    f"{words} one {unit}": (relation, unit)
    for words, relation in (("add or remove", "add_remove"), ("replace", "replace_one"))
    for unit in ("record", "person")
}
# How a ledger says that nothing was chosen on private data.
NOTHING = "nothing"
SHARED_NOISE = "noise shared by several trainings"
# The rebuilt epsilon of a ledger may exceed the stated one by this share: other accountants'
# settings round differently. It may hardly be less, or the total would be too small.
SAME, LESS = 0.01, 1e-6
# Of sums of doubles, relative.
ROUNDING = 1e-9
LONGEST_NAME = 56
# Of each ledger in JSON, as they are.
TOLD = ("name", "epsilon", "delta", "with_tuning", "trainings")


@dataclass(frozen=True)
class Spent:
    """What one ledger says: epsilon (None: nothing is guaranteed) at delta under `relation`.

    with_tuning: epsilon of everything trained to choose it, at no larger delta; None if not said.
    phases: of one training, `trainings` times; empty where the ledger does not say. unit: what
    neighbours differ in, a record or a person. uncounted: what was chosen on private data at a cost
    that no number here has. warnings: the ledger's own.
    """

    name: str
    epsilon: float | None
    delta: float
    relation: str
    with_tuning: float | None = None
    trainings: int = 1
    phases: tuple[Phase, ...] = ()
    data: str | None = None
    unit: str = "record"
    uncounted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Total:
    """What all ledgers spent together: the least epsilon, and by which composition.

    basic: the sums of epsilons and deltas. with_tuning: epsilon by basic composition of what was
    trained to choose the runs as well, where a ledger says so.
    """

    spent: tuple[Spent, ...]
    relation: str
    epsilon: float
    delta: float
    by: str
    basic: tuple[float, float]
    with_tuning: float | None

    def meets(self, epsilon: float, delta: float | None = None) -> bool:
        """Whether all of it, tuning included, fits into a budget; with None at whatever delta."""
        most = max(self.epsilon, self.with_tuning or 0)
        at = self.delta if self.with_tuning is None else max(self.delta, self.basic[1])
        slack = 1 + ROUNDING
        return most <= epsilon * slack and (delta is None or at <= delta * slack)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values, but for infinite numbers."""
        return {
            "relation": self.relation,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "by": self.by,
            "basic": {"epsilon": self.basic[0], "delta": self.basic[1]},
            "with_tuning": self.with_tuning,
            "ledgers": [
                {name: getattr(each, name) for name in TOLD}
                | {
                    "composed": bool(each.phases),
                    "uncounted": list(each.uncounted),
                    "warnings": list(each.warnings),
                }
                for each in self.spent
            ],
        }


def total_spent(records: Mapping[str, Any], delta: float | None = None) -> Total:
    """The total of the ledgers in `records`, by name: whole records, or ledgers alone.

    delta: of the composition; by default the largest of the ledgers'. Raises InputError for what is
    no ledger of a private run, for other data sets or relations, and for runs that share noise.
    """
    spent = [read_spent(name, content) for name, content in records.items()]
    if len(spent) < 2:
        raise InputError("--ledgers", f"{len(spent)} ledger", "two or more")
    data = {each.data for each in spent if each.data is not None}
    if len(data) > 1:
        found = "records of " + " and of ".join(sorted(f"data {each[:8]}..." for each in data))
        raise InputError("--ledgers", found, "runs on one data set")
    if len(relations := sorted({each.relation for each in spent})) > 1:
        raise InputError("--ledgers", " and ".join(relations), "ledgers of one neighbour relation")
    if len(units := sorted({each.unit for each in spent})) > 1:
        found = " and ".join(f"one {unit}" for unit in units)
        raise InputError("--ledgers", found, "ledgers of one unit of privacy")
    delta = max(each.delta for each in spent) if delta is None else delta
    basic = (_sum(each.epsilon for each in spent), sum(each.delta for each in spent))
    epsilon, at, by = *basic, "sums of epsilons and deltas"
    if all(each.phases for each in spent):
        trainings = [each.phases for each in spent for _ in range(each.trainings)]
        try:
            composed = composition(trainings, delta, relations[0])
        except InputError as error:
            by += f" (no accountant composes them: {error})"
        else:
            epsilon, at = composed.epsilon, delta
            by = f"{composed.accountant.upper()}, every noisy sum"
    elif delta < basic[1]:
        by += ", since not every ledger has the epsilon of noisy sums that it lists"
    tuned = None
    if any(each.with_tuning is not None for each in spent):
        wholes = ((each.with_tuning, each.epsilon) for each in spent)
        tuned = _sum(alone if whole is None else whole for whole, alone in wholes)
    return Total(tuple(spent), relations[0], epsilon, at, by, basic, tuned)


def read_spent(name: str, content: Any) -> Spent:
    """What a record, or a ledger alone, says; InputError if it is neither."""
    ledger = content.get("ledger", content) if isinstance(content, Mapping) else None
    if not isinstance(ledger, Mapping) or "neighbour_relation" not in ledger:
        raise InputError(name, "no ledger", "a record of a private run, or its ledger")
    if "epsilon" not in ledger or "delta" not in ledger or "arms" in ledger or "priors" in ledger:
        raise InputError(name, "a ledger of several arms", "a ledger of one mechanism")
    words = str(ledger["neighbour_relation"])
    named = next((key for text, key in RELATIONS.items() if words.startswith(text)), None)
    if named is None:
        raise InputError(f"{name}, neighbour_relation", repr(words), " or ".join(RELATIONS))
    relation, unit = named
    if SHARED_NOISE in str(ledger.get("holds_for", "")):
        raise InputError(name, "noise shared with other runs", "runs with noise of their own")
    epsilon, delta = ledger["epsilon"], ledger["delta"]
    if epsilon is None:
        return Spent(name, None, 0.0, relation, unit=unit)
    tuning = ledger.get("tuning")
    if not isinstance(tuning, Mapping | None):
        raise InputError(f"{name}, tuning", repr(tuning), "a mapping, or no such key")
    real(ge=0).check(f"{name}, epsilon", epsilon)
    real(ge=0, lt=1).check(f"{name}, delta", delta)
    with_tuning = None
    if tuning is not None:
        whole = tuning.get("epsilon_of_all")
        if whole is not None:
            real(ge=0).check(f"{name}, tuning.epsilon_of_all", whole)
        with_tuning = math.inf if whole is None else float(whole)
        real(ge=0, le=delta).check(f"{name}, tuning.delta", tuning.get("delta", delta))
        one_of(relation).check(f"{name}, tuning.relation", tuning.get("relation", relation))
    data = content.get("data") if "ledger" in content else None
    checksum = data.get("sha256") if isinstance(data, Mapping) else None
    if not isinstance(checksum, str | None):
        raise InputError(f"{name}, data.sha256", repr(checksum), "a checksum as text")
    said = tuple(map(str, _as_list(ledger.get("warnings") or [])))
    spent = Spent(
        name,
        float(epsilon),
        float(delta),
        relation,
        with_tuning,
        data=checksum,
        unit=unit,
        uncounted=_uncounted(ledger),
        warnings=said,
    )
    return _with_phases(spent, ledger)


def _uncounted(ledger: Mapping[str, Any]) -> tuple[str, ...]:
    """Choices on private data that the ledger names, but for the tuning that it counts."""
    tuning = ledger.get("tuning")
    counted = tuning.get("what") if isinstance(tuning, Mapping) else None
    listed = _as_list(ledger.get("chosen_on_private_data") or NOTHING)
    names = (str(each.get("what") if isinstance(each, Mapping) else each) for each in listed)
    return tuple(
        name
        for name in names
        if name != counted and name.partition(":")[0].strip().lower() not in (NOTHING, "none", "")
    )


def _with_phases(spent: Spent, ledger: Mapping[str, Any]) -> Spent:
    """`spent` with the phases that the ledger accounts, if they give its epsilon again.

    InputError where they cost more by the accountant that the ledger names.
    """
    named = ledger.get("accountant")
    accountant = str(named) if named in ("pld", "rdp") else "auto"
    many = re.match(r"(\d+) trainings, each: ", str(ledger.get("event", "")))
    try:
        trainings = int(many.group(1)) if many else 1
        rows = [_as_list(ledger[key]) for key in ("sampler", "noise_multiplier", "steps")]
        phases = tuple(
            Phase(_sampler(drawn), float(noise), int(steps))
            for drawn, noise, steps in zip(*rows, strict=True)
        )
        if trainings > MOST_TRIALS or any(phase.steps > MOST_STEPS for phase in phases):
            return spent
        for phase in phases:
            if phase.noise_multiplier:
                NOISE.check("noise_multiplier", phase.noise_multiplier)
        again = composition([phases] * trainings, spent.delta, spent.relation, accountant).epsilon
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return spent
    stated = spent.epsilon
    assert stated is not None
    if again > stated * (1 + SAME) and accountant != "auto":
        cost = f"{upward(again)} by {accountant.upper()}"
        found = f"epsilon {stated:g} of noisy sums whose epsilon is {cost}"
        raise InputError(spent.name, found, "a ledger whose epsilon covers its noisy sums")
    if not stated * (1 - LESS) <= again <= stated * (1 + SAME):
        # Another accounting, say of the last iterate alone.
        return spent
    return replace(spent, trainings=trainings, phases=phases)


def _sampler(drawn: Mapping[str, Any]) -> Any:
    if drawn["name"] not in SAMPLERS:
        raise KeyError(drawn["name"])
    return sampler(drawn["name"], drawn["n"], round(drawn["expected_batch"]))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _sum(epsilons: Any) -> float:
    return sum(math.inf if each is None else each for each in epsilons)


def describe_total(total: Total) -> str:
    """The total in words."""
    names = [
        each.name if len(each.name) <= LONGEST_NAME else "..." + each.name[3 - LONGEST_NAME :]
        for each in total.spent
    ]
    width = max(len("total"), *map(len, names))
    lines = [f"{'ledger':<{width}}  {'epsilon':>9}  {'delta':>8}  {'with tuning':>11}"]
    for name, each in zip(names, total.spent, strict=True):
        epsilon = "nothing" if each.epsilon is None else upward(each.epsilon)
        tuned = "" if each.with_tuning is None else upward(each.with_tuning)
        many = f"  {each.trainings} trainings" if each.trainings > 1 else ""
        delta = rounded_up(each.delta, 2)
        lines.append(f"{name:<{width}}  {epsilon:>9}  {delta:>8}  {tuned:>11}{many}")
    tuned = "" if total.with_tuning is None else upward(total.with_tuning)
    whole = upward(total.epsilon)
    lines.append(f"{'total':<{width}}  {whole:>9}  {rounded_up(total.delta, 2):>8}  {tuned:>11}")
    lines.append(f"under {total.relation}, by {total.by}")
    if total.with_tuning is not None:
        lines.append(
            f"with tuning: sums of epsilons, at delta {rounded_up(total.basic[1], 2)}, of all that "
            "was trained to choose the runs"
        )
    for name, each in zip(names, total.spent, strict=True):
        lines += [f"not counted: {name}: {what}" for what in each.uncounted]
        lines += [f"warning: {name}: {what}" for what in each.warnings]
    return "\n".join(line.rstrip() for line in lines)
