"""max_information: the jobs that the config asks for, and which of them each product needs."""

from itertools import zip_longest
from typing import Annotated, Any

from pydantic import Field, model_validator

from dpatlas.base.fields import (
    AsWritten,
    Delta,
    Model,
    Rate,
    Seed,
    Share,
    setting,
)
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import check_budget
from dpatlas.formulas.max_information.grid import lowest_kappa
from dpatlas.formulas.max_information.universe import setting_weight
from dpatlas_workflow.config.common import run_blocks, run_spec
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.types import DealtSet, NetworkOptions, PrivateName, Repeated
from dpatlas_workflow.papers.max_information.looks import counted
from dpatlas_workflow.papers.max_information.records.agreement import Agreement
from dpatlas_workflow.papers.max_information.records.certified import (
    Estimated,
    PriorGrid,
    TriedOnASet,
)
from dpatlas_workflow.papers.max_information.records.coefficients import Coefficients
from dpatlas_workflow.papers.max_information.records.kappa import Kappa
from dpatlas_workflow.papers.max_information.records.simulation import Simulation
from dpatlas_workflow.papers.max_information.register import looks_of

KEY = "max_information"

# All tuples of a grid are ranked whenever the config is read. The paper's grid has 140.
MAX_TUPLES = 20_000


# Values of tau, and the priors that are tried at them.
Priors = list[tuple[list[float], list[dict[str, Any]]]]


class Data(DealtSet):
    """Training records, from which certificates are computed, and test records to check them."""

    name: Annotated[str, PrivateName(("digits", "fonts", "strokes", "mnist", "cifar10"))] = setting(
        "Name of the data set, or of one of your own."
    )
    n_train: int = setting("Training records.", ge=2, le=10_000_000)
    n_test: int = setting("Test records.", ge=1, le=1_000_000)
    selection: int = setting(
        "Number of the random selection of records; another number selects other records.",
        ge=0,
        le=1_000_000,
        default=None,
    )


class FixedPrior(Model):
    """A prior that ignores the records, at one tau of the grid."""

    tau: Annotated[float, AsWritten] = setting("Standard deviation of the prior.", gt=0)


class FixedTuple(FixedPrior):
    """A trained prior: one tuple and one tau of the grid."""

    zeta: Annotated[float, AsWritten] = setting("Clip bound.", gt=0)
    lr: Annotated[Rate, AsWritten]
    E: int = setting("Number of epochs.", ge=1, le=1000)


class Fixed(Model):
    """One prior of each kind."""

    independent: FixedPrior
    dp_sgd: FixedTuple
    noise_only: FixedTuple


class TriedGrid(TriedOnASet):
    """A data set with a grid of priors that were tried on it."""

    data: Data
    options: NetworkOptions
    fixed: Fixed | None = setting(
        "The one prior of each kind that is tried, fixed before the runs, while the union bound "
        "pays for the whole grid; null to try the whole grid.",
        default=None,
    )
    priors_per_job: int = setting(
        "Priors in one job, each with all values of tau.",
        ge=1,
        le=1000,
        default=None,
    )

    @model_validator(mode="after")
    def _has_a_grid_that_can_be_ranked(self) -> "TriedGrid":
        n, grid = self.data.n_train, self.grid
        self.options.check("", self.model)
        if grid.m > n:
            raise InputError("grid.m", grid.m, f"at most n_train = {n}")
        tuples = len(grid.zetas) * len(grid.lrs) * len(grid.epochs)
        if tuples > MAX_TUPLES:
            found = f"{tuples} tuples of zetas, lrs and epochs"
            raise InputError("grid", found, f"at most {MAX_TUPLES}")
        return self


