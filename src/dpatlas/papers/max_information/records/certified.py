"""max_information: what records of certificates and of the agreement of counts have in common."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dpatlas.core.facts import DataFields
from dpatlas.core.records import Metrics, Number, SpecFields, Typed
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.certificates import TauReading, check_budget
from dpatlas.papers.max_information.formulas.kappa import Form
from dpatlas.papers.max_information.formulas.universe import Model, PriorKind, Sampler

# A run has a repetition number of its own under each tuple.
MOST_RUNS = 10_000
Objective = Literal["fquad", "fclassic", "fkl", "flambda", "bbb"]
Loss = Literal["bounded", "per-class"]
Method = Literal["reparametrisation", "sampling"]
Count = Annotated[int, Field(ge=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Grid(Typed):
    """A grid of DP-SGD's hyperparameters and of prior deviations, at one m and one sigma.

    zetas: clips; lrs: rates; epochs: numbers E; taus: deviations of the prior, or variances; m:
    records of a batch; sigma: deviation of the noise on a batch's sum.
    """

    zetas: list[Positive]
    lrs: list[Positive]
    epochs: list[Count]
    taus: list[Positive]
    m: Count
    sigma: Positive


class OtherLook(Typed):
    """What another look tried: the K1 tuples of lowest kappa of a grid on n of the records."""

    look: str
    n: Count
    K1: Count
    grid: Grid


class Looks(Typed):
    """Which look at its records a set is, from 1, and what the others tried."""

    number: Count
    registered: bool
    others: list[OtherLook]


class LookLabel(Typed):
    """What is said of the looks behind a number."""

    selected_after_a_look: bool
    looks: str


class Network(Typed):
    """Widths of an mlp's hidden layers; None for another model."""

    widths: list[Count] | None = None


class Normalise(Typed):
    """Means and deviations of grey levels between 0 and 1, (channels,) each."""

    means: list[Number]
    deviations: list[Annotated[Number, Field(gt=0)]]


class Training(Typed):
    """SGD with momentum on a posterior; kl_penalty counts for the objective bbb alone."""

    lr: Annotated[Number, Field(gt=0)]
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.95
    batch: Count = 250
    epochs: int = Field(default=100, ge=0)
    kl_penalty: Annotated[Number, Field(ge=0)] = 0.1


class IndependentPrior(Typed):
    """The initial means."""

    kind: Literal["independent"]


class DpSgdPrior(Typed):
    """What DP-SGD, or its noise alone, trains: clip zeta, noise sigma, batch m, epochs E, rate."""

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

    `tuples` of the grid's may be tried, K1 if None; K1 and K2 pay for all looks. A certificate
    fails with probability delta, of which delta_mc is for the counts of `draws` pairs and beta for
    max-information; privacy_delta: of the epsilon in ledgers. Every test record is tried
    `test_repetitions` times.
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
    runs: int = Field(ge=1, lt=MOST_RUNS)
    draws: Count
    test_repetitions: Count = 1

    @model_validator(mode="after")
    def _go_together(self) -> "CertifiedFields":
        check_budget(self.delta, self.delta_mc, self.beta)
        for name, values in (("priors", self.priors), ("taus", self.taus)):
            if len(set(values)) < len(values):
                raise InputError(name, f"{len(values)} entries", "different ones")
        # fkl takes no loss above 1.
        if self.objective == "fkl" and self.loss != "bounded":
            raise InputError("loss", f"{self.loss} with fkl", "bounded")
        return self


class Kappas(Typed):
    """kappa at level beta / K1 by its form, nats; 0 for a prior that saw no record.

    rigorous: the least without a gap in its proof for E > 1. None is beyond all numbers.
    """

    optimised: float | None
    explicit: float | None
    tight: float | None
    repaired: float | None
    rigorous: float | None

    def of_form(self, form: Form) -> float:
        """kappa of a form, inf where it is beyond all numbers."""
        return unlimited(getattr(self, form))


class CertifiedMetrics(LookLabel, Metrics):
    """Sizes of the data and the network, and how the certificates of a job are to be read.

    inputs: numbers of a record; parameters: of the network; T: steps of an epoch of DP-SGD;
    kappa_level: beta / K1; holds_together: which certificates do.
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
    """A prior in a row: its kind, and its tuple and T, None for one that has none."""

    prior: PriorKind
    zeta: float | None
    sigma: float | None
    m: int | None
    E: int | None
    lr: float | None
    T: int | None


def unlimited(value: float | None) -> float:
    """Infinity is null in a record."""
    return math.inf if value is None else value
