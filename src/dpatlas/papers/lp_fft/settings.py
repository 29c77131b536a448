"""lp_fft: the jobs that the config asks for, and which of them each figure and table needs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpatlas.config.backbones import backbone_spec, check_private
from dpatlas.config.common import run_spec
from dpatlas.config.model import Model, Once, optional, setting
from dpatlas.config.root import General
from dpatlas.config.types import (
    Accountant,
    Batch,
    CountList,
    Delta,
    MaxGradNorm,
    PositiveList,
    PrivateSplit,
    PublicBackbone,
    Rate,
    Relation,
    TuningRuns,
    Updates,
)
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.strategies import ALONE, STRATEGIES, check_rank

KEY = "lp_fft"
# Kinds of jobs that train on no data.
COMPUTED = ("dynamics", "distortion", "sensitivity", "imbalance")

# What the block sets for all trainings, and each scenario or picture may set for itself.
SHARED = ("delta", "relation", "accountant", "max_grad_norm", "max_physical_batch")
OF_SCENARIO = ("lrs", "head_scale", "augmentation", "ema_decay", "lora_rank")
# What entries of one scenario may differ in.
OF_ENTRY = (
    *("noise_multipliers", "epsilons", "strategies", "shares", "control_shares"),
    *("runs", "tuning_runs"),
)
# What a sweep of clip bounds sets in the place of its scenario.
OF_SWEEP = ("strategies", "shares", "control_shares", "runs")
OF_SCENARIOS = ("scenarios", "lora")

# Of trainings.
Strategy = Literal["lp", "fft", "lp-fft", "lp-lp", "fft-fft", "lora", "lp-lora"]
Strategies = Annotated[
    Once[Strategy],
    setting(
        "What is compared; with a phase before another, also the strategy of that phase alone.",
        min_length=1,
    ),
]
PhysicalBatch = Annotated[int, Field(ge=1, le=10_000_000)]
HeadScale = Annotated[float, setting("Factor on the initial weights of the head.", gt=0)]
FeatureScale = Annotated[float, setting("Factor on what the head sees.", gt=0)]
EmaDecay = Annotated[float, Field(ge=0, lt=1)]
LoraRank = Annotated[int, Field(ge=1, le=10_000)]
Noise = Annotated[float, Field(ge=0)]
NoiseLadder = Annotated[
    Once[Noise], setting("Noise multipliers as given; 0 trains without privacy.")
]
Shares = Annotated[
    Once[Annotated[float, Field(ge=0, le=1)]],
    setting("Shares of the steps that the first phase gets; 0 and 1 are FFT and LP themselves."),
]
ReportedRuns = Annotated[int, setting("Reported runs of every strategy.", ge=1, le=1000)]
# Of the theory.
Records = Annotated[int, setting("Records, half of each class.", ge=2, le=100_000)]
Inputs = Annotated[int, setting("Numbers of a record.", ge=2, le=100_000)]
Hidden = Annotated[
    int,
    setting(
        "Hidden neurons h; fewer than the inputs in a linear network, an even number in a ReLU "
        "network.",
        ge=1,
        le=100_000,
    ),
]
Degrees = Annotated[
    float,
    setting("Degrees between a record or feature and its class's axis, at most.", gt=0, lt=45),
]
Positive = Annotated[float, Field(gt=0)]
HeadVariance = Annotated[float, setting("Variance beta_h of the head's initial weights.", gt=0)]
SolverStep = Annotated[float, setting("Step of the solver.", gt=0)]
Variance = Annotated[float, setting("Variance of the noise, sigma^2.", ge=0)]
Paths = Annotated[int, setting("Simulated paths of the diffusion.", ge=2, le=10_000_000)]
Networks = Annotated[int, setting("Networks drawn.", ge=1, le=10_000_000)]
SeveralNetworks = Annotated[int, setting("Networks drawn.", ge=2, le=10_000_000)]
SolverSteps = Annotated[int, setting("Steps.", ge=1, le=10_000_000)]
Every = Annotated[int, setting("Steps between looks.", ge=1, le=10_000_000)]
RecordsPerInput = Annotated[int, setting("Records over inputs.", ge=2, le=1000)]


class Rates(Model):
    """Rates that a phase tries on the validation records, by what it trains."""

    head: PositiveList
    full: PositiveList
    lora: PositiveList


class Augmentation(Model):
    """Views of every record, averaged before the clip."""

    views: int = setting("Views of a record.", ge=1, le=1024)
    padding: int = setting("Most pixels that a view is shifted by.", ge=0, le=1000)
    flip: bool = setting("Whether half of the views are mirrored.")


class Trained(Model):
    """Private records and the backbone that training starts from."""

    data: PrivateSplit
    backbone: PublicBackbone
    batch: Batch

    @model_validator(mode="after")
    def _has_a_batch(self) -> "Trained":
        n = self.data.n_train
        if self.batch > n:
            raise InputError("batch", self.batch, f"at most n_train = {n}")
        return self


class Scenario(Trained):
    """A backbone and private records, with every strategy at every privacy level."""

    name: str = setting(
        "Of the scenario, in figures, tables and claims.", pattern="^[a-z0-9][a-z0-9-]{0,30}$"
    )
    noise_multipliers: NoiseLadder
    epsilons: Once[Positive] = setting("Budgets that noise is calibrated to.")
    steps: Updates
    strategies: Strategies
    shares: Shares
    control_shares: Shares
    runs: ReportedRuns = setting(
        "Reported runs of every strategy, after its rates were chosen; verdicts need 5 or more."
    )
    tuning_runs: TuningRuns
    max_grad_norm: MaxGradNorm = optional()
    max_physical_batch: PhysicalBatch | None = setting("Records in memory at a time.", default=None)
    lrs: Rates = setting("As in the block.", default=None)
    head_scale: HeadScale = optional()
    augmentation: Augmentation | None = setting("As in the block.", default=None)
    ema_decay: EmaDecay | None = setting("As in the block.", default=None)
    lora_rank: LoraRank | None = setting("As in the block.", default=None)

    @model_validator(mode="after")
    def _has_levels(self) -> "Scenario":
        if not self.noise_multipliers and not self.epsilons:
            allowed = "a privacy level here or in epsilons"
            raise InputError("noise_multipliers", "none", allowed)
        return self


class ClipSweep(Model):
    """A scenario at other clip bounds than its own; rates are divided by the bound."""

    scenario: str = setting("Name of one of the scenarios.")
    noise_multiplier: Noise = setting("Noise at every clip bound.")
    max_grad_norms: PositiveList
    strategies: Strategies
    shares: Shares
    control_shares: Shares
    runs: ReportedRuns


class FeatureQuality(Trained):
    """Nearest neighbours on the features along training, FFT against LP-FFT on one budget."""

    backbone: PublicBackbone = setting(
        "Name under pretrain.backbones; its training images are the public task."
    )
    noise_multipliers: NoiseLadder
    head_scales: PositiveList
    lrs: PositiveList
    lp_lr: Rate
    feature_scale: FeatureScale
    steps: Updates
    lp_steps: Updates
    at: Once[Annotated[int, Field(ge=0, le=1_000_000)]] = setting(
        "Steps after which features are looked at, in increasing order.", min_length=2
    )
    runs: int = setting("Runs of every condition.", ge=1, le=1000)
    neighbours: int = setting("Neighbours that vote.", ge=1, le=10_000)
    public_known: int = setting(
        "Public images among which neighbours are looked for.", ge=1, le=10_000_000
    )
    public_asked: int = setting("Public images that are classified.", ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _looks_within_its_steps(self) -> "FeatureQuality":
        if self.lp_steps >= self.steps:
            raise InputError("lp_steps", self.lp_steps, f"less than steps = {self.steps}")
        if sorted(self.at) != self.at or self.at[-1] > self.steps:
            raise InputError("at", self.at, f"increasing steps, at most steps = {self.steps}")
        return self


class Umap(Trained):
    """Features in two dimensions, before, early and late in FFT after LP of several lengths."""

    head_scale: HeadScale
    feature_scale: FeatureScale
    lp_steps: Once[Annotated[int, Field(ge=0, le=1_000_000)]] = setting(
        "Lengths of LP.", min_length=1
    )
    fft_steps: Updates
    early: int = setting("Steps of FFT that are early; at most fft_steps.", ge=1, le=1_000_000)
    noise_lp: Noise = setting("Noise multiplier of LP.")
    noise_fft: Noise = setting("Noise multiplier of FFT.")
    lr_lp: Rate
    lr_fft: Rate
    neighbours: int = setting("Neighbours that UMAP looks at, and that vote.", ge=2, le=10_000)
    points: int = setting("Test records to draw.", ge=3, le=100_000)

    @model_validator(mode="after")
    def _is_early_within_fft(self) -> "Umap":
        if self.early > self.fft_steps:
            raise InputError("early", self.early, f"at most fft_steps = {self.fft_steps}")
        return self


class Phase(Model):
    """Noise and sizes of a phase."""

    sigmas: PositiveList
    draws: int = setting("Networks and data drawn.", ge=1, le=100_000)
    paths: Paths


class Phases(Model):
    """What is trained, with its noise."""

    head: Phase = setting("Linear probing, Thm 4.2.")
    all: Phase = setting("Full fine-tuning, Thm 4.3.")


class ReluDynamics(Model):
    """Two-layer ReLU networks on two classes."""

    records: Records
    inputs: Inputs
    hidden: Hidden
    angle: Degrees
    head_variance: HeadVariance
    step: Positive = setting("Step of the solver; times are whole numbers of it.")
    times: list[Positive] = setting("Times, equally spaced from 0.", min_length=1)
    phases: Phases


class Probing(Model):
    """Linear probing of a linear network; hidden < inputs < records."""

    records: Records
    inputs: Inputs
    hidden: Hidden
    head_variance: float = setting("Variance beta_h of the head's initial weights.", ge=0)
    sigma2: Variance
    b_norm2: float = setting("Squared norm of what the features reach of the labels.", ge=0, le=1)
    paths: Paths
    times: list[Positive] = setting("Times in increasing order.", min_length=1)


class FineTuning(Model):
    """Full fine-tuning of linear networks, Thm 4.5."""

    sizes: list[
        Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], Field(min_length=2, max_length=2)]
    ] = setting("Inputs d and hidden neurons h <= d.", min_length=1)
    head_excess: float = setting("Head variance over the least that the theorem assumes.", gt=1)
    noise_share: float = setting("Noise over the largest that the theorem assumes.", gt=0, lt=1)
    step: Positive = setting("Step over h beta_h.")
    span: Positive = setting("Time over that of the theorem's rate.")
    points: int = setting("Times that are looked at.", ge=1, le=100_000)
    paths: Paths


class Dynamics(Model):
    """Losses and norms of the theory's networks beside the bounds (Thms 4.2 to 4.5, Eq. 161)."""

    relu: ReluDynamics
    probing: Probing
    fine_tuning: FineTuning


