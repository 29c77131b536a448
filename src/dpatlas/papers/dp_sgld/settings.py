"""dp_sgld: which jobs the config asks for, and which of them each figure and table needs."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpatlas.config.backbones import backbone_spec, check_private
from dpatlas.config.common import run_blocks, run_spec
from dpatlas.config.root import General
from dpatlas.config.tuned import TunedRuns, tuned_runs
from dpatlas.config.types import PrivateSplit, PublicBackbone, Repeated
from dpatlas.core.fields import (
    Accountant,
    AsWritten,
    Batch,
    CountList,
    Delta,
    Epsilon,
    MaxGradNorm,
    Model,
    Once,
    PositiveList,
    Relation,
    Seed,
    TuningRuns,
    Updates,
    optional,
    setting,
)
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "dp_sgld"

Schedule = Literal["constant", "decreasing"]
Schedules = Annotated[Once[Schedule], setting("Schedules of step sizes.", min_length=1)]
FeatureNorm = Annotated[
    float,
    setting(
        "Public bound R on the norm of a record; longer records are scaled down to it and counted.",
        gt=0,
    ),
]
OwnSeed = Annotated[
    Seed | None,
    setting("Base of the named seeds of these runs, in the place of the config's; null for that."),
]
Regulariser = Annotated[float, setting("Weight of the regulariser.", gt=0)]
StepSize = Annotated[
    float,
    setting(
        "First step in units of 1 / beta; the privacy theorem needs less than 1, above 0.5 the "
        "utility theorems do not cover it.",
        gt=0,
        lt=1,
    ),
]


def batch_of_at_most(records: str, count: Callable[[Any], int]) -> Any:
    """A validator: `batch` is at most `count` of the model, the number of its `records`."""

    def check(model: Any) -> Any:
        if model.batch > count(model):
            raise InputError("batch", model.batch, f"at most {records} = {count(model)}")
        return model

    return model_validator(mode="after")(check)


class Grid(Model):
    """Settings that every arm tries on records of no run; a set may have its own grid."""

    epochs: CountList = setting("Passes over the records of mini-batches.")
    steps: CountList = setting("Steps of full batches.")
    lambda_: PositiveList = Field(alias="lambda")
    step_sizes: Once[StepSize] = setting(
        "Steps of Langevin SGD in units of 1 / beta, below 1.", min_length=1
    )
    weight_decays: Once[Annotated[float, Field(ge=0)]] = setting(
        "L2 terms of DP-SGD and SGD, tried where batch, rate and clip bound are best without one.",
        min_length=1,
    )
    lr: PositiveList
    max_grad_norms: PositiveList = setting("Clip bounds of DP-SGD.")


class Regression(Repeated):
    """Softmax regression on private records."""

    data: PrivateSplit
    features: Literal["penultimate", "softmax", "raw"] = setting(
        "What the regression is trained on: outputs of the backbone, or raw records."
    )
    backbone: str | None = setting("Name under pretrain.backbones; null with raw features.")
    normalise: bool = setting("Whether every record is scaled to the norm feature_norm.")
    tuning_runs: TuningRuns

    @model_validator(mode="after")
    def _has_a_backbone_for_its_features(self) -> "Regression":
        if (self.features == "raw") != (self.backbone is None):
            found = self.backbone or "none"
            raise InputError("backbone", found, "null with raw features, else a backbone")
        return self


class Reading(Model):
    """A reading of the paper's settings, the same for all methods."""

    name: str = setting("Name in tables and claims.", pattern="^[a-z0-9 ]{1,30}$")
    step_size: StepSize
    lambda_: Regulariser | None = Field(alias="lambda", default=None)
    beta_over_lambda: float = setting(
        "beta / lambda, instead of lambda; with it, features of any norm have the same problem.",
        gt=1,
        default=None,
    )
    schedules: Schedules
    without_l2: bool = setting("Whether DP-SGD is run without the L2 term as well.")

    @model_validator(mode="after")
    def _has_one_regulariser(self) -> "Reading":
        if len(self.model_fields_set & {"lambda_", "beta_over_lambda"}) != 1:
            found = f"{self.name} with lambda {self.lambda_} and {self.beta_over_lambda}"
            raise InputError("lambda", found, "lambda or beta_over_lambda")
        return self

    def fields(self, feature_norm: float) -> dict[str, Any]:
        """As a spec has it; beta = feature_norm^2 / 2 + lambda."""
        fields = self.plain_without("beta_over_lambda")
        if self.beta_over_lambda is not None:
            fields["lambda"] = feature_norm**2 / 2 / (self.beta_over_lambda - 1)
        return fields


