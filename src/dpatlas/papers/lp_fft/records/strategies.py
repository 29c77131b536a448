"""lp_fft: specs and records of kind `strategies`."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dpatlas.core import records
from dpatlas.core.facts import BackboneUsed, DataFields, FeaturesUsed, ReportedFields
from dpatlas.core.records import OverRuns, RecordShape, Typed
from dpatlas.papers.lp_fft.records.private import Count, Positive, PrivateFields
from dpatlas.papers.lp_fft.strategies import ALONE, STRATEGIES

# The order of the settings' type, with which Python shares one cached type.
Strategy = Literal["lp", "fft", "lp-fft", "lp-lp", "fft-fft", "lora", "lp-lora"]
Share = Annotated[float, Field(ge=0, le=1)]


class Level(Typed):
    """Privacy of a job: a noise multiplier, or an epsilon to which it is calibrated."""

    noise_multiplier: float | None = Field(None, ge=0)
    epsilon: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise PydanticCustomError("level", "noise_multiplier or epsilon, one of both")
        return self


class Augmentation(Typed):
    """Views of a record whose gradients are averaged: shifts of up to `padding`, and flips."""

    views: Count
    padding: int = Field(ge=0)
    flip: bool


class Strategies(PrivateFields):
    """One privacy level of a scenario.

    shares, control_shares: shares of the steps given to the first phase of strategies of two
    phases, and of the controls. head_scale: factor on the head's initial weights. ema_decay: of the
    averaged weights that are scored; None to score the last iterate. lora_rank: None without LoRA.
    public_data: the backbone's training images, on which features are standardised; None for not.
    """

    group: Literal["strategies", "lora", "clip_sweep"]
    scenario: str
    level: Level
    steps: Count
    strategies: list[Strategy]
    shares: list[Share]
    control_shares: list[Share]
    head_scale: Positive
    augmentation: Augmentation | None
    ema_decay: float | None
    lora_rank: Count | None
    public_data: DataFields | None = None

    @field_validator("strategies")
    @classmethod
    def _first_phases_are_tuned_alone(cls, names: list[Strategy]) -> list[Strategy]:
        for name in names:
            alone = ALONE[STRATEGIES[name][0]]
            if alone not in names:
                message = "{alone} beside {name}, whose first phase takes its rate"
                raise PydanticCustomError("alone", message, {"alone": alone, "name": name})
        return names


class Spec(Strategies, ReportedFields):
    """Runs at learning rates that were chosen before."""


class Row(Typed):
    """A strategy with one share of the steps in its first phase: 1 for LP, 0 for FFT and LoRA.

    lrs, steps: of each phase. max_grad_norm: None without privacy. target_epsilon: None where the
    level is a noise multiplier. epsilon: of one reported run, over both phases; None without
    privacy. trained_parameters: their number in the last phase.
    """

    method: str
    batch: int
    sampler: str
    relation: str | None
    guaranteed_by: str | None
    accuracy: OverRuns[float]
    strategy: Strategy
    share: float
    lrs: list[float]
    steps: list[int]
    noise_multiplier: float
    max_grad_norm: float | None
    target_epsilon: float | None
    epsilon: float | None
    trained_parameters: int


class Metrics(records.Metrics):
    """Numbers of records and classes, the backbone, and a row for every strategy and share.

    n_train, n_test: of one run. features: of the frozen backbone, where a strategy trained the head
    alone on them; None where runs draw records of their own.
    """

    VERSION: ClassVar[int] = 2

    n_train: int
    n_test: int
    classes: int
    backbone: BackboneUsed
    features: FeaturesUsed | None
    rows: list[Row]


TABLES = RecordShape(
    Spec,
    version=3,
    facts="n_train n_test classes backbone features",
    tables={
        "arms": "arm strategy share lrs steps batch sampler noise_multiplier max_grad_norm "
        "target_epsilon epsilon relation guaranteed_by trained_parameters",
        "runs": "run arm accuracy",
    },
)
