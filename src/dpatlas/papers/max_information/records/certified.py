"""max_information: what the specs and metrics of kinds `certificates` and `agreement` share."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dpatlas.core.facts import DataFields
from dpatlas.core.records import Metrics, Number, SpecFields, Typed
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.certificates import TauReading, check_budget
from dpatlas.papers.max_information.formulas.kappa import Form
from dpatlas.papers.max_information.formulas.universe import Model, PriorKind, Sampler

# Noise of a tuple's run has the run's number as repetition, after so many for each other tuple.
MAX_RUNS = 10_000
Objective = Literal["fquad", "fclassic", "fkl", "flambda", "bbb"]
Loss = Literal["bounded", "per-class"]
Method = Literal["reparametrisation", "sampling"]
Count = Annotated[int, Field(ge=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Grid(Typed):
    """A grid of DP-SGD's hyperparameters and of values of tau, at one m and one sigma.

    zetas: clip bounds. lrs: learning rates. epochs: numbers E of epochs. taus: standard deviations
    or variances of the prior. m: records in a batch. sigma: standard deviation of the noise on a
    batch's sum of gradients.
    """

    zetas: list[Positive]
    lrs: list[Positive]
    epochs: list[Count]
    taus: list[Positive]
    m: Count
    sigma: Positive


class OtherLook(Typed):
    """What another look at certificates tried: the K1 tuples of lowest kappa in a grid, on n
    of the records.
    """

    look: str
    n: Count
    K1: Count
    grid: Grid


class Looks(Typed):
    """The number of a set's look at certificates of its records, from 1; what all others tried."""

    number: Count
    registered: bool
    others: list[OtherLook]


class LookLabel(Typed):
    """Whether a number was selected after a look at certificates of its records, and which."""

    selected_after_a_look: bool
    looks: str


class Network(Typed):
    """widths: of an mlp's hidden layers; None for another model."""

    widths: list[Count] | None = None


class Normalise(Typed):
    """Means and deviations of grey levels between 0 and 1, (channels,) each."""

    means: list[Number]
    deviations: list[Annotated[Number, Field(gt=0)]]


class Training(Typed):
    """SGD with momentum on a posterior; only the objective bbb uses kl_penalty."""

    lr: Annotated[Number, Field(gt=0)]
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.95
    batch: Count = 250
    epochs: int = Field(default=100, ge=0)
    kl_penalty: Annotated[Number, Field(ge=0)] = 0.1


class IndependentPrior(Typed):
    """A prior centred at the initial means."""

    kind: Literal["independent"]


class DpSgdPrior(Typed):
    """A prior trained by DP-SGD or by its noise alone.

    zeta: clip bound. sigma: noise. m: records in a batch. E: epochs. lr: learning rate.
    """

    kind: Literal["dp-sgd", "noise-only"]
    zeta: Positive
    sigma: Positive
    m: Count
    E: Count
    lr: Positive
    sampler: Sampler = "shuffled"


PriorFields = Annotated[IndependentPrior | DpSgdPrior, Field(discriminator="kind")]


class CertifiedFields(SpecFields):
    """One data set, one network, and priors whose posteriors are certified.

    tuples: how many tuples of the grid may be tried, K1 if None; K1 and K2 pay for all looks. A
    certificate fails with probability at most delta, of which delta_mc is for the estimate from
    `draws` pairs and beta for the max-information. privacy_delta: of the epsilon in ledgers. Every
    test record is classified `test_repetitions` times.
    """

    seed: int
    noise_source: Literal["keyed", "os"]
    data: DataFields
    looks: Looks
    model: Model
    options: Network
    normalise: Normalise | None = None
    objective: Objective
    loss: Loss = "bounded"
    training: Training
    grid: Grid
    priors: Annotated[list[PriorFields], Field(min_length=1)]
    taus: Annotated[list[Positive], Field(min_length=1)]
    tuples: Count | None = None
    K1: Count
    K2: Count
    delta: Level
    delta_mc: Level
    beta: Level
    privacy_delta: Level = 1e-5
    form: Form = "optimised"
    tau_is: TauReading = "deviation"
    draws: Count
    test_repetitions: Count = 1

    @model_validator(mode="after")
    def _go_together(self) -> "CertifiedFields":
        check_budget(self.delta, self.delta_mc, self.beta)
        for name, values in (("priors", self.priors), ("taus", self.taus)):
            if len(set(values)) < len(values):
                raise InputError(name, f"{len(values)} entries", "different ones")
        # fkl is defined for losses up to 1 only.
        if self.objective == "fkl" and self.loss != "bounded":
            raise InputError("loss", f"{self.loss} with fkl", "bounded")
        return self


class Kappas(Typed):
    """kappa at level beta / K1 by form, nats; 0 for a prior that ignores the records.

    rigorous: the smallest without a gap in its proof for E > 1. None stands for infinity.
    """

    optimised: float | None
    explicit: float | None
    tight: float | None
    repaired: float | None
    rigorous: float | None

    def of_form(self, form: Form) -> float:
        """kappa of a form as a float, which may be inf."""
        return unlimited(getattr(self, form))


class CertifiedMetrics(LookLabel, Metrics):
    """Sizes of the data and the network, and how the certificates of a job are to be read.

    inputs: numbers in a record. parameters: of the network. T: steps in an epoch of DP-SGD.
    kappa_level: beta / K1. holds_together: which certificates hold simultaneously.
    """

    n_train: int
    n_test: int
    inputs: int
    classes: int
    parameters: int
    T: int
    kappa_level: float
    form: Form
    tau_is: TauReading
    holds_together: str


class Hyperparameters(Typed):
    """The prior of a row: its kind and hyperparameters, None for an independent prior."""

    prior: PriorKind
    zeta: float | None
    sigma: float | None
    m: int | None
    E: int | None
    lr: float | None
    T: int | None


def unlimited(value: float | None) -> float:
    """The number that null stands for in a record: infinity."""
    return math.inf if value is None else value