Epochs = Annotated[int, setting("Passes over the records, of every method.", ge=1, le=10_000)]


class ProtocolSet(Regression):
    """A data set with its features."""

    epochs: Epochs = optional()


class Protocol(Model):
    """Tables 1 and 2 as the paper ran them."""

    seed: OwnSeed
    epsilon: Epsilon
    batch: Batch
    epochs: Epochs
    clips: PositiveList = setting("Clip bounds that DP-SGD tries.")
    readings: list[Reading] = setting("Readings of the paper's settings.", min_length=1)
    sets: list[ProtocolSet] = setting("Data sets with their features.", min_length=1)

    @model_validator(mode="after")
    def _has_whole_batches(self) -> "Protocol":
        for i, part in enumerate(self.sets):
            if self.batch > part.data.n_train:
                raise InputError(f"sets.{i}.data.n_train", part.data.n_train, f">= {self.batch}")
        return self

    @model_validator(mode="after")
    def _names_each_reading_once(self) -> "Protocol":
        names = [reading.name for reading in self.readings]
        if len(set(names)) < len(names):
            raise InputError("readings", names, "each name once")
        return self


class AccuracySet(Regression):
    """A data set with its features."""

    epsilons: PositiveList
    batches: CountList = setting("Sizes of mini-batches that every method tries.")
    grid: Grid = optional()

    @model_validator(mode="after")
    def _has_whole_batches(self) -> "AccuracySet":
        if max(self.batches) > self.data.n_train:
            allowed = f"at most n_train = {self.data.n_train}"
            raise InputError("batches", max(self.batches), allowed)
        return self


class Accuracy(Model):
    """Methods that are tuned each for itself, at equal epsilon."""

    seed: OwnSeed
    schedule: Literal["constant", "decreasing", "both"] = setting(
        "Step sizes of the Langevin arms; both share the rows of DP-SGD and No DP."
    )
    radius: Annotated[float, Field(gt=0)] | None = setting(
        "Radius of the ball that iterates are projected onto; null for the theorem's."
    )
    grid: Grid
    sets: list[AccuracySet] = setting("Data sets with their features.", min_length=1)


class TrainedParts(Model):
    """What one arm of the fine-tuning trains."""

    name: str = setting("Name in tables.", min_length=1, max_length=40)
    trainable: Once[str] = setting(
        "Parts of the network, by the beginning of their names; head is the new head.",
        min_length=1,
    )


class FineTuning(Repeated):
    """Fine-tuning of a backbone on a data set."""

    data: PrivateSplit
    backbone: PublicBackbone
    epsilons: PositiveList
    relation: Relation
    accountant: Accountant
    batch: Batch
    steps: Updates
    lrs: PositiveList
    tuning_runs: TuningRuns
    unfreeze: list[TrainedParts] = setting("What is trained, the fewest parts first.", min_length=2)

    _batch = batch_of_at_most("n_train", lambda model: model.data.n_train)

    @model_validator(mode="after")
    def _has_an_accountant_for_its_batches(self) -> "FineTuning":
        if self.relation == "replace_one" and self.accountant == "rdp":
            found = "rdp for Poisson batches under replace_one"
            raise InputError("accountant", found, "pld or auto; rdp with add_remove")
        return self


class LongTraining(Regression):
    """Accuracy against the number of full-batch steps."""

    epsilon: Epsilon
    accountant: Accountant = setting("Accountant of DP-SGD; auto takes the tightest that applies.")
    steps: CountList
    lambdas: PositiveList
    lrs: PositiveList


class PrivacyLoss(Model):
    """Epsilon against steps by every accounting; nothing is trained."""

    n: int = setting("Number of records.", ge=2, le=100_000_000)
    classes: int = setting("Number of classes; it sets the radius.", ge=2, le=100_000)
    feature_norm: FeatureNorm = setting("Public bound R on the norm of a record.")
    batch: Batch
    epochs: int = setting("Length of the run.", ge=1, le=10_000)
    lambda_: Regulariser = Field(alias="lambda")
    epsilon: Epsilon
    schedules: Schedules

    _batch = batch_of_at_most("n", lambda model: model.n)


