"""lp_fft: the jobs that the config asks for, and which of them each figure and table needs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import model_validator

from dpatlas.base.fields import (
    Batch,
    MaxGradNorm,
    Model,
    Once,
    Positive,
    PositiveList,
    TuningRuns,
    Updates,
    optional,
    setting,
)
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas_workflow.config.backbones import backbone_spec, check_private
from dpatlas_workflow.config.common import run_blocks, run_spec
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.tuned import TunedRuns, tuned_runs
from dpatlas_workflow.config.types import PrivateSplit, PublicBackbone, Repeated
from dpatlas_workflow.papers.lp_fft.records.distortion import Distortion
from dpatlas_workflow.papers.lp_fft.records.dynamics import Dynamics
from dpatlas_workflow.papers.lp_fft.records.feature_quality import FeatureQualitySpec, QualityFields
from dpatlas_workflow.papers.lp_fft.records.imbalance import Imbalance
from dpatlas_workflow.papers.lp_fft.records.private import (
    HeadScale,
    Noise,
    PhysicalBatch,
    Privacy,
    PrivateFields,
)
from dpatlas_workflow.papers.lp_fft.records.sensitivity import Sensitivity
from dpatlas_workflow.papers.lp_fft.records.strategies import (
    Augmented,
    Compared,
    EmaDecay,
    LoraRank,
    StrategiesSpec,
    StrategyTraining,
)
from dpatlas_workflow.papers.lp_fft.records.strategies_tuning import (
    StrategiesTuningSpec,
    StrategyRates,
)
from dpatlas_workflow.papers.lp_fft.records.umap import Pictures, UmapSpec
from dpatlas_workflow.papers.lp_fft.strategies import STRATEGIES, check_rank

KEY = "lp_fft"
# Kinds of jobs that train on no data.
COMPUTED = ("dynamics", "distortion", "sensitivity", "imbalance")
OF_SCENARIOS = ("scenarios", "lora")

NoiseLadder = Annotated[
    Once[Noise], setting("Noise multipliers of DP-SGD; 0 trains without privacy.")
]


class TrainedRecords(Model):
    """Private records, the backbone that training starts from, and the expected batch size."""

    data: PrivateSplit
    backbone: PublicBackbone
    batch: Batch

    @model_validator(mode="after")
    def _has_a_batch(self) -> "TrainedRecords":
        n = self.data.n_train
        if self.batch > n:
            raise InputError("batch", self.batch, f"at most n_train = {n}")
        return self


class PrivacyLevels(Model):
    """Privacy levels, and trials of their tunings."""

    noise_multipliers: NoiseLadder
    epsilons: Once[Positive] = setting("Values of epsilon to which the noise is calibrated.")
    tuning_runs: TuningRuns

    @model_validator(mode="after")
    def _has_levels(self) -> "PrivacyLevels":
        if not self.noise_multipliers and not self.epsilons:
            allowed = "a privacy level here or in epsilons"
            raise InputError("noise_multipliers", "none", allowed)
        return self


class ComparisonSettings(Compared, Repeated):
    """Strategies, and the runs of each."""

    runs: int = setting("Reported runs of every strategy; verdicts need 12 or more.", ge=1, le=1000)


class Scenario(ComparisonSettings, PrivacyLevels, TrainedRecords):
    """A backbone and private records, with every strategy at every privacy level.

    What the block says of all scenarios, one can say of itself.
    """

    name: str = setting(
        "Name of the scenario in figures, tables and claims.",
        pattern="^[a-z0-9][a-z0-9-]{0,30}$",
    )
    steps: Updates
    max_grad_norm: MaxGradNorm = optional()
    max_physical_batch: PhysicalBatch = optional()
    lrs: StrategyRates = optional()
    head_scale: HeadScale = optional()
    augmentation: Augmented = optional()
    ema_decay: EmaDecay = optional()
    lora_rank: LoraRank = optional()
    standardise: bool = setting(
        "Whether features reach the head less their mean and over their standard deviation on the "
        "backbone's public training images; the default is false.",
        default=None,
    )


class ClipSweep(ComparisonSettings):
    """One scenario at several clip bounds; learning rates are divided by the bound."""

    scenario: str = setting("Name of one of the scenarios.")
    noise_multiplier: Noise = setting("Noise at every clip bound.")
    max_grad_norms: PositiveList


class FeatureQuality(QualityFields, TrainedRecords, Repeated):
    """Nearest-neighbour accuracy of the features during FFT and LP-FFT, at equal budget."""

    backbone: PublicBackbone = setting(
        "Name under pretrain.backbones; its training images are the pre-training task."
    )
    noise_multipliers: NoiseLadder


class Umap(Pictures, TrainedRecords, Repeated):
    """UMAP of the features before, early and late in FFT, after LP of several lengths."""


class LpFftSettings(Privacy, StrategyTraining):
    """Private fine-tuning with and without linear probing first."""

    enabled: bool = setting("Whether this paper is part of the run.")
    lrs: StrategyRates
    scenarios: list[Scenario] = setting(
        "Each a backbone and private records; every strategy is trained at every privacy level.",
        min_length=1,
    )
    lora: list[Scenario] = setting("Scenarios in which LoRA replaces full fine-tuning.")
    clip_sweep: ClipSweep | None = setting(
        "One scenario at several clip bounds; learning rates are divided by the bound. null for "
        "none."
    )
    feature_quality: list[FeatureQuality] = setting(
        "Nearest-neighbour accuracy of the features during FFT and LP-FFT, at equal budget.",
        min_length=1,
    )
    umap: list[Umap] = setting(
        "UMAP of the features before, early and late in FFT, after LP of several lengths.",
        min_length=1,
    )
    dynamics: Dynamics
    distortion: Distortion
    sensitivity: Sensitivity
    imbalance: Imbalance

    @property
    def swept(self) -> Scenario | None:
        """The scenario of the clip sweep, with the strategies, shares and runs of the sweep."""
        if self.clip_sweep is None:
            return None
        sweep = self.clip_sweep
        for scenario in self.scenarios:
            if scenario.name == sweep.scenario:
                changes = {name: getattr(sweep, name) for name in ComparisonSettings.model_fields}
                return scenario.model_copy(update=changes)
        allowed = "one of " + ", ".join(scenario.name for scenario in self.scenarios)
        raise InputError("clip_sweep.scenario", repr(sweep.scenario), allowed)

    def fields(self, entry: TrainedRecords, spec: type[PrivateFields]) -> dict[str, Any]:
        """Fields of a spec that the block says of all trainings, or an entry of its own."""
        return {**self.part(spec), **entry.part(spec)}

    @model_validator(mode="after")
    def _go_together(self) -> "LpFftSettings":
        if self.relation == "replace_one" and self.accountant == "rdp":
            found = "rdp for Poisson batches under replace_one"
            raise InputError("accountant", found, "pld or auto; rdp with add_remove")
        swept = {"clip_sweep": self.swept} if self.swept else {}
        for path, scenario in {**_entries(self, *OF_SCENARIOS), **swept}.items():
            fields, names = self.fields(scenario, StrategiesTuningSpec), scenario.strategies
            check_rank(f"{path}.strategies", names, fields["lora_rank"])
            tried = {part: len(fields["lrs"][part]) for name in names for part in STRATEGIES[name]}
            if len(set(tried.values())) > 1:
                found = ", ".join(f"{count} for {part}" for part, count in tried.items())
                allowed = (
                    "equally many for all that is trained, so that every strategy tries as many"
                )
                raise InputError(f"{path}.lrs", found, allowed)
        return self


def _entries(block: LpFftSettings, *keys: str) -> dict[str, Any]:
    """Entries of these lists of the block by their paths in the config."""
    return {f"{key}.{i}": entry for key in keys for i, entry in enumerate(getattr(block, key))}


def _check_names(scenarios: Mapping[str, Scenario]) -> None:
    """Check that entries of one name agree but for levels and comparison; no level comes twice."""
    own = (*PrivacyLevels.model_fields, *ComparisonSettings.model_fields)
    first: dict[str, Scenario] = {}
    levels = set()
    for path, scenario in scenarios.items():
        earlier = first.setdefault(scenario.name, scenario)
        fields, expected = scenario.plain_without(*own), earlier.plain_without(*own)
        for name in sorted({*fields, *expected}):
            if fields.get(name) != expected.get(name):
                allowed = f"{expected.get(name)}, as in the other entry named {scenario.name}"
                raise InputError(f"{KEY}.{path}.{name}", fields.get(name), allowed)
        for kind in ("noise_multipliers", "epsilons"):
            for value in getattr(scenario, kind):
                level = (scenario.name, kind, value)
                if level in levels:
                    raise InputError(f"{KEY}.{path}.{kind}", f"{value:g} again", "each level once")
                levels.add(level)


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `strategies`, `lora`, `clip_sweep`: a condition per scenario and privacy level (or clip bound).
    `feature_quality`: one per entry and noise multiplier. `umap`: one per entry. A condition is one
    job or several, each a block of runs. The kinds in `COMPUTED`: one job each.
    """
    block: LpFftSettings = config.lp_fft
    for path, entry in _entries(block, *OF_SCENARIOS, "feature_quality", "umap").items():
        check_private(config, f"{KEY}.{path}", entry.backbone, entry.data)
    _check_names(_entries(block, *OF_SCENARIOS))
    return {
        **{
            group: [spec for tuned in of_group for spec in tuned.reported]
            for group, of_group in _tuned(config).items()
        },
        "feature_quality": list(_quality(config)),
        "umap": list(_umap(config)),
        **{
            kind: [run_spec(config, KEY, kind, getattr(block, kind).plain(), kind)]
            for kind in COMPUTED
        },
    }


