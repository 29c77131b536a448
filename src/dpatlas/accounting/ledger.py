"""The privacy ledger: what a private run guarantees and under which assumptions, for its record.

A ledger describes the steps that were actually taken: `Ran`, which a training provides, holds its
phases with those steps. Besides the guarantee of the reported model, a ledger states the guarantee
of everything that was trained to choose it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpatlas.accounting.clip_bounds import StatedClip, stated_clip
from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import ACCOUNTS, RELATIONS, Phase, composition, guarantee
from dpatlas.accounting.samplers import sampler
from dpatlas.base.guard import checked, one_of, real
from dpatlas.base.rounding import rounded_up
from dpatlas.base.seeds import SHARED_NOISE
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.guarantees import conditional_rdp
from dpatlas.formulas.dp_sgld.theorems import ORDERS, rdp_to_epsilon

# With the unit of privacy, and its plural.
NEIGHBOURS = {
    "add_remove": "add or remove one {}; sample rates, divisors and steps stay as they are",
    "replace_one": "replace one {}; the number of {} is public",
}
RECORD, PERSON = ("record", "records"), ("person with all of their records", "persons")
NOISE_SOURCES = {
    "keyed": "secret seeds and exact arithmetic; the noise follows from the configuration, and "
    "whoever knows that can subtract it",
    "os": "exact arithmetic; the noise follows from a secret of the operating system, and nobody "
    "can repeat the run",
}
# Effects of floating-point arithmetic that no guarantee here covers.
FLOATS = (
    "noise is drawn and scaled in float64 and rounded once, when it is added: which floating-point "
    "numbers can come out depends on the sum before it (Mironov 2012); Philox is no cryptographic "
    "generator; one record moves a rounded sum over n records by C (1 + 7.6e-6 n), not by C "
    "(dpatlas.privacy.clipping.company_rounding)"
)
PUBLIC = "public"
NOTHING = "nothing"
UNTOLD = {"what": "unknown: nobody said how the settings were chosen", "cost": "not counted"}
# The validation scores that a choice is based on carry no noise.
HELD_OUT = (
    "the scores of validation records, and of test records, carry no noise: no finite epsilon for "
    "those records; epsilon is for the training records"
)
GAUSSIAN = "last iterate, Gaussian DP"
GIVEN_BATCHES = "last iterate and batches"
EVERY_ITERATE = "every iterate"


@dataclass(frozen=True)
class LastIterate:
    """A bound for the release of the last iterate alone; bounds of one kind compose.

    bound: `GAUSSIAN`, with the parameter mu; or `GIVEN_BATCHES`, with the arguments of
    `conditional_rdp` after alpha (L, lam, beta, n, m, sigma2, eta, K).
    """

    bound: str
    setting: tuple[float, ...]

    def __post_init__(self) -> None:
        one_of(GAUSSIAN, GIVEN_BATCHES).check("bound", self.bound)


@dataclass(frozen=True)
class Persons:
    """The unit of privacy where it is a person: number of persons, most records of one, records."""

    number: int
    most_records: int
    records: int

    def entry(self) -> dict[str, Any]:
        """The entry of a ledger."""
        return {
            "what": "person (group of records)",
            "persons": self.number,
            "records": self.records,
            "most_records_of_a_person": self.most_records,
            "counts": "the numbers of records are read from the data: the guarantee does not cover "
            "their release",
            "gradient": "mean over the records of the person, clipped as one",
        }


@dataclass(frozen=True)
class Ran:
    """What one training did; `facts` and `of` convert it to JSON values and back.

    mechanism: in words. phases: with the steps whose noisy sums exist. max_grad_norm: clip bound of
    each phase. shared_noise: the name under which other trainings drew the same noise, else None.
    clips: of phases that clip by layer bounds or adaptively; None for others. persons: None where
    the unit of privacy is a record.
    """

    mechanism: str
    phases: tuple[Phase, ...]
    max_grad_norm: tuple[float, ...]
    noise_source: str
    shared_noise: str | None = None
    last_iterate: LastIterate | None = None
    clips: tuple[StatedClip | None, ...] = ()
    persons: Persons | None = None

    def __post_init__(self) -> None:
        one_of(*NOISE_SOURCES).check("noise_source", self.noise_source)
        if not self.clips:
            object.__setattr__(self, "clips", (None,) * len(self.phases))
        for name, values in (("max_grad_norm", self.max_grad_norm), ("clips", self.clips)):
            if len(values) != len(self.phases):
                found = f"{len(values)} values"
                raise InputError(name, found, f"{len(self.phases)}: one a phase")
        for bound in self.max_grad_norm:
            real(gt=0).check("max_grad_norm", bound)

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        last = self.last_iterate
        return {
            "mechanism": self.mechanism,
            "phases": [
                {
                    "sampler": phase.sampler.name,
                    "n": int(phase.sampler.n),
                    "batch": int(phase.sampler.batch),
                    "noise_multiplier": float(phase.noise_multiplier),
                    "steps": int(phase.steps),
                }
                for phase in self.phases
            ],
            "max_grad_norm": [float(bound) for bound in self.max_grad_norm],
            "noise_source": self.noise_source,
            "shared_noise": self.shared_noise,
            "last_iterate": last and {"bound": last.bound, "setting": list(last.setting)},
            "clips": [clip and clip.facts() for clip in self.clips],
            "persons": self.persons and vars(self.persons),
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Ran":
        """The inverse of `facts`."""
        last = facts["last_iterate"]
        return cls(
            facts["mechanism"],
            tuple(
                Phase(
                    sampler(phase["sampler"], phase["n"], phase["batch"]),
                    phase["noise_multiplier"],
                    phase["steps"],
                )
                for phase in facts["phases"]
            ),
            tuple(facts["max_grad_norm"]),
            facts["noise_source"],
            facts["shared_noise"],
            last and LastIterate(last["bound"], tuple(last["setting"])),
            tuple(map(stated_clip, facts["clips"])),
            facts["persons"] and Persons(**facts["persons"]),
        )


@checked(**ACCOUNTS)
def together(
    runs: Sequence[Ran], delta: float, relation: str, accountant: str = "auto"
) -> tuple[float, str]:
    """The smallest epsilon that holds for all `runs` together, and the bound that gives it.

    The candidates are composition of every iterate and, where every run has a bound for its last
    iterate (under replace_one), composition of those: mu adds in quadrature, Renyi divergences add.
    Infinity where runs share noise or a run has none.
    """
    if shared := [run.shared_noise for run in runs if run.shared_noise]:
        return math.inf, f"the runs share noise ({shared[0]})"
    try:
        composed = composition([run.phases for run in runs], delta, relation, accountant)
    except InputError as error:
        # An accountant that covers a single run may not resolve delta for that many steps.
        epsilon, by = math.inf, f"no accountant: {error}"
    else:
        epsilon, by = composed.epsilon, f"{EVERY_ITERATE}, {composed.accountant.upper()}"
        if not math.isfinite(epsilon):
            by = _why_nothing(runs)
    last = _last_iterates(runs, delta) if relation == "replace_one" else None
    if last is not None and last[0] <= epsilon:
        return last
    return epsilon, by


def _why_nothing(runs: Sequence[Ran]) -> str:
    silent = any(phase.noise_multiplier == 0 for run in runs for phase in run.phases)
    return "no noise" if silent else "hardly any noise"


def _last_iterates(runs: Sequence[Ran], delta: float) -> tuple[float, str] | None:
    """Epsilon of all runs by the bound that their last iterates share; None if they share none."""
    counts = Counter(run.last_iterate for run in runs if run.last_iterate is not None)
    if counts.total() < len(runs):
        return None
    kinds = {last.bound for last in counts}
    if kinds == {GAUSSIAN}:
        mu = math.sqrt(sum(count * last.setting[0] ** 2 for last, count in counts.items()))
        return float(gaussian_epsilon(mu, delta)), GAUSSIAN
    if kinds == {GIVEN_BATCHES}:
        curve: Any = 0
        for last, count in counts.items():
            L, lam, beta, n, m, sigma2, eta, steps = last.setting
            ns = int(n), int(m)
            curve += count * conditional_rdp(ORDERS, L, lam, beta, *ns, sigma2, eta, int(steps))
        return float(rdp_to_epsilon(curve, delta)), GIVEN_BATCHES
    return None


@checked(**ACCOUNTS)
def ledger(
    ran: Ran | Sequence[Ran],
    *,
    delta: float,
    relation: str,
    constants: Mapping[str, str] | None = None,
    accountant: str = "auto",
    claimed: Mapping[str, Any] | None = None,
    chosen_on_private_data: Sequence[Mapping[str, Any]] | None = None,
    tuning: Mapping[str, Any] | None = None,
    released: str = "the last iterate",
    require_private: bool = False,
) -> dict[str, Any]:
    """The ledger of what ran, as JSON values.

    ran: one training; or several that are all released: then epsilon is of all together, and
        `one_run` states the epsilon of the worst of them alone.
    constants: origin of each constant that the guarantee depends on (max_grad_norm always; a
        feature norm, a smoothness, ...). Every origin must be "public". None: max_grad_norm is.
    claimed: a guarantee that someone else states: epsilon, delta and `by` whom; or None.
    chosen_on_private_data: `what` was chosen and its `cost`; None if nothing was.
    tuning: from `tuning_of` or `private_selection`: what was trained to choose this run.
    require_private: refuse a run that guarantees nothing.

    Without noise, epsilon and delta are None and `guaranteed` says why. Settings that differ by
    phase are lists with one entry per phase; of several trainings those of the first are given.
    Raises InputError for a constant that is not public, for a claim of privacy without noise, for
    trainings with other units of privacy, and for samplers, relation, delta and accountant that do
    not go together.
    """
    runs = [ran] if isinstance(ran, Ran) else list(ran)
    first = runs[0]
    if any(run.persons != first.persons for run in runs):
        raise InputError("ran", "trainings with other units of privacy", "one unit for all")
    unit = RECORD if first.persons is None else PERSON
    constants = {"max_grad_norm": PUBLIC} if constants is None else constants
    if "max_grad_norm" not in constants:
        raise InputError("constants", "no entry for max_grad_norm", f"max_grad_norm: {PUBLIC}")
    # No accountant counts what a constant that is taken from private data reveals.
    for name, origin in constants.items():
        one_of(PUBLIC).check(f"origin of the constant {name}", origin)
    claim = None if claimed is None else dict(claimed)
    if claim is not None:
        _check_keys("claimed", claim, ("epsilon", "delta", "by"))
        real(gt=0).check("claimed epsilon", claim["epsilon"])
        real(ge=0, lt=1).check("claimed delta", claim["delta"])
    by_run, accounts = {}, (delta, relation, accountant)
    for run in runs:
        if run not in by_run:
            by_run[run] = _stated(run, *accounts)
    worst = max(by_run.values(), key=lambda account: account["epsilon"])
    stated = worst
    if len(runs) > 1:
        epsilon, by = together(runs, *accounts)
        events = Counter(by_run[run]["event"] for run in runs)
        event = f"{len(runs)} trainings, each: {worst['event']}"
        if len(events) > 1:
            each = "; ".join(f"{number} of {what}" for what, number in events.items())
            event = f"{len(runs)} trainings: {each}"
        stated = {**worst, "epsilon": epsilon, "event": event, "cross_check": f"none: {by}"}
    private = math.isfinite(stated["epsilon"])
    if not math.isfinite(worst["epsilon"]) and (require_private or claim):
        noise = _one_or_list([phase.noise_multiplier for phase in first.phases])
        allowed = "a number > 0 in every phase that takes steps"
        raise InputError("noise_multiplier", f"{noise} with a claim of privacy", allowed)
    clips = [
        float(bound) if clip is None else clip.entry()
        for bound, clip in zip(first.max_grad_norm, first.clips, strict=True)
    ]
    entries = {
        "mechanism": first.mechanism,
        "neighbour_relation": NEIGHBOURS[relation].format(*unit),
        "sampler": _one_or_list([_sampler(phase) for phase in first.phases]),
        **stated,
        "epsilon": stated["epsilon"] if private else None,
        "delta": delta if private else None,
        "guaranteed": _in_words(stated["epsilon"], delta, relation, runs),
        "claimed": claim,
        "clip": _one_or_list(clips),
        "noise_multiplier": _one_or_list([float(p.noise_multiplier) for p in first.phases]),
        "steps": _one_or_list([int(phase.steps) for phase in first.phases]),
        "chosen_on_private_data": _choices(chosen_on_private_data, tuning),
        "holds_for": holds_for(first.noise_source, released, first.shared_noise),
        "floats": FLOATS,
        "public_constants": sorted(constants),
    }
    if first.persons is not None:
        entries["unit"] = first.persons.entry()
    if len(runs) > 1:
        of_one = worst["epsilon"] if math.isfinite(worst["epsilon"]) else None
        entries["one_run"] = {"epsilon": of_one, "delta": delta}
        if private:
            entries["guaranteed"] += f", all {len(runs)} runs together; one alone: epsilon "
            entries["guaranteed"] += rounded_up(worst["epsilon"])
    if tuning is not None:
        entries["tuning"] = dict(tuning)
    return entries


@checked(**ACCOUNTS)
def tuning_of(
    trials: Sequence[Ran],
    reported: Sequence[Ran],
    *,
    delta: float,
    relation: str,
    accountant: str = "auto",
    declared: bool = False,
) -> dict[str, Any]:
    """The cost, by composition, of all that was trained to choose a model; `tuning` of `ledger`.

    trials: all trainings whose validation scores were compared. reported: the released run first,
    then others of the same setting. `epsilon` covers the trials and one reported run,
    `epsilon_of_all` everything; None where nothing is guaranteed. declared: the number of trials is
    a user's declaration, and each trial counts as one run like the reported one.
    """
    accounts = (delta, relation, accountant)
    epsilon, by = together([*trials, *reported[:1]], *accounts)
    of_all = together([*trials, *reported], *accounts)[0] if len(reported) > 1 else epsilon
    what = f"by the validation scores of {len(trials)} trainings on the private records"
    if declared:
        what += ", as declared, each counted as one like the reported run"
    return {
        "what": f"settings, {what}",
        "trials": len(trials),
        "reported_runs": len(reported),
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "epsilon_of_all": of_all if math.isfinite(of_all) else None,
        "delta": delta,
        "relation": relation,
        "by": by if math.isfinite(epsilon) else f"{NOTHING}: {by}",
        "held_out": HELD_OUT,
    }


@checked(epsilon=real(gt=0), delta=real(gt=0, lt=1), relation=one_of(*RELATIONS))
def private_selection(
    law: str, *, epsilon: float, delta: float, relation: str, by: str, held_out: str = HELD_OUT
) -> dict[str, Any]:
    """`tuning` of `ledger` where a private mechanism chose among a random number of trials.

    law: distribution of that number, in words. epsilon: of the release of the selected model, its
    settings and its score, by the theorem `by`.
    """
    return {
        "what": f"settings, at random, and the best of a random number of trials, {law}",
        "trials": law,
        "reported_runs": 1,
        "epsilon": float(epsilon),
        "epsilon_of_all": float(epsilon),
        "delta": delta,
        "relation": relation,
        "by": by,
        "held_out": held_out,
    }


def holds_for(noise_source: str, released: str, shared_noise: str | None = None) -> str:
    """The assumptions of a guarantee, and the release that it covers."""
    shared = f"; {SHARED_NOISE.format(name=shared_noise)}" if shared_noise else ""
    return f"{NOISE_SOURCES[noise_source]}; released: {released} only{shared}"


def _stated(ran: Ran, delta: float, relation: str, accountant: str) -> dict[str, Any]:
    """The accountant's entries of a ledger; epsilon is infinite where nothing is guaranteed."""
    account = guarantee(ran.phases, delta, relation, accountant)
    stated = {
        "accountant": account.accountant,
        "event": account.event,
        "cross_check": account.cross_check,
        "warnings": list(account.warnings),
        "epsilon": account.epsilon,
    }
    # One run released alone has its noise to itself.
    alone = replace(ran, shared_noise=None)
    epsilon, by = together([alone], delta, relation, accountant)
    if by not in (GAUSSIAN, GIVEN_BATCHES):
        return stated
    assert ran.last_iterate is not None
    every = f"{EVERY_ITERATE}, {account.accountant.upper()}: epsilon {account.epsilon:.6g}"
    what = " and all batches, Renyi divergence averaged over batches"
    if by == GAUSSIAN:
        what = f", {ran.last_iterate.setting[0]:.6g}-GDP"
    return stated | {
        "accountant": "gdp" if by == GAUSSIAN else "rdp",
        "event": f"last of {sum(phase.steps for phase in ran.phases)} iterates{what}",
        "cross_check": every,
        "warnings": [],
        "epsilon": epsilon,
    }