class Clusters(Model):
    """Classes of records around an axis."""

    records: Records
    inputs: Inputs
    angle: Degrees
    hs: CountList
    head_variances: PositiveList
    trials: Networks


class TwoRecords(Model):
    """One class of two records, one hidden neuron."""

    spread: Positive = setting("How far their activations lie apart.")
    ratio: float = setting("Of their distances from the axis.", gt=1)
    head_variances: PositiveList
    trials: Networks


class AfterProbing(Model):
    """Cosines in full fine-tuning after linear probing."""

    records: Records
    inputs: Inputs
    hidden: Hidden
    head_variance: HeadVariance
    feature_angle: Degrees
    angles: list[Degrees] = setting(
        "Degrees between a record and its class's axis, at most.", min_length=1
    )
    runs: Networks
    lp_span: Positive = setting("Length of linear probing, as an integral of the loss.")
    lp_step: SolverStep
    fft_spans: list[Positive] = setting(
        "Lengths of full fine-tuning, in increasing order.", min_length=1
    )
    step: SolverStep


class Counterexample(Model):
    """Three records on which a cosine falls after any linear probing."""

    lp_spans: PositiveList
    span: Positive = setting("Length of full fine-tuning.")
    step: SolverStep


class Distortion(Model):
    """How often a random head turns a feature away from its class (Thms 3.3 and 3.4)."""

    clusters: Clusters
    two_records: TwoRecords
    after_probing: AfterProbing
    counterexample: Counterexample


