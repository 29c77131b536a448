"""The best of a random number of private trainings, as stages of a job that survive a kill.

A trial draws settings log-uniformly from ranges, trains, and counts right answers on validation
records. `accounting.selection` states what releasing the best trial guarantees. The guarantee
requires that the number of trials and the results of the other trials stay secret: checkpoints
hold them, and neither a record nor stderr reveals them. Settings are drawn as the noise is, and so
must initial weights be, since known ones would identify the released trial.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from dpatlas.accounting.guarantees import Guarantee
from dpatlas.accounting.ledger import PUBLIC, Ran, ledger, private_selection
from dpatlas.accounting.selection import Score, TrialsLaw, selected_guarantee
from dpatlas.base.progress import say
from dpatlas.base.rounding import rounded_up
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

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


class Trials:
    """The trials of a job, and the best so far.

    phase: the settings of every trial but for those that it draws. train: the training of a trial,
    by its number and phase; it uses `noise` with that number as repetition. right: how many of the
    validation records, `validated` in number, a model gets right.
    """

    def __init__(
        self,
        job: Job,
        noise: Noise,
        choice: Choice,
        phase: TrainingPhase,
        train: Callable[[int, TrainingPhase], PrivateTraining],
        right: Callable[[nn.Module], int],
        validated: int,
    ):
        self.job, self.noise, self.choice, self.phase = job, noise, choice, phase
        self.train, self.right, self.validated = train, right, validated
        self.stages = Stages(job, noise)
        self.told = False
        # Settings and score, facts for the ledger, and weights of the best trial.
        self.best: dict[str, Any] | None = None
        self.ran: Ran | None = None
        self.weights: dict[str, np.ndarray] = {}

    def run(self) -> None:
        """Train all trials, and keep the best one."""
        for trial in range(self.choice.law.draw(self.noise)):
            result = self.stages.result(f"trial-{trial}", partial(self._if_best, trial))
            if result:
                self.best, self.ran = result["best"], Ran.of(result["ran"])
                self.weights = {
                    name.removeprefix("weights/"): value
                    for name, value in result.items()
                    if isinstance(value, np.ndarray)
                }

    def _if_best(self, trial: int) -> dict[str, Any]:
        """Settings, score and weights of a trial; empty unless it scores above all before it."""
        settings = self._settings(trial)
        training = self.train(trial, replace(self.phase, **dict[str, Any](settings)))
        # Saved before the first step, since the number of trials depends on the noise's secret.
        self.stages.save()
        if not self.told:
            say(f"{self.job.spec.id}: the number of trials is secret: no progress is shown")
            self.told = True
        self.stages.finish(training)
        right = self.right(training.model)
        if self.choice.score is None:
            score = right / self.validated
        else:
            score = self.choice.score.released(right, self.noise, trial)
        if self.best is not None and score <= self.best["score"]:
            return {}
        weights = {
            f"weights/{name}": value.detach().cpu().numpy().copy()
            for name, value in training.model.state_dict().items()
        }
        best = {"settings": settings, "score": score}
        return {"best": best, "ran": training.ran.facts(), **weights}

    def _settings(self, trial: int) -> dict[str, float]:
        draws = self.noise.generator(repetition=trial, step=0, use="settings")
        return {
            name: low * (high / low) ** float(draws.random())
            for name, (low, high) in self.choice.ranges.items()
        }

    def load_best(self, model: nn.Module) -> nn.Module:
        """`model` with the weights and buffers of the best trial."""
        stored = {name: torch.from_numpy(value) for name, value in self.weights.items()}
        model.load_state_dict(stored)
        return model

    def ledger(self, delta: float, relation: str) -> dict[str, Any]:
        """The ledger of the released trial, with the guarantee of one trial alone beside it.

        Based on the phases that ran, or on the planned ones where no trial was drawn. Raises
        InputError for trials without a guarantee.
        """
        accounts: dict[str, Any] = {"delta": delta, "relation": relation}
        law, score = self.choice.law, self.choice.score
        planned, bound = self.phase.accounted_phases, self.phase.max_grad_norm
        ran = self.ran or Ran("DP-SGD", planned, (bound,) * len(planned), self.noise.source)
        guarantee = selected_guarantee(ran.phases, law, score=score, **accounts)
        selected = guarantee.selected
        paid = ""
        if guarantee.validation is not None:
            paid = f"a validation record pays epsilon {rounded_up(guarantee.validation)}"
        drawn = ", ".join(
            f"{name} from {low:g} to {high:g}" for name, (low, high) in self.choice.ranges.items()
        )
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
