"""max_information: the jobs that the config asks for, and which of them each product needs."""

from itertools import zip_longest
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from dpatlas.config.common import run_spec
from dpatlas.config.model import AsWritten, Model, Once, setting
from dpatlas.config.root import General
from dpatlas.config.types import (
    Bounded,
    CountList,
    DataSet,
    Delta,
    Momentum,
    NetworkOptions,
    PositiveList,
    PrivateName,
    Rate,
    Seed,
    Share,
)
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.certificates import check_budget
from dpatlas.papers.max_information.formulas.universe import setting_weight
from dpatlas.papers.max_information.looks import counted, ranked
from dpatlas.papers.max_information.register import looks_of

KEY = "max_information"

# The grid is ranked before the first job: the papers' has 140.
MOST_TUPLES = 20_000


# As written: these numbers go into specs as they stand.
Numbers = Annotated[Once[Annotated[Bounded, AsWritten]], setting("Numbers above 0.", min_length=1)]
Level = Annotated[Once[Share], setting("Levels.", min_length=1)]


class Data(DataSet):
    """Training records, which the certificate speaks of, and test records, to check it on."""

    name: Annotated[str, PrivateName(("digits", "fonts", "strokes", "mnist", "cifar10"))] = setting(
        "Name of the data set, or of one of your own."
    )
    n_train: int = setting("Training records.", ge=2, le=10_000_000)
    n_test: int = setting("Test records.", ge=1, le=1_000_000)
    selection: int = setting(
        "Another number deals the records anew.", ge=0, le=1_000_000, default=None
    )


class Normalise(Model):
    """Public mean and deviation of every channel."""

    means: list[Annotated[float, AsWritten]] = setting("Means.", min_length=1)
    deviations: list[Annotated[float, Field(gt=0), AsWritten]] = setting(
        "Deviations.", min_length=1
    )


class Grid(Model):
    """Clip bounds, rates and epochs of DP-SGD priors, and deviations tau of all priors."""

    zetas: PositiveList
    lrs: PositiveList
    epochs: CountList
    taus: PositiveList
    m: int = setting("Records of a batch, disjoint within an epoch.", ge=1, le=10_000_000)
    sigma: float = setting("Deviation of the noise on a sum of clipped gradients.", gt=0)


class Posterior(Model):
    """SGD on means and deviations of the posterior."""

    lr: Annotated[Rate, AsWritten]
    momentum: Annotated[Momentum, AsWritten]
    batch: int = setting("Records of a batch.", ge=1, le=1_000_000)
    epochs: int = setting("Passes over the records.", ge=1, le=100_000)


class Tried(Model):
    """A data set with a grid of priors that were tried on it."""

    data: Data
    model: Literal["mlp", "bayes-cnn9"] = setting("Network whose weights are random.")
    options: NetworkOptions
    normalise: Normalise | None = setting(
        "Public mean and deviation of every channel; null for none."
    )
    objective: Literal["fquad", "fclassic", "flambda", "fkl", "bbb"] = setting(
        "What the posterior minimises."
    )
    loss: Literal["bounded", "per-class"] = setting(
        "Cross-entropy over log(1e5), or over the log of the number of classes."
    )
    K1: int = setting(
        "How many tuples of the grid are tried, those of lowest kappa, and paid for.",
        ge=1,
        le=1_000_000,
    )
    grid: Grid
    training: Posterior
    priors_per_job: int = setting(
        "Priors of one job, with all their deviations and runs.", ge=1, le=1000, default=None
    )

    @model_validator(mode="after")
    def _has_a_grid_that_can_be_ranked(self) -> "Tried":
        n, grid = self.data.n_train, self.grid
        if grid.m > n:
            raise InputError("grid.m", grid.m, f"at most n_train = {n}")
        tuples = len(grid.zetas) * len(grid.lrs) * len(grid.epochs)
        if tuples > MOST_TUPLES:
            found = f"{tuples} tuples of zetas, lrs and epochs"
            raise InputError("grid", found, f"at most {MOST_TUPLES}")
        # fkl takes no loss above 1.
        if self.objective == "fkl" and self.loss != "bounded":
            raise InputError("loss", f"{self.loss} with fkl", "bounded")
        return self