class SensitivityStart(Model):
    """Against the number of inputs, before training."""

    hidden: Hidden
    records_per_input: RecordsPerInput
    dims: CountList
    seeds: SeveralNetworks


class SensitivityDrift(Model):
    """Along private training."""

    d: int = setting("Inputs.", ge=2, le=100_000)
    hidden: Hidden
    records_per_input: RecordsPerInput
    reading: Literal["variance", "deviation"] = setting(
        "What the printed h / sqrt(d) is of the head's initial weights."
    )
    seeds: SeveralNetworks
    sigma2: Variance
    step: SolverStep
    steps: SolverSteps
    every: Every


class Sensitivity(Model):
    """Gradients of both layers of a linear network (Fig. 9)."""

    start: SensitivityStart
    drift: SensitivityDrift


class ImbalanceGap(Model):
    """The Jensen gap under clipped noisy gradients; hidden < inputs < records."""

    hidden: Hidden
    inputs: Inputs
    records: Records
    head_variance: HeadVariance
    sigmas: PositiveList
    max_grad_norm: MaxGradNorm
    lr: Rate
    steps: SolverSteps
    every: Every
    paths: Paths


class ImbalanceDrift(Model):
    """The rate at which noise moves the mean eigenvalue."""

    hidden: Hidden
    inputs: Inputs
    records: Records
    head_variance: HeadVariance
    sigma2: Variance
    step: SolverStep
    steps: SolverSteps
    every: Every
    paths: Paths


