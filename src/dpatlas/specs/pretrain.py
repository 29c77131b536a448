"""pretrain: public backbones on generated images, and what their features are worth."""

from collections.abc import Mapping
from typing import Any

from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "pretrain"
MODULE = "dpatlas.experiments.pretrain"

FIGURES = {"pretrain_samples": ("backbones", "transfer")}
TABLES: dict[str, tuple[str, ...]] = {}


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """Specs by group: one training per backbone, one measurement of all of them."""
    return {
        "backbones": [backbone_spec(config, name) for name in config[KEY]["backbones"]],
        "transfer": [_transfer(config)],
    }


def backbone_spec(config: Mapping[str, Any], name: str) -> Spec:
    """The training of the backbone that the config calls `name`.

    Raises InputError for a name that the config does not have.
    """
    block = config[KEY]
    if name not in block["backbones"]:
        raise InputError("backbone", repr(name), "one of " + ", ".join(block["backbones"]))
    chosen = block["backbones"][name]
    fields = {
        "key": KEY,
        "kind": "backbone",
        "seed": config["seed"],
        "data": {"name": chosen["source"], "n_train": block["n_train"], "n_test": block["n_test"]},
        "model": chosen["model"],
        "options": chosen["options"],
        **{name: block[name] for name in ("epochs", "batch")},
        **{name: float(block[name]) for name in ("lr", "weight_decay", "label_smoothing")},
    }
    return Spec.of(fields, name)


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: the figure is made of the records alone."""
    return {}


def device(spec: Spec, chosen: str) -> str:
    """Training gains from a GPU, the measurement is scikit-learn's."""
    return chosen if spec.fields["kind"] == "backbone" else "cpu"


def records_in(data: Mapping[str, Any]) -> tuple[int, int, int]:
    """Training records, records to add, and inputs of a data block."""
    return data["n_train"], 0, 64


def memory_mb(spec: Spec) -> int:
    """Peak memory of a job in MB: interpreter and torch, images, a batch's activations."""
    return round(900 + 12 * 64 * spec.fields["data"]["n_train"] / 2**20)


def _transfer(config: Mapping[str, Any]) -> Spec:
    block = config[KEY]
    fields = {
        "key": KEY,
        "kind": "transfer",
        "seed": config["seed"],
        "data": {"name": "digits", "classes": list(range(10)), "n_train": 1797, "n_add": 0},
        "backbones": [backbone_spec(config, name).id for name in block["backbones"]],
        **{name: block["transfer"][name] for name in ("n_test", "splits", "neighbours")},
    }
    return Spec.of(fields, "transfer")
