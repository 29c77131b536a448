"""pretrain: public backbones, trained here or imported, and how well their features transfer."""

from typing import Literal

from pydantic import model_validator

from dpatlas.base.fields import Once, setting
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas_workflow.checks.pretrain.records.transfer import Splits
from dpatlas_workflow.config.backbones import KEY, Backbones, backbone_spec, check_named
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.types import DataSet


class TransferData(DataSet):
    """Private records, split at random into training and test records."""

    name: Literal["digits", "cifar10", "cifar10-grey", "cifar10-blurred"] = setting(
        "Name of the data set."
    )
    n_train: int = setting("Number of records, before the split.", ge=10, le=60_000)


class Transfer(Splits):
    """How well the features transfer to private data; shown to the reader, used for no choice."""

    data: TransferData
    backbones: Once[str] = setting("Trained backbones to measure.", min_length=1)

    @model_validator(mode="after")
    def _leaves_neighbours(self) -> "Transfer":
        most = self.data.n_train - self.neighbours
        if self.n_test > most:
            raise InputError("n_test", self.n_test, f"at most data.n_train - neighbours = {most}")
        return self


class PretrainSettings(Backbones):
    """Public backbones, trained once on generated or declared public images, or imported."""

    transfer: Transfer

    @model_validator(mode="after")
    def _measured_backbones_are_trained(self) -> "PretrainSettings":
        measured = self.transfer.backbones
        check_named("transfer.backbones", measured, f"{KEY}.train", self.train)
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """Specs by group: one training or import per backbone, one measurement of those it names."""
    block: PretrainSettings = config.pretrain
    specs = [backbone_spec(config, name) for name in block.train]
    return {
        "backbones": [spec for spec in specs if spec.fields["kind"] == "backbone"],
        "imported": [spec for spec in specs if spec.fields["kind"] == "imported"],
        "transfer": [_transfer(config)],
    }


def _transfer(config: General) -> Spec:
    block: Transfer = config.pretrain.transfer
    fields = {
        "key": KEY,
        "kind": "transfer",
        "seed": config.seed,
        **block.part(Splits),
        "data": {**block.data.fields(), "n_add": 0},
        "backbones": [backbone_spec(config, name).id for name in block.backbones],
    }
    return Spec.of(fields, "transfer")


SETTINGS = PretrainSettings