def _choices(
    chosen: Sequence[Mapping[str, Any]] | None, tuning: Mapping[str, Any] | None
) -> list[dict[str, Any]] | str:
    for choice in chosen or ():
        _check_keys("chosen_on_private_data", choice, ("what", "cost"))
    listed = [dict(choice) for choice in chosen or ()]
    if tuning is None:
        return listed or NOTHING
    cost = tuning["by"]
    if tuning["epsilon"] is not None:
        cost = (
            f"epsilon {rounded_up(tuning['epsilon'])} at delta {rounded_up(tuning['delta'])} "
            f"({tuning['relation']}) "
            f"of all trials and the reported run together ({tuning['by']})"
        )
        if tuning["epsilon_of_all"] != tuning["epsilon"]:
            of_all = rounded_up(tuning["epsilon_of_all"])
            cost += f", {of_all} with all {tuning['reported_runs']} such runs"
    return [*listed, {"what": tuning["what"], "cost": f"{cost}; {tuning['held_out']}"}]


def _check_keys(where: str, found: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    if set(found) != set(keys):
        raise InputError(where, f"keys {', '.join(found) or 'none'}", " and ".join(keys))


def _sampler(phase: Phase) -> dict[str, Any]:
    sampler = phase.sampler
    return {
        "name": sampler.name,
        "n": int(sampler.n),
        "expected_batch": sampler.expected_batch,
        "sample_rate": sampler.sample_rate,
    }


def _in_words(epsilon: float, delta: float, relation: str, runs: Sequence[Ran]) -> str:
    if math.isfinite(epsilon):
        return f"epsilon {rounded_up(epsilon)} at delta {rounded_up(delta)} ({relation})"
    if len(runs) > 1 and runs[0].shared_noise:
        return f"{NOTHING} of all runs together: {SHARED_NOISE.format(name=runs[0].shared_noise)}"
    return f"{NOTHING}: {_why_nothing(runs)}"


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