class Counterexample(Model):
    """The exact one-dimensional law against the claim."""

    n: int = setting("Number of records.", ge=2, le=100_000)
    radius: float = setting("Radius of the interval that iterates are projected onto.", gt=0)
    epsilon: Epsilon
    ratios: Once[Annotated[float, Field(ge=1), AsWritten]] = setting(
        "n / m, records over batch.", min_length=1
    )
    sigma2s: PositiveList
    steps: CountList
    alphas: Once[Annotated[float, Field(gt=1), AsWritten]] = setting("Renyi orders.", min_length=1)
    etas: Once[Annotated[float, Field(gt=0, lt=1)]] = setting(
        "Step sizes; beta is 1 and the theorem needs less than 1 / beta.", min_length=1
    )


class Utility(Repeated):
    """The utility bounds beside measured excess risk on a problem with known optimum."""

    n: int = setting("Number of generated records.", ge=2, le=10_000_000)
    inputs: int = setting("Dimension of a record.", ge=1, le=10_000)
    batch: Batch
    lambda_: Regulariser = Field(alias="lambda")
    epsilons: PositiveList
    steps: Updates
    schedules: Schedules

    _batch = batch_of_at_most("n", lambda model: model.n)


class Settings(Model):
    """Langevin SGD against DP-SGD on frozen features of public backbones."""

    enabled: bool = setting("Whether this paper is part of the run.")
    delta: Delta
    max_grad_norm: MaxGradNorm
    feature_norm: FeatureNorm
    protocol: Protocol
    accuracy: Accuracy
    finetune: list[FineTuning] = setting("Table 3, by data set and backbone.", min_length=1)
    long_training: LongTraining
    privacy_loss: PrivacyLoss
    counterexample: Counterexample
    utility: Utility


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `protocol`: Tables 1 and 2 as the paper ran them, by data set and kind of features. `accuracy`:
    beside them, every method tuned. `finetune`: Table 3. `long_training`: accuracy against steps.
    `privacy_loss`, `counterexample` and `utility` use no data set.
    """
    block: Settings = config.dp_sgld
    without_data = {"privacy_loss": block.privacy_loss, "counterexample": block.counterexample}
    utility = {**block.utility.plain_without("runs", "runs_per_job"), "delta": block.delta}
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
    """Reported runs with their tunings, by kind."""
    block: Settings = config.dp_sgld
    protocol = block.protocol.plain_without("sets", "readings")
    protocol["readings"] = [each.fields(block.feature_norm) for each in block.protocol.readings]
    accuracy = block.accuracy.plain_without("sets")
    return {
        "protocol": [
            _runs(config, "protocol", f"protocol.sets.{i}", part, ("clips",), protocol)
            for i, part in enumerate(block.protocol.sets)
        ],
        "accuracy": [
            _runs(config, "accuracy", f"accuracy.sets.{i}", part, ("grid",), accuracy)
            for i, part in enumerate(block.accuracy.sets)
        ],
        "finetune": [
            _runs(config, "finetune", f"finetune.{i}", part, ("lrs",))
            for i, part in enumerate(block.finetune)
        ],
        "long_training": [
            _runs(config, "long_training", "long_training", block.long_training, ("lambdas", "lrs"))
        ],
    }


def _runs(
    config: General,
    kind: str,
    path: str,
    part: Regression | FineTuning,
    grid: tuple[str, ...],
    shared: Mapping[str, Any] | None = None,
) -> TunedRuns:
    """Specs with private data, named after their data set and features.

    path: of `part` in the block. grid: fields that the tuning alone has, beside tuning_runs.
    shared: settings of the whole table, which `part` overrides.
    """
    block: Settings = config.dp_sgld
    settings = {**(shared or {}), **part.plain_without("runs", "runs_per_job")}
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
    features = None if isinstance(part, FineTuning) else part.features
    if part.backbone is not None:
        check_private(config, f"{KEY}.{path}", part.backbone, part.data, features)
        fields["backbone"] = backbone_spec(config, part.backbone).id
        name += f"-{part.backbone}"
    if features is not None:
        fields["feature_norm"] = block.feature_norm
    if features == "softmax":
        name += "-softmax"
    of_tuning = ("tuning_runs", *grid)
    return tuned_runs(config, KEY, kind, fields, of_tuning, name, part.runs, part.runs_per_job)
