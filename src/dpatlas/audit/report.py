"""What an audit found, in words and as values."""

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dpatlas.accounting.audit_statistics import LowerBound, ProfileTest
from dpatlas.accounting.one_run import OneRunTest
from dpatlas.audit.claim import Claim
from dpatlas.audit.pairs import sampled_steps
from dpatlas.audit.premises import COUNTED, UNTESTED, VIOLATED, Premise
from dpatlas.base.progress import duration
from dpatlas.base.rounding import downward, rounded_up, upward
from dpatlas.errors import EXIT_FAILED_RUN

NOT_CONTRADICTED, CONTRADICTED = "not contradicted", "contradicted"
PREMISES_FAIL, POWERLESS = "the claim's premises fail", "could not have contradicted the claim"
EXIT_POWERLESS = 3
WIDTH = 100


@dataclass(frozen=True)
class Attack:
    """One adversary's lower bound at the claim's delta, and its test of the whole profile.

    test: None where every epsilon of the profile is infinite.
    """

    adversary: str
    bound: LowerBound
    test: ProfileTest | None


@dataclass(frozen=True)
class Report:
    """The outcome of an audit; `str` gives it in words, `exit_code` in a number.

    level: confidence of what is said to be wrong. seed: with it the audit can be repeated. pairs,
    runs: of runs for the premises, and runs on each data set for the bound. pair_runs: runs of all
    pairs. facts: least, mean and largest of what was measured in them, by name. missing: what the
    time did not allow and a verdict needs; empty where there is enough. absent: whether the canary
    changed nothing in any pair, as if it had not been planted. looks: confidence levels of
    all judgements of the runs in the folder, this one included; empty where nothing was judged.
    """

    claim: Claim
    premises: tuple[Premise, ...]
    attacks: tuple[Attack, ...]
    level: float
    seed: int
    seconds: float
    pairs: int = 0
    pair_runs: int = 0
    runs: int = 0
    facts: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    one_run: OneRunTest | None = None
    missing: str = ""
    absent: bool = False
    looks: tuple[float, ...] = ()

    @property
    def error_of_all_looks(self) -> float:
        """The probability, at most, that one of the looks finds fault with a true claim."""
        # Without the last digits of 1 - .99.
        return round(sum(1 - level for level in self.looks), 15)

    @property
    def violated(self) -> tuple[Premise, ...]:
        """Premises that fail."""
        return tuple(each for each in self.premises if each.status == VIOLATED)

    @property
    def best(self) -> Attack | None:
        """The adversary that exceeds the claimed profile by most, or comes nearest."""
        tested = [each for each in self.attacks if each.test is not None]
        return max(tested, key=lambda each: each.test.excess, default=None)  # type: ignore[union-attr]

    @property
    def contradicted(self) -> bool:
        """Whether an exact lower bound lies above the claim."""
        if self.one_run is not None:
            return self.one_run.rejected
        return any(
            each.test.contradicted or each.bound.epsilon > self.claim.claimed
            for each in self.attacks
            if each.test is not None
        )

    @property
    def powerless(self) -> bool:
        """Whether no outcome could have contradicted the claim."""
        if self.one_run is not None:
            return not self.one_run.could_reject
        if self.missing or self.absent:
            return True
        if not self.attacks and not self.runs:
            return all(
                each.status == UNTESTED for each in self.premises if each.name not in COUNTED
            )
        return all(each.test is None or each.test.ceiling <= 0 for each in self.attacks)

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.violated:
            return PREMISES_FAIL
        if self.contradicted:
            return CONTRADICTED
        return POWERLESS if self.powerless else NOT_CONTRADICTED

    @property
    def exit_code(self) -> int:
        """0 not contradicted; 1 a premise fails, or contradicted; 3 powerless."""
        if self.violated or self.contradicted:
            return EXIT_FAILED_RUN
        return EXIT_POWERLESS if self.powerless else 0

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "claim": {**self.claim.as_dict(), "guaranteed": self.claim.guaranteed},
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "contradicted": self.contradicted,
            "level": self.level,
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
            "pairs": self.pairs,
            "runs": self.runs,
            "looks": len(self.looks),
            "error_of_all_looks": self.error_of_all_looks,
            "premises": [asdict(each) for each in self.premises],
            "facts": {name: [*each] for name, each in self.facts.items()},
            "attacks": [asdict(each) for each in self.attacks],
            "one_run": None if self.one_run is None else asdict(self.one_run),
            "unseen": self.unseen,
        }

    @property
    def unseen(self) -> list[str]:
        """What this audit could not have seen, a sentence each."""
        said = []
        untested = [each.name for each in self.premises if each.status == UNTESTED]
        if untested:
            said.append(f"Not tested: {', '.join(untested)}.")
        if self.one_run is not None:
            said.append(
                "The noise, the sensitivity and the sampling themselves: one run shows what its "
                "scores reveal of these canaries."
            )
            if self.one_run.needed is not None and not self.powerless:
                said.append(
                    f"A fault that leaves fewer than {self.one_run.needed} of "
                    f"{self.one_run.guesses} guesses right."
                )
        if any(each.name == "sensitivity" for each in self.premises):
            words = "The canary's clip after the first step at which it acts"
            steps, looked = self.claim.steps or 0, len(sampled_steps(self.claim))
            if steps > looked:
                words += f"; the noise of other steps than {looked} of the {steps}"
            said.append(f"{words}.")
        kinds = {phase.sampler for phase in self.claim.phases}
        if self.claim.relation == "add_remove" and self.premises:
            said.append(
                "Presence itself, where the script blanks the canary in its place and does not "
                "remove it: a number of sums or records, a divisor, a batch that is skipped."
            )
        if kinds & {"poisson", "fixed-size"} and self.premises:
            said.append("Whether different records are drawn independently of each other.")
        if self.best is not None and not self.powerless:
            said.append(
                f"A true epsilon below the claimed {self.claim.claimed:.4g}, or one that only "
                f"other canaries or data show; at delta {self.claim.delta:g} so many runs show at "
                f"most {upward(self.best.bound.ceiling)}."
            )
        return said

    def __str__(self) -> str:
        claim = self.claim
        lines = [f"claim      {claim}"]
        if claim.guaranteed is not None:
            lines.append(f"           these settings guarantee epsilon {upward(claim.guaranteed)}")
        runs = f"{self.pair_runs} runs for the premises, {2 * self.runs} for the bound"
        runs = "one run" if self.one_run is not None else runs
        rest = f"{duration(self.seconds)}, confidence {self.level:g}, seed {self.seed}"
        lines.append(f"audit      {runs}, {rest}")
        if len(self.looks) > 1:
            text = f"look {len(self.looks)} at the runs of this folder, each with its own error: "
            text += "a true claim fails one of them with probability at most "
            lines += _wrapped(" " * 11, f"{text}{rounded_up(self.error_of_all_looks, 2)}", 11)
        if self.premises:
            lines += ["", "premises"]
            for each in self.premises:
                p_value = "" if each.p_value is None else f" (p = {rounded_up(each.p_value, 2)})"
                text = f"{each.name}: {each.found}; claimed {each.claimed}{p_value}"
                if each.could_show is not None:
                    text += f"; {each.could_show} of {self.pairs} pairs could show this"
                lines += _row(each.status, text)
                if each.note:
                    lines += _row("", f"note: {each.note}")
        if self.facts:
            lines += ["", "measured"]
            for name, (least, mean, largest) in self.facts.items():
                spread = "" if least == largest else f" ({least:.3g} to {largest:.3g})"
                lines += _row(f"{mean:.3g}", f"{name}{spread}")
        if self.attacks:
            many = f"{self.runs} + {self.runs} runs"
            lines += ["", f"lower bounds on epsilon at delta {claim.delta:g}, {many}"]
            for attack in self.attacks:
                text = f"{attack.adversary}: {_excess(attack)}"
                lines += _row(downward(attack.bound.epsilon), text)
        if self.one_run is not None:
            one = self.one_run
            needed = "no number" if one.needed is None else f"{one.needed} of them"
            lines += ["", f"one run with {one.canaries} canaries"]
            text = f"{one.correct} of {one.guesses} guesses are right; {needed} would contradict"
            lines += _row(f"p = {rounded_up(one.p_value, 2)}", text)
        lines += ["", f"{self.verdict.upper()}{self._reasons()}"]
        if self.unseen and not self.exit_code:
            lines += ["", "what this audit could not have seen"]
            for sentence in self.unseen:
                lines += _wrapped("  - ", sentence, 4)
        return "\n".join(lines)

    def _reasons(self) -> str:
        parts = [each.name for each in self.violated]
        if self.contradicted and (best := self.best) is not None:
            test, claim = best.test, self.claim
            if test is not None and test.contradicted:
                epsilon, delta, excess = test.epsilon, test.delta, test.excess
            else:
                best = max(self.attacks, key=lambda each: each.bound.epsilon)
                epsilon, delta = claim.claimed, claim.delta
                excess = best.bound.epsilon - claim.claimed
            where = f"epsilon {epsilon:.3g} at delta {delta:g}"
            parts.append(f"{best.adversary}: above {where} by at least {downward(excess)}")
        if not parts and self.missing:
            return f": the time was up after {self.missing}"
        if not parts and self.absent:
            return f": the canary changes nothing in any of {self.pairs} pairs: is it planted?"
        if not parts and self.powerless and self.attacks:
            most = upward(max(each.bound.ceiling for each in self.attacks))
            return f": so many runs show at most epsilon {most}, at any delta of the profile"
        return f": {'; '.join(parts)}" if parts else ""


def _excess(attack: Attack) -> str:
    test = attack.test
    if test is None:
        return "every epsilon is allowed"
    if test.contradicted:
        where = f"the claimed {test.epsilon:.3g} at delta {test.delta:g}"
        return f"exceeds {where} by {downward(test.excess)}"
    most = f"at most {upward(attack.bound.ceiling)} could be shown"
    return f"{-test.excess:.2g} below the claimed profile; {most}"


def _row(label: str, text: str) -> list[str]:
    return _wrapped(f"  {label:<12} ", text, 15)


def _wrapped(lead: str, text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * indent)
