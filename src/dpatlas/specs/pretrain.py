"""pretrain: public backbones, and what their features are worth."""

from collections.abc import Mapping
from typing import Any

from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.specs.sizes import array_mb, check_records

KEY = "pretrain"
MODULE = "dpatlas.experiments.pretrain"
# What the block sets for all backbones and each backbone may set for itself.
SIZES = ("n_train", "n_test")
COUNTS = ("epochs", "batch")
RATES = ("lr", "weight_decay", "label_smoothing")

FIGURES = {"pretrain_samples": ("backbones", "transfer")}
TABLES: dict[str, tuple[str, ...]] = {}
# Where a paper shows what each of them reproduces.
PLACES = {
    "pretrain_samples": "none: public data",
}


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """Specs by group: one training per backbone, one measurement of those that it names."""
    return {
        "backbones": [backbone_spec(config, name) for name in config[KEY]["train"]],
        "transfer": [_transfer(config)],
    }


def backbone_spec(config: Mapping[str, Any], name: str) -> Spec:
    """The training of the backbone that the config calls `name`.

    Raises InputError for a name that the config does not define or train.
    """
    block = config[KEY]
    if name not in block["backbones"]:
        raise InputError("backbone", repr(name), "one of " + ", ".join(block["backbones"]))
    if name not in block["train"]:
        raise InputError("backbone", repr(name), f"one of pretrain.train, {block['train']}")
    chosen = {**{key: block[key] for key in (*SIZES, *COUNTS, *RATES)}, **block["backbones"][name]}
    data = {"name": chosen["source"], **{size: chosen[size] for size in SIZES}, "n_add": 0}
    if "classes" in chosen:
        data["classes"] = chosen["classes"]
    fields = {
        "key": KEY,
        "kind": "backbone",
        "seed": config["seed"],
        "data": data,
        "model": chosen["model"],
        "options": chosen["options"],
        **{count: chosen[count] for count in COUNTS},
        **{rate: float(chosen[rate]) for rate in RATES},
    }
    if "declared_public" in chosen:
        fields["declared_public"] = chosen["declared_public"]
    return Spec.of(fields, name)


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: the figure is made of the records alone."""
    return {}


def device(spec: Spec, chosen: str) -> str:
    """Training gains from a GPU, the measurement is scikit-learn's."""
    return chosen if spec.fields["kind"] == "backbone" else "cpu"


def memory_mb(spec: Spec) -> int:
    """Peak memory of a job in MB: interpreter and torch, images, a batch's activations."""
    return round(1100 + 3 * array_mb(spec.fields["data"]))


def _transfer(config: Mapping[str, Any]) -> Spec:
    check_records(f"{KEY}.transfer.data", config[KEY]["transfer"]["data"])
    block = config[KEY]["transfer"]
    fields = {
        "key": KEY,
        "kind": "transfer",
        "seed": config["seed"],
        "data": {**block["data"], "n_add": 0},
        "backbones": [backbone_spec(config, name).id for name in block["backbones"]],
        **{name: block[name] for name in ("n_test", "splits", "neighbours")},
    }
    return Spec.of(fields, "transfer")