class Imbalance(Model):
    """Eigenvalues of the imbalance of a linear network (Fig. 10)."""

    gap: ImbalanceGap
    drift: ImbalanceDrift


class Settings(Model):
    """Linear probing before full fine-tuning, in private."""

    enabled: bool = setting("Whether this paper is part of the run.")
    delta: Delta
    relation: Relation
    accountant: Accountant
    max_grad_norm: MaxGradNorm
    max_physical_batch: PhysicalBatch | None = setting(
        "Records in memory at a time; null for the whole batch. Changes no digit beyond rounding."
    )
    lrs: Rates
    head_scale: HeadScale
    augmentation: Augmentation | None = setting(
        "Views of every record, averaged before the clip; null for none."
    )
    ema_decay: EmaDecay | None = setting(
        "Decay of the average of the weights that is reported; null for the last iterate."
    )
    lora_rank: LoraRank | None = setting(
        "Rank of the branches of LoRA, at most the width of the narrowest layer; null for none."
    )
    scenarios: list[Scenario] = setting(
        "A backbone and private records each, with every strategy at every privacy level.",
        min_length=1,
    )
    lora: list[Scenario] = setting(
        "As scenarios, with branches of low rank in the place of all weights."
    )
    clip_sweep: ClipSweep | None = setting(
        "A scenario at other clip bounds than its own; rates are divided by the bound. null for "
        "none."
    )
    feature_quality: list[FeatureQuality] = setting(
        "Nearest neighbours on the features along training, FFT against LP-FFT on one budget.",
        min_length=1,
    )
    umap: list[Umap] = setting(
        "Features in two dimensions, before, early and late in FFT after LP of several lengths.",
        min_length=1,
    )
    dynamics: Dynamics
    distortion: Distortion
    sensitivity: Sensitivity
    imbalance: Imbalance

    @property
    def swept(self) -> Scenario | None:
        """The scenario of the clip sweep, with its strategies, shares and runs."""
        if self.clip_sweep is None:
            return None
        sweep = self.clip_sweep
        for scenario in self.scenarios:
            if scenario.name == sweep.scenario:
                changes = {name: getattr(sweep, name) for name in OF_SWEEP}
                return scenario.model_copy(update=changes)
        allowed = "one of " + ", ".join(scenario.name for scenario in self.scenarios)
        raise InputError("clip_sweep.scenario", repr(sweep.scenario), allowed)

    def of(self, scenario: Scenario) -> dict[str, Any]:
        """What the block sets for all trainings, and what the scenario sets for itself."""
        names = (*SHARED, *OF_SCENARIO)
        return {**self.plain(*names), **scenario.plain(*names)}

    @model_validator(mode="after")
    def _go_together(self) -> "Settings":
        if self.relation == "replace_one" and self.accountant == "rdp":
            found = "rdp for Poisson batches under replace_one"
            raise InputError("accountant", found, "pld or auto; rdp with add_remove")
        swept = {"clip_sweep": self.swept} if self.swept else {}
        for place, scenario in {**_entries(self, *OF_SCENARIOS), **swept}.items():
            _check_strategies(place, scenario.strategies, self.of(scenario))
        return self