class CertifiedSet(TriedGrid):
    """A data set with a grid of priors that the union bound pays for."""

    priors_per_job: int = setting("Priors in one job, each with all values of tau.", ge=1, le=1000)

    @model_validator(mode="after")
    def _lies_in_the_universe(self) -> "CertifiedSet":
        n, batch, grid = self.data.n_train, self.training.batch, self.grid
        if batch > n:
            raise InputError("training.batch", batch, f"at most n_train = {n}")
        # Weights are products, so it is enough to visit every value of each list once.
        for zeta, lr, E, tau in zip_longest(grid.zetas, grid.lrs, grid.epochs, grid.taus):
            setting_weight(
                kind="dp-sgd",
                model=self.model,
                widths=self.options.widths or (),
                normalise=self.normalise.plain() if self.normalise else None,
                zeta=zeta or grid.zetas[0],
                lr=lr or grid.lrs[0],
                E=E or grid.epochs[0],
                tau=tau or grid.taus[0],
                tau_is="deviation",
                sigma=grid.sigma,
                m=grid.m,
                n=n,
                look=1,
                run=0,
            )
        return self


class CertificateSettings(Estimated, Repeated):
    """Certificates of Tables 1 to 3."""

    sets: list[CertifiedSet] = setting(
        "Data sets, each with a grid of priors that the union bound pays for.", min_length=1
    )


