"""Specs and records of dp_sgld, a module for each kind; here what several kinds share.

Kinds of private runs have two tables. `arms`, by arm: its settings, what is claimed of one run and
what holds, at the spec's delta. epsilon: the target of its calibration; None without privacy. lr:
the first step size. epochs: passes over the training records, of DP-SGD expected. relation:
neighbours that the guarantee is for. claimed_epsilon: by the paper. ordinary_epsilon: by
composition, for the release of every iterate. hidden_state_epsilon: for the last iterate.
guaranteed_epsilon: the smallest that holds, guaranteed_by. Each is None where nothing is claimed or
no bound applies. max_grad_norm, noise_multiplier: of DP-SGD. weight_decay: of DP-SGD and SGD, times
the weights, added to the gradient. lambda: weight of the regulariser of Langevin SGD. beta,
lipschitz: smoothness and Lipschitz constant of a record's loss there. radius: of the ball that
iterates are projected onto. sigma: the update adds sqrt(2 lr) sigma N(0, 1).

`runs`, by run and arm: accuracy, the share of test records that were classified correctly.

Softmax regressions have `seen`, by run. scaled_down: training records that were longer than the
declared norm, or not finite. mean_eigenvalue: largest eigenvalue of mean x x^T over the training
records; it is private, and nothing is calibrated by it. n_train, n_test: numbers of records of a
run. inputs: dimension of a record. backbone, features: None with raw records; features None where
runs draw records of their own. warnings: about the settings.
"""

from typing import Annotated, Any, Literal

from pydantic import model_validator

from dpatlas.base.facts import DataFields
from dpatlas.base.fields import Accountant, Delta, MaxGradNorm, Model, NoiseSource, Once, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas.errors import InputError

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
StepSize = Annotated[
    float,
    setting(
        "First step in units of 1 / beta; the privacy theorem needs less than 1, above 0.5 the "
        "utility theorems do not cover it.",
        gt=0,
        lt=1,
    ),
]
Radius = Annotated[
    Annotated[float, setting("", gt=0)] | None,
    setting("Radius of the ball that iterates are projected onto; null for the theorem's."),
]
Epochs = Annotated[int, setting("Passes over the records, of every method.", ge=1, le=10_000)]

ARM = (
    "arm method epsilon lr batch epochs steps sampler max_grad_norm noise_multiplier relation "
    "guaranteed_by claimed_epsilon ordinary_epsilon hidden_state_epsilon guaranteed_epsilon"
)
RUNS = "run arm accuracy"


class SgldSpec(SpecFields):
    """Fields of every spec of the paper."""

    key: Literal["dp_sgld"]
    seed: int
    noise_source: NoiseSource


class SgldTrainingSpec(SgldSpec):
    """Fields of specs with private data; backbone: id of its run, None with raw records."""

    data: DataFields
    backbone: str | None
    delta: Delta
    max_grad_norm: MaxGradNorm
    accountant: Accountant = "auto"


class Inputs(Model):
    """What a softmax regression is trained on."""

    features: Literal["penultimate", "softmax", "raw"] = setting(
        "What the regression is trained on: outputs of the backbone, or raw records."
    )
    normalise: bool = setting("Whether every record is scaled to the norm feature_norm.")


class RegressionSpec(SgldTrainingSpec, Inputs):
    """Fields of specs of softmax regression."""

    feature_norm: FeatureNorm
    step_size: StepSize = 0.5
    radius: Radius = None


def regression_record(
    spec: type[RegressionSpec], version: int, arms: str, runs: str = ""
) -> RecordShape:
    """What records of reported regressions hold; arms, runs: further columns of these tables."""
    tables = {
        "seen": "run scaled_down mean_eigenvalue",
        "arms": f"{ARM} lambda beta lipschitz radius sigma {arms}",
        "runs": f"{RUNS} {runs}",
    }
    facts = "n_train n_test inputs classes backbone features warnings"
    return RecordShape(spec, version, facts, tables)


def batch_of_at_most(records: str, count: Any) -> Any:
    """A validator: `batch` is at most `count` of the model, the number of its `records`."""

    def check(model: Any) -> Any:
        if model.batch > count(model):
            raise InputError("batch", model.batch, f"at most {records} = {count(model)}")
        return model

    return model_validator(mode="after")(check)


def names_once(field: str) -> Any:
    """A validator: the parts in the list `field` have different names."""

    def check(model: Any) -> Any:
        names = [part.name for part in getattr(model, field)]
        if len(set(names)) < len(names):
            raise InputError(field, names, "each name once")
        return model

    return model_validator(mode="after")(check)
