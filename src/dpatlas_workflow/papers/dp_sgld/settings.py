"""dp_sgld: which jobs the config asks for, and which of them each figure and table needs."""

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, model_validator

from dpatlas.base.facts import ReportedFields
from dpatlas.base.fields import (
    Accountant,
    Delta,
    MaxGradNorm,
    Model,
    PositiveList,
    Seed,
    TuningRuns,
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
from dpatlas_workflow.papers.dp_sgld.records import (
    Epochs,
    FeatureNorm,
    Inputs,
    Radius,
    Regulariser,
    batch_of_at_most,
    names_once,
)
from dpatlas_workflow.papers.dp_sgld.records.accuracy import AccuracySpec, LangevinSchedule
from dpatlas_workflow.papers.dp_sgld.records.accuracy_tuning import AccuracyGrid, Batches
from dpatlas_workflow.papers.dp_sgld.records.counterexample import Counterexample
from dpatlas_workflow.papers.dp_sgld.records.finetune import FinetuneArms, FinetuneSpec
from dpatlas_workflow.papers.dp_sgld.records.finetune_tuning import FinetuneRates
from dpatlas_workflow.papers.dp_sgld.records.long_training import LongArms, LongTrainingSpec
from dpatlas_workflow.papers.dp_sgld.records.long_training_tuning import LongGrid
from dpatlas_workflow.papers.dp_sgld.records.privacy_loss import PrivacyLoss
from dpatlas_workflow.papers.dp_sgld.records.protocol import ProtocolSpec, Reading, Shared
from dpatlas_workflow.papers.dp_sgld.records.protocol_tuning import Clips
from dpatlas_workflow.papers.dp_sgld.records.utility import Utility

KEY = "dp_sgld"

OwnSeed = Annotated[
    Seed | None,
    setting("Base of the named seeds of these runs, in the place of the config's; null for that."),
]


class Regression(Inputs, Repeated):
    """Softmax regression on private records."""

    data: PrivateSplit
    backbone: str | None = setting("Name under pretrain.backbones; null with raw features.")
    tuning_runs: TuningRuns

    @model_validator(mode="after")
    def _has_a_backbone_for_its_features(self) -> "Regression":
        if (self.features == "raw") != (self.backbone is None):
            found = self.backbone or "none"
            raise InputError("backbone", found, "null with raw features, else a backbone")
        return self


class ReadingChoice(Reading):
    """A reading of the paper's settings, the same for all methods."""

    lam: Regulariser | None = Field(alias="lambda", default=None)  # type: ignore[assignment]
    beta_over_lambda: float = setting(
        "beta / lambda, instead of lambda; with it, features of any norm have the same problem.",
        gt=1,
        default=None,
    )

    @model_validator(mode="after")
    def _has_one_regulariser(self) -> "ReadingChoice":
        if len(self.model_fields_set & {"lam", "beta_over_lambda"}) != 1:
            found = f"{self.name} with lambda {self.lam} and {self.beta_over_lambda}"
            raise InputError("lambda", found, "lambda or beta_over_lambda")
        return self

    def fields(self, feature_norm: float) -> dict[str, Any]:
        """As a spec has it; beta = feature_norm^2 / 2 + lambda."""
        fields = self.part(Reading)
        if self.beta_over_lambda is not None:
            fields["lambda"] = feature_norm**2 / 2 / (self.beta_over_lambda - 1)
        return fields


class ProtocolSet(Regression):
    """A data set with its features."""

    epochs: Epochs = optional()


class ProtocolSettings(Shared, Clips):
    """Tables 1 and 2 as the paper ran them."""

    seed: OwnSeed
    readings: list[ReadingChoice] = setting("Readings of the paper's settings.", min_length=1)
    sets: list[ProtocolSet] = setting("Data sets with their features.", min_length=1)

    _names = names_once("readings")

    @model_validator(mode="after")
    def _has_whole_batches(self) -> "ProtocolSettings":
        for i, part in enumerate(self.sets):
            if self.batch > part.data.n_train:
                raise InputError(f"sets.{i}.data.n_train", part.data.n_train, f">= {self.batch}")
        return self


class AccuracySet(Regression):
    """A data set with its features."""

    epsilons: PositiveList
    batches: Batches
    grid: AccuracyGrid = optional()

    @model_validator(mode="after")
    def _has_whole_batches(self) -> "AccuracySet":
        if max(self.batches) > self.data.n_train:
            allowed = f"at most n_train = {self.data.n_train}"
            raise InputError("batches", max(self.batches), allowed)
        return self


class AccuracySettings(Model):
    """Methods that are tuned each for itself, at equal epsilon."""

    seed: OwnSeed
    schedule: LangevinSchedule
    radius: Radius
    grid: AccuracyGrid
    sets: list[AccuracySet] = setting("Data sets with their features.", min_length=1)


class FinetuneSettings(FinetuneArms, FinetuneRates, Repeated):
    """Fine-tuning of a backbone on a data set."""

    data: PrivateSplit
    backbone: PublicBackbone
    accountant: Accountant
    tuning_runs: TuningRuns

    _batch = batch_of_at_most("n_train", lambda model: model.data.n_train)

    @model_validator(mode="after")
    def _has_an_accountant_for_its_batches(self) -> "FinetuneSettings":
        if self.relation == "replace_one" and self.accountant == "rdp":
            found = "rdp for Poisson batches under replace_one"
            raise InputError("accountant", found, "pld or auto; rdp with add_remove")
        return self


class LongTrainingRuns(LongArms, LongGrid, Regression):
    """Accuracy against the number of full-batch steps."""

    accountant: Accountant = setting("Accountant of DP-SGD; auto takes the tightest that applies.")


class UtilityRuns(Utility, Repeated):
    """The utility bounds beside measured excess risk on a problem with known optimum."""


class DpSgldSettings(Model):
    """Langevin SGD against DP-SGD on frozen features of public backbones."""

    enabled: bool = setting("Whether this paper is part of the run.")
    delta: Delta
    max_grad_norm: MaxGradNorm
    feature_norm: FeatureNorm
    protocol: ProtocolSettings
    accuracy: AccuracySettings
    finetune: list[FinetuneSettings] = setting("Table 3, by data set and backbone.", min_length=1)
    long_training: LongTrainingRuns
    privacy_loss: PrivacyLoss
    counterexample: Counterexample
    utility: UtilityRuns


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `protocol`: Tables 1 and 2 as the paper ran them, by data set and kind of features. `accuracy`:
    beside them, every method tuned. `finetune`: Table 3. `long_training`: accuracy against steps.
    `privacy_loss`, `counterexample` and `utility` use no data set.
    """
    block: DpSgldSettings = config.dp_sgld
    without_data = {"privacy_loss": block.privacy_loss, "counterexample": block.counterexample}
    utility = {**block.utility.part(Utility), "delta": block.delta}
    blocks = block.utility.runs, block.utility.runs_per_job
    return {
        **{
            kind: [spec for runs in of_kind for spec in runs.reported]
            for kind, of_kind in _tuned(config).items()
        },
        **{
            kind: [run_spec(config, KEY, kind, {**part.plain(), "delta": block.delta}, kind)]
            for kind, part in without_data.items()
        },
        "utility": run_blocks(config, KEY, "utility", utility, "utility", *blocks),
    }


def tunings(config: General) -> list[Spec]:
    """The specs of all tunings, whether or not their outcome is known."""
    return [runs.tuning for of_kind in _tuned(config).values() for runs in of_kind]


def _tuned(config: General) -> dict[str, list[TunedRuns]]:
    block: DpSgldSettings = config.dp_sgld
    protocol = block.protocol.plain_without("sets", "readings")
    protocol["readings"] = [each.fields(block.feature_norm) for each in block.protocol.readings]
    accuracy = block.accuracy.plain_without("sets")
    long = block.long_training
    return {
        "protocol": [
            _runs(config, ProtocolSpec, f"protocol.sets.{i}", part, protocol)
            for i, part in enumerate(block.protocol.sets)
        ],
        "accuracy": [
            _runs(config, AccuracySpec, f"accuracy.sets.{i}", part, accuracy)
            for i, part in enumerate(block.accuracy.sets)
        ],
        "finetune": [
            _runs(config, FinetuneSpec, f"finetune.{i}", part)
            for i, part in enumerate(block.finetune)
        ],
        "long_training": [_runs(config, LongTrainingSpec, "long_training", long)],
    }


def _runs(
    config: General,
    spec: type[ReportedFields],
    path: str,
    part: Regression | FinetuneSettings,
    shared: Mapping[str, Any] | None = None,
) -> TunedRuns:
    """Specs with private data, named after their data set and features.

    path: of `part` in the block. shared: settings of the whole table, which `part` overrides.
    """
    block: DpSgldSettings = config.dp_sgld
    (kind,) = get_args(spec.model_fields["kind"].annotation)
    settings = {**(shared or {}), **part.plain_without(*Repeated.model_fields)}
    if "batches" in settings:
        settings["grid"] = {**settings["grid"], "batches": settings.pop("batches")}
    fields = {
        **block.plain("delta", "max_grad_norm"),
        **{name: value for name, value in settings.items() if value is not None},
        "data": {**part.data.dealt(), "n_add": 0},
        "backbone": None,
    }
    name = f"{kind.replace('_', '-')}-{part.data.name}"
    if kind == "protocol":
        name += f"-{part.data.n_train}"
    features = None if isinstance(part, FinetuneSettings) else part.features
    if part.backbone is not None:
        check_private(config, f"{KEY}.{path}", part.backbone, part.data, features)
        fields["backbone"] = backbone_spec(config, part.backbone).id
        name += f"-{part.backbone}"
    if features is not None:
        fields["feature_norm"] = block.feature_norm
    if features == "softmax":
        name += "-softmax"
    return tuned_runs(config, KEY, kind, fields, spec, name, part.runs, part.runs_per_job)


SETTINGS = DpSgldSettings
