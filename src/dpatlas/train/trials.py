"""The best of a random number of private trainings.

A trial draws settings log-uniformly from ranges, trains, and counts right answers on validation
records. `accounting.selection` states what releasing the best trial guarantees. The guarantee
requires that the number of trials and the results of the other trials stay secret: checkpoints
hold them, and neither a record nor stderr reveals them. Settings are drawn as the noise is, and so
must initial weights be, since known ones would identify the released trial.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpatlas.accounting.guarantees import Guarantee
from dpatlas.accounting.ledger import PUBLIC, Ran, ledger, private_selection
from dpatlas.accounting.selection import Score, TrialsLaw, selected_guarantee
from dpatlas.base.rounding import rounded_up
from dpatlas.base.seeds import Noise

RELEASED = "settings, model and score of the best trial, or that no trial was drawn,"
SECRET = (
    "the number of trials and all that the others gave; checkpoints, cost.json and the time that "
    "it took tell about them and are not for release. Every run is a release of its own"
)


@dataclass(frozen=True)
class Choice:
    """How settings are chosen.

    law: of the number of trials. ranges: low and high end by the name of a setting of the phase.
    score: of a trial's count of right answers; None where validation records are public.
    """

    law: TrialsLaw
    ranges: Mapping[str, Sequence[float]]
    score: Score | None

    def settings(self, noise: Noise, trial: int) -> dict[str, float]:
        """What a trial draws, by the name of the setting."""
        draws = noise.generator(repetition=trial, step=0, use="settings")
        return {
            name: low * (high / low) ** float(draws.random())
            for name, (low, high) in self.ranges.items()
        }

    def ledger(self, ran: Ran, delta: float, relation: str) -> dict[str, Any]:
        """The ledger of the released trial `ran`, with the guarantee of one trial alone beside it.

        Raises InputError for trials without a guarantee.
        """
        accounts: dict[str, Any] = {"delta": delta, "relation": relation}
        law, score = self.law, self.score
        guarantee = selected_guarantee(ran.phases, law, score=score, **accounts)
        selected, paid = guarantee.selected, ""
        if guarantee.validation is not None:
            paid = f"a validation record pays epsilon {rounded_up(guarantee.validation)}"
        ends = self.ranges.items()
        drawn = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in ends)
        tuning = private_selection(
            f"{law.describe()}, each with {drawn} drawn log-uniformly",
            epsilon=selected.epsilon,
            by="Papernot and Steinke 2022",
            held_out=f"{paid or 'validation records are public'}; test records are public",
            **accounts,
        )
        alone = ledger(ran, tuning=tuning, released=RELEASED, require_private=True, **accounts)
        return {
            **alone,
            "mechanism": f"the best of a random number of trainings, each: {alone['mechanism']}",
            "neighbour_relation": f"{alone['neighbour_relation']}; that record is of the training "
            f"{'or of the validation part' if score else 'part'}, the others stay in their part",
            "accountant": selected.accountant,
            "event": selected.event,
            "cross_check": selected.cross_check,
            "warnings": list(selected.warnings),
            "epsilon": selected.epsilon,
            "guaranteed": in_words(selected),
            "single_trial": {
                "epsilon": guarantee.single.epsilon,
                "guaranteed": in_words(guarantee.single),
                "accountant": guarantee.single.accountant,
            },
            "epsilon_by_part": {
                "training": guarantee.training,
                "validation": guarantee.validation if score else PUBLIC,
                "test": f"{PUBLIC}: accuracy on them carries no noise",
            },
            "secret": SECRET,
            # The cost of releasing the best trial, not of all trials together.
            "chosen_on_private_data": [
                {
                    "what": tuning["what"],
                    "cost": f"{in_words(selected)} of the best trial alone, the choice included "
                    f"({tuning['by']}); {tuning['held_out']}",
                }
            ],
        }


def in_words(guarantee: Guarantee) -> str:
    """Epsilon, delta and relation in one line."""
    epsilon, delta = rounded_up(guarantee.epsilon), rounded_up(guarantee.delta)
    return f"epsilon {epsilon} at delta {delta} ({guarantee.relation})"