def tunings(config: General) -> list[Spec]:
    """The specs of all tunings, whether or not their outcome is known."""
    return [tuned.tuning for of_group in _tuned(config).values() for tuned in of_group]


def _tuned(config: General) -> dict[str, list[TunedRuns]]:
    """The conditions whose learning rates are tuned, by group."""
    block: LpFftSettings = config.lp_fft
    return {
        "strategies": list(_levels(config, block.scenarios, "strategies")),
        "lora": list(_levels(config, block.lora, "lora")),
        "clip_sweep": list(_clip_sweep(config)),
    }


def _levels(config: General, scenarios: list[Scenario], group: str) -> Iterator[TunedRuns]:
    """Scenarios at every noise multiplier and at every epsilon that they name."""
    for scenario in scenarios:
        fields = _scenario(config, scenario, group)
        levels = [
            *((f"noise{z:g}", {"noise_multiplier": z}) for z in scenario.noise_multipliers),
            *((f"eps{epsilon:g}", {"epsilon": epsilon}) for epsilon in scenario.epsilons),
        ]
        for name, level in levels:
            yield _runs(config, scenario, {**fields, "level": level}, f"{scenario.name}-{name}")


def _clip_sweep(config: General) -> Iterator[TunedRuns]:
    """The swept scenario at one noise multiplier and every clip bound of the sweep."""
    block: LpFftSettings = config.lp_fft
    sweep, scenario = block.clip_sweep, block.swept
    if sweep is None or scenario is None:
        return
    fields = _scenario(config, scenario, "clip_sweep")
    fields["level"] = {"noise_multiplier": sweep.noise_multiplier}
    usual, rates = fields["max_grad_norm"], fields["lrs"]
    for bound in sweep.max_grad_norms:
        # A step is the rate times a sum of clipped gradients: their product is kept.
        lrs = {part: [lr * usual / bound for lr in lrs] for part, lrs in rates.items()}
        changes = {"max_grad_norm": bound, "lrs": lrs}
        name = f"clip{bound:g}-{scenario.name}"
        yield _runs(config, scenario, {**fields, **changes}, name)