class EarlierLook(Model):
    """A study of one set whose certificates somebody saw."""

    when: str = setting("Date of the look.", pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    seed: Seed = setting("Base seed of the study.")
    set: TriedGrid = setting(
        "The entry of certificates.sets that was tried; data.redeal counts as false where it is "
        "not given."
    )
    then: str = setting(
        "What was seen, and what was changed after it.", min_length=1, max_length=200
    )


class AgreementOnASet(Agreement):
    """Comparison of two ways to estimate a risk: local reparametrisation and sampled weights."""

    set: int = setting("Index of a data set in certificates.sets, from 0.", ge=0, le=1000)


class MaxInformationSettings(Model):
    """PAC-Bayes certificates with priors learned by DP-SGD."""

    enabled: bool = setting("Whether this paper is part of the run.")
    delta: Share
    delta_mc: Share
    beta: Share
    privacy_delta: Delta
    certificates: CertificateSettings
    looks: dict[
        Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,39}$")],
        EarlierLook,
    ] = setting(
        "Register of the looks at certificates, by name and in order. It is only ever added to; K1 "
        "and K2 pay for all looks at the same records. (These are not the numbers of runs at which "
        "verdicts are read.)"
    )
    agreement: AgreementOnASet
    coefficients: Coefficients
    kappa: Kappa
    simulation: Simulation

    @model_validator(mode="after")
    def _go_together(self) -> "MaxInformationSettings":
        check_budget(self.delta, self.delta_mc, self.beta)
        sets = len(self.certificates.sets)
        if self.agreement.set >= sets:
            allowed = f"an index of one of the {sets} sets, from 0"
            raise InputError("agreement.set", self.agreement.set, allowed)
        for number, certified in enumerate(self.certificates.sets):
            _tried(certified, self.beta, f"certificates.sets.{number}.")
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `certificates`: priors of one data set, `priors_per_job` in a job, with all their taus, in
    blocks of runs. `agreement`: two ways to estimate a risk. `coefficients`, `kappa`,
    `simulation`: without data.
    """
    block: MaxInformationSettings = config.max_information
    return {
        "certificates": [
            spec for certified in block.certificates.sets for spec in _jobs_of(config, certified)
        ],
        "agreement": [_agreement(config)],
        **{
            kind: [run_spec(config, KEY, kind, getattr(block, kind).plain(), kind)]
            for kind in ("coefficients", "kappa", "simulation")
        },
    }


def priors_of(grid: PriorGrid, K1: int, n: int, beta: float) -> list[dict[str, Any]]:
    """Every prior on n records: the independent one, DP-SGD in order of kappa, noise only.

    Noise-only training does not depend on zeta, so there is one such control for each pair of
    learning rate and number of epochs.
    """
    tuples = [one._asdict() for one in lowest_kappa(grid.plain(), K1, n, beta)]
    controls = {(prior["lr"], prior["E"]): prior for prior in reversed(tuples)}
    return [
        {"kind": "independent"},
        *({"kind": "dp-sgd", **prior} for prior in tuples),
        *({"kind": "noise-only", **prior} for prior in reversed(controls.values())),
    ]


def _fixed_priors(certified: CertifiedSet, fixed: Fixed, beta: float, place: str) -> Priors:
    """The fixed prior of each kind by its tau; InputError for one that is not paid for."""
    grid = certified.grid
    tuples = [
        one._asdict()
        for one in lowest_kappa(grid.plain(), certified.K1, certified.data.n_train, beta)
    ]
    by_tau: dict[float, list[dict[str, Any]]] = {}
    for kind, values in fixed.plain().items():
        tau, prior = values.pop("tau"), {"kind": kind.replace("_", "-")}
        if tau not in grid.taus:
            allowed = f"one of {', '.join(map(str, grid.taus))}"
            raise InputError(f"{place}fixed.{kind}.tau", tau, allowed)
        if values:
            tried = [each for each in tuples if values.items() <= each.items()]
            if not tried:
                allowed = f"one of the {len(tuples)} tuples of lowest kappa in the grid"
                found = ", ".join(f"{name} {value:g}" for name, value in values.items())
                raise InputError(f"{place}fixed.{kind}", found, allowed)
            prior |= tried[0]
        by_tau.setdefault(tau, []).append(prior)
    return [([tau], priors) for tau, priors in by_tau.items()]


def _tried(certified: CertifiedSet, beta: float, place: str = "") -> Priors:
    """What is tried of a set: values of tau with the priors that are tried at them.

    place: of the set in the config, for an InputError.
    """
    if certified.fixed:
        return _fixed_priors(certified, certified.fixed, beta, place)
    n = certified.data.n_train
    return [(certified.grid.taus, priors_of(certified.grid, certified.K1, n, beta))]


def _jobs_of(config: General, certified: CertifiedSet) -> list[Spec]:
    block: MaxInformationSettings = config.max_information
    shared, size = _fields(config, certified), certified.priors_per_job
    parts = [
        {"taus": taus, "priors": priors[first : first + size]}
        for taus, priors in _tried(certified, block.beta)
        for first in range(0, len(priors), size)
    ]
    return [
        spec
        for number, part in enumerate(parts)
        for spec in run_blocks(
            config,
            KEY,
            "certificates",
            {**shared, **part},
            f"certificates-{_name(certified)}-{number}",
            block.certificates.runs,
            block.certificates.runs_per_job,
        )
    ]


def _agreement(config: General) -> Spec:
    """The first DP-SGD prior on a data set, `repetitions` counts by either method."""
    block: MaxInformationSettings = config.max_information
    certified = block.certificates.sets[block.agreement.set]
    taus, prior = next(
        (taus, prior)
        for taus, priors in _tried(certified, block.beta)
        for prior in priors
        if prior["kind"] == "dp-sgd"
    )
    fields = _fields(config, certified) | {
        "priors": [prior],
        "taus": taus[:1],
        **block.agreement.part(Agreement),
    }
    return run_spec(config, KEY, "agreement", fields, f"agreement-{_name(certified)}")


def _fields(config: General, certified: CertifiedSet) -> dict[str, Any]:
    """Fields that the specs of a data set share: all but priors, taus and runs.

    K1 and K2 pay for everything that all looks at the same records tried; K1 is at least the
    declared one.
    """
    block: MaxInformationSettings = config.max_information
    data, register = certified.data.dealt(), block.plain("looks")["looks"]
    looks = looks_of(register, {**certified.plain(), "data": data}, config.seed)
    grid, beta = certified.grid, block.beta
    tuples = lowest_kappa(grid.plain(), certified.K1, certified.data.n_train, beta)
    K1, K2 = counted(looks, tuples, grid.taus, beta)
    return {
        "delta": block.delta,
        "delta_mc": block.delta_mc,
        "beta": beta,
        "privacy_delta": block.privacy_delta,
        **block.certificates.part(Estimated),
        **certified.part(TriedOnASet),
        "options": certified.options.plain(),
        "data": {**data, "n_add": 0},
        "looks": looks,
        "tuples": certified.K1,
        "K1": max(K1, certified.K1),
        "K2": K2,
    }


def _name(certified: CertifiedSet) -> str:
    return f"{certified.data.name}-{certified.model}"


SETTINGS = MaxInformationSettings
