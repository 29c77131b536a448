"""Records of kind `strategies`: accuracy of every strategy at one privacy level of a scenario.

`arms`: a strategy with one share of the steps in its first phase, 1 for LP, 0 for FFT and LoRA.
lrs, steps: of each phase, lists. max_grad_norm: None without privacy. target_epsilon: None where
the level is a noise multiplier. epsilon: of one reported run, over both phases; None without
privacy. trained_parameters: their number in the last phase. `runs`, by run and arm: accuracy, the
share of test records that were classified correctly.

n_train, n_test: numbers of records of a run. features: of the frozen backbone, where a strategy
trained the head alone on them; None where runs draw records of their own.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dpatlas.base.facts import DataFields, ReportedFields
from dpatlas.base.fields import Model, Once, Positive, Updates, setting
from dpatlas.base.records import RecordShape
from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.records.private import HeadScale, Noise, PrivateFields
from dpatlas_workflow.papers.lp_fft.strategies import ALONE, STRATEGIES

Strategy = Literal["lp", "fft", "lp-fft", "lp-lp", "fft-fft", "lora", "lp-lora"]
Shares = Annotated[
    Once[Annotated[float, Field(ge=0, le=1)]],
    setting("Shares of the steps given to the first phase; 0 and 1 stand for FFT and LP."),
]


class Augmentation(Model):
    """Augmented views of every record, whose gradients are averaged before clipping."""

    views: int = setting("Number of views of a record.", ge=1, le=1024)
    padding: int = setting("Largest shift of a view, in pixels.", ge=0, le=1000)
    flip: bool = setting("Whether half of the views are mirrored.")


Augmented = Annotated[
    Augmentation | None,
    setting("Augmented views of every record, averaged before clipping; null for none."),
]
EmaDecay = Annotated[
    Annotated[float, Field(ge=0, lt=1)] | None,
    setting("Decay of the average of the weights that is reported; null for the last iterate."),
]
LoraRank = Annotated[
    Annotated[int, Field(ge=1, le=10_000)] | None,
    setting(
        "Rank of LoRA's adapters, at most the width of the narrowest layer; null without LoRA."
    ),
]


class Level(Model):
    """Privacy of a job: a noise multiplier, or an epsilon to which it is calibrated."""

    noise_multiplier: Noise | None = None
    epsilon: Positive | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise InputError("", self.plain(), "noise_multiplier or epsilon, one of both")
        return self


class Compared(Model):
    """Strategies at several shares of the steps in their first phase."""

    strategies: Once[Strategy] = setting(
        "Strategies to compare. A strategy of two phases needs the strategy that consists of its "
        "first phase alone in the list, too.",
        min_length=1,
    )
    shares: Shares
    control_shares: Shares

    @model_validator(mode="after")
    def _tunes_first_phases_alone(self) -> Self:
        for name in self.strategies:
            first = ALONE[STRATEGIES[name][0]]
            if first not in self.strategies:
                allowed = f"{first} too, whose rate its first phase takes"
                raise InputError("strategies", f"{name} without {first}", allowed)
        return self


class StrategyTraining(Model):
    """What all strategies of a scenario share."""

    head_scale: HeadScale
    augmentation: Augmented
    ema_decay: EmaDecay
    lora_rank: LoraRank

    @property
    def reported_weights(self) -> str:
        """The weights whose accuracy is reported."""
        return "last iterate" if self.ema_decay is None else "average of the iterates"


class Strategies(PrivateFields, Compared, StrategyTraining):
    """One privacy level of a scenario, of reported runs and of their tuning.

    public_data: the backbone's training images, on which features are standardised; None for not.
    """

    group: Literal["strategies", "lora", "clip_sweep"]
    scenario: str
    level: Level
    steps: Updates
    public_data: DataFields | None = None


class StrategiesSpec(Strategies, ReportedFields):
    """Reported runs."""

    kind: Literal["strategies"]


RECORD = RecordShape(
    StrategiesSpec,
    version=3,
    facts="n_train n_test classes backbone features",
    tables={
        "arms": "arm strategy share lrs steps batch sampler noise_multiplier max_grad_norm "
        "target_epsilon epsilon relation guaranteed_by trained_parameters",
        "runs": "run arm accuracy",
    },
)