def _runs(config: General, scenario: Scenario, fields: dict[str, Any], name: str) -> TunedRuns:
    runs = scenario.runs, scenario.runs_per_job
    return tuned_runs(config, KEY, "strategies", fields, StrategiesSpec, name, *runs)


def _scenario(config: General, scenario: Scenario, group: str) -> dict[str, Any]:
    fields = _private(config, scenario, StrategiesTuningSpec)
    if scenario.standardise:
        fields["public_data"] = _pretraining_data(config, group, scenario)
    return {**fields, "group": group, "scenario": scenario.name}


def _quality(config: General) -> Iterator[Spec]:
    """Feature quality, of every entry at every noise multiplier."""
    for entry in config.lp_fft.feature_quality:
        fields = _private(config, entry, FeatureQualitySpec)
        fields["public_data"] = _pretraining_data(config, "feature_quality", entry)
        for noise in entry.noise_multipliers:
            at_noise = {**fields, "noise_multiplier": noise}
            name = f"quality-{entry.backbone}-noise{noise:g}"
            runs = entry.runs, entry.runs_per_job
            yield from run_blocks(config, KEY, "feature_quality", at_noise, name, *runs)


def _umap(config: General) -> Iterator[Spec]:
    for entry in config.lp_fft.umap:
        name = f"umap-{entry.data.name}-{entry.backbone}"
        fields = _private(config, entry, UmapSpec)
        yield from run_blocks(config, KEY, "umap", fields, name, entry.runs, entry.runs_per_job)


def _pretraining_data(config: General, where: str, entry: TrainedRecords) -> dict[str, Any]:
    """The images that the backbone is trained on; InputError for one that is not trained here."""
    pretraining = backbone_spec(config, entry.backbone).fields
    if "data" not in pretraining:
        allowed = "a backbone that is trained here, whose images are used as well"
        raise InputError(f"{KEY}.{where}", repr(entry.backbone), allowed)
    return pretraining["data"]


def _private(config: General, entry: TrainedRecords, spec: type[PrivateFields]) -> dict[str, Any]:
    """Fields of specs of this class that are the same at all levels."""
    return {
        **config.lp_fft.fields(entry, spec),
        "data": {**entry.data.dealt(), "n_add": 0},
        "backbone": backbone_spec(config, entry.backbone).id,
    }


SETTINGS = LpFftSettings
