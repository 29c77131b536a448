"""dp_sgld: which jobs the config asks for, and which of them each figure and table needs."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpatlas.config.backbones import backbone_spec, check_private
from dpatlas.config.common import run_spec
from dpatlas.config.model import AsWritten, Model, Once, optional, setting
from dpatlas.config.root import General
from dpatlas.config.types import (
    Accountant,
    Batch,
    CountList,
    Delta,
    Epsilon,
    MaxGradNorm,
    PositiveList,
    PrivateSplit,
    PublicBackbone,
    Relation,
    TuningRuns,
    Updates,
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
Regulariser = Annotated[float, setting("Weight of the regulariser.", gt=0)]


def batch_of_at_most(records: str, count: Callable[[Any], int]) -> Any:
    """A validator: `batch` is at most `count` of the model, the number of its `records`."""

    def check(model: Any) -> Any:
        if model.batch > count(model):
            raise InputError("batch", model.batch, f"at most {records} = {count(model)}")
        return model

    return model_validator(mode="after")(check)


class Grid(Model):
    """Settings that every arm tries on the validation records; a set may have its own grid."""

    lambda_: PositiveList = Field(alias="lambda")
    epochs: CountList
    steps: CountList
    lr: PositiveList


class Regression(Model):
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


class AccuracySet(Regression):
    """A data set with its features."""

    epsilons: PositiveList
    batch: Batch
    grid: Grid = optional()

    _batch = batch_of_at_most("n_train", lambda model: model.data.n_train)


class Accuracy(Model):
    """Tables 1 and 2."""

    schedule: Literal["constant", "decreasing", "both"] = setting(
        "Step sizes of the Langevin arms; both share the rows of DP-SGD and No DP."
    )
    step_size: float = setting(
        "First step in units of 1 / beta; the privacy theorem needs less than 1, above 0.5 the "
        "utility theorems do not cover it.",
        gt=0,
        lt=1,
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


class FineTuning(Model):
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


class Utility(Model):
    """The utility bounds beside measured excess risk on a problem with known optimum."""

    n: int = setting("Number of generated records.", ge=2, le=10_000_000)
    inputs: int = setting("Dimension of a record.", ge=1, le=10_000)
    batch: Batch
    lambda_: Regulariser = Field(alias="lambda")
    epsilons: PositiveList
    steps: Updates
    runs: int = setting("Runs that every mean is over.", ge=1, le=1000)
    schedules: Schedules

    _batch = batch_of_at_most("n", lambda model: model.n)


class Settings(Model):
    """Langevin SGD against DP-SGD on frozen features of public backbones."""

    enabled: bool = setting("Whether this paper is part of the run.")
    delta: Delta
    runs: int = setting(
        "Reported runs of every arm; intervals need at least 2, verdicts 5 or more.",
        ge=1,
        le=1000,
    )
    max_grad_norm: MaxGradNorm
    feature_norm: FeatureNorm
    accuracy: Accuracy
    finetune: list[FineTuning] = setting("Table 3, by data set and backbone.", min_length=1)
    long_training: LongTraining
    privacy_loss: PrivacyLoss
    counterexample: Counterexample
    utility: Utility


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `accuracy`: one job per data set and kind of features, with every arm of Tables 1 and 2.
    `finetune`: Table 3. `long_training`: accuracy against steps. `privacy_loss`, `counterexample`
    and `utility` use no data set.
    """
    block: Settings = config.dp_sgld
    accuracy = block.accuracy.plain_without("sets")
    without_data = {
        "privacy_loss": block.privacy_loss,
        "counterexample": block.counterexample,
        "utility": block.utility,
    }
    return {
        "accuracy": [
            _trained(config, "accuracy", f"accuracy.sets.{i}", data_set, accuracy)
            for i, data_set in enumerate(block.accuracy.sets)
        ],
        "finetune": [
            _trained(config, "finetune", f"finetune.{i}", data_set)
            for i, data_set in enumerate(block.finetune)
        ],
        "long_training": [_trained(config, "long_training", "long_training", block.long_training)],
        **{
            kind: [run_spec(config, KEY, kind, {**part.plain(), "delta": block.delta}, kind)]
            for kind, part in without_data.items()
        },
    }


def _trained(
    config: General,
    kind: str,
    path: str,
    part: Regression | FineTuning,
    shared: Mapping[str, Any] | None = None,
) -> Spec:
    """A spec with private data, named after its data set and features.

    path: of `part` in the block. shared: settings of the whole table, which `part` overrides.
    """
    block: Settings = config.dp_sgld
    settings = {**(shared or {}), **part.plain()}
    fields = {
        **block.plain("delta", "runs", "max_grad_norm"),
        **{name: value for name, value in settings.items() if value is not None},
        "data": {**part.data.fields(), "n_add": 0},
        "backbone": None,
    }
    name = f"{kind.replace('_', '-')}-{part.data.name}"
    features = None if isinstance(part, FineTuning) else part.features
    if part.backbone is not None:
        check_private(config, f"{KEY}.{path}", part.backbone, part.data, features)
        fields["backbone"] = backbone_spec(config, part.backbone).id
        name += f"-{part.backbone}"
    if features is not None:
        fields["feature_norm"] = block.feature_norm
    if features == "softmax":
        name += "-softmax"
    return run_spec(config, KEY, kind, fields, name)