class CertifiedSet(Tried):
    """A data set with a grid of priors that the union bound pays for."""

    priors_per_job: int = setting(
        "Priors of one job, with all their deviations and runs.", ge=1, le=1000
    )

    @model_validator(mode="after")
    def _lies_in_the_universe(self) -> "CertifiedSet":
        n, batch = self.data.n_train, self.training.batch
        if batch > n:
            raise InputError("training.batch", batch, f"at most n_train = {n}")
        _check_universe(self)
        return self


class Certificates(Model):
    """Tables 1 to 3."""

    runs: int = setting("Runs of every prior and tau; verdicts need 5 or more.", ge=1, le=1000)
    draws: int = setting(
        "Pairs of a training record and weights behind every risk, fixed before anything is "
        "counted.",
        ge=1,
        le=100_000_000,
    )
    form: Literal["optimised", "explicit", "tight", "repaired"] = setting(
        "Which kappa certificates pay."
    )
    test_repetitions: int = setting(
        "How often every test record is tried, each time with weights of its own.", ge=1, le=1000
    )
    sets: list[CertifiedSet] = setting(
        "Data sets, each with a grid of priors that the union bound pays for.", min_length=1
    )


class Look(Model):
    """A run of one set whose certificates somebody saw."""

    when: str = setting("Day of the look.", pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    seed: Seed = setting("Base seed of the run.")
    set: Tried = setting("The entry of certificates.sets that was tried.")
    then: str = setting(
        "What was seen, and what was changed after it.", min_length=1, max_length=200
    )


class Agreement(Model):
    """Local reparametrisation against drawing all weights."""

    set: int = setting("Place of a data set in certificates.sets.", ge=0, le=1000)
    draws: int = setting("Pairs of a count.", ge=1, le=10_000_000)
    repetitions: int = setting("Counts by either method.", ge=1, le=1000)


class Coefficients(Model):
    """The two coefficients of Prop. 1."""

    alphas: Numbers
    betas: Once[Share] = setting("Levels.", min_length=2)


class KappaBase(Model):
    """Settings off the axis."""

    n: int = setting("Records.", ge=1, le=1_000_000_000)
    m: int = setting("Records of a batch.", ge=1, le=1_000_000_000)
    zeta: Annotated[float, AsWritten] = setting("Clip bound.", gt=0)
    sigma: Annotated[float, AsWritten] = setting("Deviation of the noise.", gt=0)
    E: int = setting("Epochs.", ge=1, le=1000)
    delta: Share


class KappaAxes(Model):
    """Values along each axis."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    n: CountList = setting("Records.", default=None)
    zeta_over_sigma: Numbers = setting("Clip bound over the noise's deviation.", default=None)
    E: CountList = setting("Epochs.", default=None)
    T: CountList = setting("Steps.", default=None)
    delta: Level = setting("Levels.", default=None)

    @model_validator(mode="after")
    def _are_not_none(self) -> "KappaAxes":
        if not self.model_fields_set:
            allowed = "one or more of " + ", ".join(type(self).model_fields)
            raise InputError("", "none", allowed)
        return self


class Kappa(Model):
    """The max-information of DP-SGD along one axis at a time."""

    base: KappaBase
    axes: KappaAxes


class Simulation(Model):
    """The moment behind kappa on simulated sums."""

    m: int = setting("Vectors in a sum.", ge=1, le=100_000)
    draws: int = setting("Sums.", ge=2, le=100_000_000)
    laws: Once[Literal["signs", "rare-signs", "sphere", "axes"]] = setting(
        "Laws of a vector.", min_length=1
    )
    nus: Numbers
    ys: Once[Annotated[float, Field(gt=0, lt=0.5)]] = setting("Exponents times nu.", min_length=1)


class Settings(Model):
    """PAC-Bayes certificates with priors learned by DP-SGD."""

    enabled: bool = setting("Whether this paper is part of the run.")
    delta: Share
    delta_mc: Share
    beta: Share
    privacy_delta: Delta
    certificates: Certificates
    looks: dict[
        Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,39}$")],
        Look,
    ] = setting(
        "Register of the looks at certificates, by name and in order. It is only ever added to; K1 "
        "and K2 pay for all looks at the same records."
    )
    agreement: Agreement
    coefficients: Coefficients
    kappa: Kappa
    simulation: Simulation

    @model_validator(mode="after")
    def _go_together(self) -> "Settings":
        check_budget(self.delta, self.delta_mc, self.beta)
        sets = len(self.certificates.sets)
        if self.agreement.set >= sets:
            allowed = f"a place among the {sets} sets, from 0"
            raise InputError("agreement.set", self.agreement.set, allowed)
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `certificates`: priors of one data set, `priors_per_job` in a job, with all their taus and runs.
    `agreement`: two ways to draw risks. `coefficients`, `kappa`, `simulation`: no data.
    """
    block: Settings = config.max_information
    computed = block.plain("coefficients", "kappa", "simulation")
    return {
        "certificates": [
            spec for chosen in block.certificates.sets for spec in _certificates(config, chosen)
        ],
        "agreement": [_agreement(config)],
        **{kind: [run_spec(config, KEY, kind, given, kind)] for kind, given in computed.items()},
    }


def settings(config: General) -> dict[str, Any]:
    """Nothing: figures, tables and claims are made of the records alone."""
    return {}


def priors_of(grid: Grid, K1: int, n: int, beta: float) -> list[dict[str, Any]]:
    """Every prior of a data set of n records: independent, DP-SGD by kappa, and its noise alone.

    The steps that noise alone takes do not depend on zeta: one control for each rate and E.
    """
    tuples = [
        {"zeta": zeta, "sigma": sigma, "m": m, "E": E, "lr": lr}
        for zeta, sigma, m, E, lr in ranked(grid.plain(), K1, n, beta)
    ]
    controls = {(each["lr"], each["E"]): each for each in reversed(tuples)}
    return [
        {"kind": "independent"},
        *({"kind": "dp-sgd", **each} for each in tuples),
        *({"kind": "noise-only", **each} for each in reversed(controls.values())),
    ]


def _certificates(config: General, chosen: CertifiedSet) -> list[Spec]:
    fields, priors = _certified(config, chosen)
    size = chosen.priors_per_job
    return [
        run_spec(
            config,
            KEY,
            "certificates",
            {**fields, "priors": priors[first : first + size]},
            f"certificates-{_name(chosen)}-{first // size}",
        )
        for first in range(0, len(priors), size)
    ]


def _agreement(config: General) -> Spec:
    """One DP-SGD prior of a data set, with `repetitions` counts by either method."""
    block: Settings = config.max_information
    chosen = block.certificates.sets[block.agreement.set]
    fields, priors = _certified(config, chosen)
    fields |= {
        "priors": [prior for prior in priors if prior["kind"] == "dp-sgd"][:1],
        "taus": chosen.grid.taus[:1],
        **block.agreement.plain("draws", "repetitions"),
        "runs": 1,
    }
    return run_spec(config, KEY, "agreement", fields, f"agreement-{_name(chosen)}")


def _certified(
    config: General, chosen: CertifiedSet
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fields of the jobs of a data set, and all its priors.

    K1 and K2 pay for all that the looks at the same records tried, K1 for no less than declared.
    """
    block: Settings = config.max_information
    given, grid, taus = (
        chosen.plain_without("priors_per_job"),
        chosen.grid.plain(),
        chosen.grid.taus,
    )
    looks = looks_of(block.plain("looks")["looks"], given, config.seed)
    n, beta = chosen.data.n_train, block.beta
    K1, K2 = counted(looks, ranked(grid, chosen.K1, n, beta), taus, beta)
    fields = {
        **block.plain("delta", "delta_mc", "beta", "privacy_delta"),
        **block.certificates.plain_without("sets"),
        **given,
        "data": {**chosen.data.fields(), "n_add": 0},
        "looks": looks,
        "tuples": chosen.K1,
        "taus": taus,
        "K1": max(K1, chosen.K1),
        "K2": K2,
    }
    return fields, priors_of(chosen.grid, chosen.K1, n, beta)


def _name(chosen: CertifiedSet) -> str:
    return f"{chosen.data.name}-{chosen.model}"


def _check_universe(chosen: Tried) -> None:
    """Every setting of a set has a weight: one at a time of each list, since weights multiply."""
    grid, network = chosen.grid, chosen.plain("options", "normalise")
    for zeta, lr, E, tau in zip_longest(grid.zetas, grid.lrs, grid.epochs, grid.taus):
        setting_weight(
            kind="dp-sgd",
            model=chosen.model,
            widths=network["options"].get("widths", ()),
            normalise=network["normalise"],
            zeta=zeta or grid.zetas[0],
            lr=lr or grid.lrs[0],
            E=E or grid.epochs[0],
            tau=tau or grid.taus[0],
            tau_is="deviation",
            sigma=grid.sigma,
            m=grid.m,
            n=chosen.data.n_train,
            look=1,
            run=0,
        )
