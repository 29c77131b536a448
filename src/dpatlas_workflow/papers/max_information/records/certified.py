"""max_information: what the specs and records of kinds `certificates` and `agreement` share.

Facts. n_train, n_test: records; inputs: numbers in a record; parameters: of the network. T: steps
in an epoch of DP-SGD. kappa_level: beta / K1. holds_together: which certificates hold
simultaneously. selected_after_a_look, looks: whether a number was selected after a look at
certificates of its records, and which.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpatlas.base.facts import DataFields
from dpatlas.base.fields import (
    AsWritten,
    Count,
    CountList,
    Delta,
    Model,
    Momentum,
    NoiseSource,
    Number,
    Positive,
    PositiveList,
    Rate,
    Share,
    setting,
)
from dpatlas.base.records import SpecFields
from dpatlas.errors import InputError
from dpatlas.formulas.max_information import universe
from dpatlas.formulas.max_information.certificates import TauReading, check_budget
from dpatlas.formulas.max_information.kappa import Form
from dpatlas.formulas.max_information.universe import Sampler

# Noise of a tuple's run has the run's number as repetition, after so many for each other tuple.
MAX_RUNS = 10_000
Objective = Literal["fquad", "fclassic", "flambda", "fkl", "bbb"]
Loss = Literal["bounded", "per-class"]
FACTS = (
    "n_train n_test inputs classes parameters T kappa_level holds_together "
    "selected_after_a_look looks"
)


class Normalise(Model):
    """Public mean and standard deviation of the grey levels, between 0 and 1, of every channel."""

    means: list[Annotated[float, AsWritten]] = setting("Mean of every channel.", min_length=1)
    deviations: list[Annotated[float, Field(gt=0), AsWritten]] = setting(
        "Standard deviation of every channel.", min_length=1
    )


class PriorGrid(Model):
    """Hyperparameters of DP-SGD priors, and values of tau, the standard deviation of all priors."""

    zetas: PositiveList
    lrs: PositiveList
    epochs: CountList
    taus: PositiveList
    m: int = setting("Records in a batch; batches of one epoch are disjoint.", ge=1, le=10_000_000)
    sigma: float = setting("Standard deviation of the noise on a sum of clipped gradients.", gt=0)


class Posterior(Model):
    """SGD on the means and standard deviations of the posterior's weights."""

    lr: Annotated[Rate, AsWritten]
    momentum: Annotated[Momentum, AsWritten]
    batch: int = setting("Records in a batch.", ge=1, le=1_000_000)
    epochs: int = setting("Passes over the records.", ge=1, le=100_000)


class TriedOnASet(Model):
    """The network and the grid of priors that were tried on a data set."""

    model: universe.Model = setting("Network whose weights are random.")
    normalise: Normalise | None = setting(
        "Public mean and standard deviation of every channel; null for no normalisation."
    )
    objective: Objective = setting("Objective that the posterior's training minimises.")
    loss: Loss = setting("Cross-entropy over log(1e5), or over the log of the number of classes.")
    K1: int = setting(
        "Number of tuples that are tried, those of lowest kappa; the union bound pays for them.",
        ge=1,
        le=1_000_000,
    )
    grid: PriorGrid
    training: Posterior

    @model_validator(mode="after")
    def _has_a_loss_of_its_objective(self) -> Any:
        # fkl is defined for losses up to 1 only.
        if self.objective == "fkl" and self.loss != "bounded":
            raise InputError("loss", f"{self.loss} with fkl", "bounded")
        return self


class Estimated(Model):
    """How risks are estimated, and which kappa certificates pay."""

    draws: int = setting(
        "Pairs of a training record and sampled weights from which every risk is estimated, a "
        "number fixed beforehand.",
        ge=1,
        le=100_000_000,
    )
    form: Form = setting("Form of kappa that certificates are charged.")
    test_repetitions: int = setting(
        "Number of times that every test record is classified, each time with newly drawn weights.",
        ge=1,
        le=1000,
    )


class OtherLook(Model):
    """What another look at certificates tried: the K1 tuples of lowest kappa in a grid, on n
    of the records.
    """

    look: str
    n: Count
    K1: Count
    grid: PriorGrid


class SetLooks(Model):
    """The number of a set's look at certificates of its records, from 1; what all others tried."""

    number: Count
    registered: bool
    others: list[OtherLook]


class Network(Model):
    """widths: of an mlp's hidden layers; None for another model."""

    widths: list[Count] | None = None


class PosteriorSgd(Posterior):
    """SGD on a posterior; only the objective bbb uses kl_penalty."""

    kl_penalty: Annotated[Number, Field(ge=0)] = 0.1


class IndependentPrior(Model):
    """A prior centred at the initial means."""

    kind: Literal["independent"]


class DpSgdPrior(Model):
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


class CertifiedFields(SpecFields, TriedOnASet, Estimated):
    """One data set, one network, and priors whose posteriors are certified.

    tuples: how many tuples of the grid may be tried, K1 if None; K1 and K2 pay for all looks. A
    certificate fails with probability at most delta, of which delta_mc is for the estimate from
    `draws` pairs and beta for the max-information. privacy_delta: of the epsilon in ledgers.
    """

    seed: int
    noise_source: NoiseSource
    data: DataFields
    looks: SetLooks
    options: Network
    normalise: Normalise | None = None
    loss: Loss = "bounded"
    training: PosteriorSgd
    priors: Annotated[list[PriorFields], Field(min_length=1)]
    taus: Annotated[list[Positive], Field(min_length=1)]
    tuples: Count | None = None
    K2: Count
    delta: Share
    delta_mc: Share
    beta: Share
    privacy_delta: Delta = 1e-5
    form: Form = "optimised"
    tau_is: TauReading = "deviation"
    test_repetitions: Count = 1

    @model_validator(mode="after")
    def _go_together(self) -> "CertifiedFields":
        check_budget(self.delta, self.delta_mc, self.beta)
        for name, values in (("priors", self.priors), ("taus", self.taus)):
            if len(set(values)) < len(values):
                raise InputError(name, f"{len(values)} entries", "different ones")
        return self