def _entries(block: Settings, *keys: str) -> dict[str, Any]:
    """Entries of these lists by their places."""
    return {f"{key}.{i}": each for key in keys for i, each in enumerate(getattr(block, key))}


def _check_names(scenarios: Mapping[str, Scenario]) -> None:
    """One name is one scenario, with levels, runs and strategies in as many entries as it takes."""
    first: dict[str, Scenario] = {}
    levels = set()
    for place, scenario in scenarios.items():
        earlier = first.setdefault(scenario.name, scenario)
        given, known = scenario.plain_without(*OF_ENTRY), earlier.plain_without(*OF_ENTRY)
        for name in sorted({*given, *known}):
            if given.get(name) != known.get(name):
                allowed = f"{known.get(name)}, as of the other {scenario.name}"
                raise InputError(f"{KEY}.{place}.{name}", given.get(name), allowed)
        for kind in ("noise_multipliers", "epsilons"):
            for value in getattr(scenario, kind):
                level = (scenario.name, kind, value)
                if level in levels:
                    raise InputError(f"{KEY}.{place}.{kind}", f"{value:g} again", "each level once")
                levels.add(level)


def _check_strategies(place: str, named: list[Strategy], given: Mapping[str, Any]) -> None:
    for name in named:
        first = ALONE[STRATEGIES[name][0]]
        if first not in named:
            allowed = f"{first} too, whose rate its first phase takes"
            raise InputError(f"{place}.strategies", f"{name} without {first}", allowed)
    check_rank(f"{place}.strategies", named, given["lora_rank"])
    tried = {part: len(given["lrs"][part]) for name in named for part in STRATEGIES[name]}
    if len(set(tried.values())) > 1:
        found = ", ".join(f"{count} for {part}" for part, count in tried.items())
        allowed = "equally many for all that is trained, so that every strategy tries as many"
        raise InputError(f"{place}.lrs", found, allowed)


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `strategies`, `lora`, `clip_sweep`: one job per scenario and privacy level (or clip bound).
    `feature_quality`: one per noise multiplier. `umap`. Four kinds of theory, without data.
    """
    block: Settings = config.lp_fft
    for place, each in _entries(block, *OF_SCENARIOS, "feature_quality", "umap").items():
        check_private(config, f"{KEY}.{place}", each.backbone, each.data)
    _check_names(_entries(block, *OF_SCENARIOS))
    return {
        "strategies": list(_levels(config, block.scenarios, "strategies")),
        "lora": list(_levels(config, block.lora, "lora")),
        "clip_sweep": list(_clip_sweep(config)),
        "feature_quality": [
            _quality(config, chosen, noise)
            for chosen in block.feature_quality
            for noise in chosen.noise_multipliers
        ],
        "umap": [_umap(config, chosen) for chosen in block.umap],
        **{
            kind: [run_spec(config, KEY, kind, getattr(block, kind).plain(), kind)]
            for kind in COMPUTED
        },
    }


def settings(config: General) -> dict[str, Any]:
    """Nothing: figures, tables and claims are made of the records alone."""
    return {}


def _levels(config: General, scenarios: list[Scenario], group: str) -> Iterator[Spec]:
    """Scenarios at every noise multiplier and at every epsilon that they name."""
    for chosen in scenarios:
        fields = _scenario(config, chosen, group)
        for noise in chosen.noise_multipliers:
            level = {"noise_multiplier": noise}
            name = f"{chosen.name}-noise{noise:g}"
            yield run_spec(config, KEY, "strategies", {**fields, "level": level}, name)
        for epsilon in chosen.epsilons:
            level, name = {"epsilon": epsilon}, f"{chosen.name}-eps{epsilon:g}"
            yield run_spec(config, KEY, "strategies", {**fields, "level": level}, name)


def _clip_sweep(config: General) -> Iterator[Spec]:
    """A scenario at one noise multiplier, at other clip bounds than its own."""
    block: Settings = config.lp_fft
    sweep, chosen = block.clip_sweep, block.swept
    if sweep is None or chosen is None:
        return
    fields = _scenario(config, chosen, "clip_sweep")
    fields["level"] = {"noise_multiplier": sweep.noise_multiplier}
    usual, rates = fields["max_grad_norm"], fields["lrs"]
    for bound in sweep.max_grad_norms:
        # Rates scale with the bound: a step is lr times a sum of gradients that it bounds.
        lrs = {part: [lr * usual / bound for lr in lrs] for part, lrs in rates.items()}
        changes = {"max_grad_norm": bound, "lrs": lrs}
        name = f"clip{bound:g}-{chosen.name}"
        yield run_spec(config, KEY, "strategies", {**fields, **changes}, name)


def _scenario(config: General, chosen: Scenario, group: str) -> dict[str, Any]:
    return {
        "group": group,
        "scenario": chosen.name,
        **config.lp_fft.of(chosen),
        **chosen.plain("batch", "steps", "runs", "tuning_runs", *OF_SWEEP),
        **_private(config, chosen),
    }


def _quality(config: General, chosen: FeatureQuality, noise: float) -> Spec:
    trained = backbone_spec(config, chosen.backbone).fields
    if "data" not in trained:
        allowed = "a backbone that is trained here: its images are the public task"
        raise InputError(f"{KEY}.feature_quality", repr(chosen.backbone), allowed)
    fields = {
        **config.lp_fft.plain(*SHARED),
        **chosen.plain_without("noise_multipliers"),
        **_private(config, chosen),
        "public_data": trained["data"],
        "noise_multiplier": noise,
    }
    name = f"quality-{chosen.backbone}-noise{noise:g}"
    return run_spec(config, KEY, "feature_quality", fields, name)


def _umap(config: General, chosen: Umap) -> Spec:
    fields = {**config.lp_fft.plain(*SHARED), **chosen.plain(), **_private(config, chosen)}
    name = f"umap-{chosen.data.name}-{chosen.backbone}"
    return run_spec(config, KEY, "umap", fields, name)


def _private(config: General, chosen: Trained) -> dict[str, Any]:
    return {
        "data": {**chosen.data.fields(), "n_add": 0},
        "backbone": backbone_spec(config, chosen.backbone).id,
    }
