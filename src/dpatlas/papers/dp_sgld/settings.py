"""dp_sgld: which jobs the config asks for, and which of them each figure and table needs."""

from collections.abc import Mapping
from typing import Any

from dpatlas.checks.pretrain.settings import backbone_spec, check_private
from dpatlas.config.common import run_spec
from dpatlas.config.sizes import check_records
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "dp_sgld"

# Lists of numbers, which a config may write as whole ones.
REALS = ("epsilons", "lambdas", "lrs", "sigma2s", "etas", "lambda", "lr")
REAL = ("epsilon", "delta", "max_grad_norm", "feature_norm", "lambda", "radius", "step_size")


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `accuracy`: one job per data set and kind of features, every arm of Tables 1 and 2.
    `finetune`: Table 3. `long_training`: accuracy against steps. `privacy_loss`, `counterexample`
    and `utility` train on no data.
    """
    block = config[KEY]
    _check(config)
    accuracy = {name: value for name, value in block["accuracy"].items() if name != "sets"}
    return {
        "accuracy": [
            _trained(config, "accuracy", {**accuracy, **chosen})
            for chosen in block["accuracy"]["sets"]
        ],
        "finetune": [_trained(config, "finetune", chosen) for chosen in block["finetune"]],
        "long_training": [_trained(config, "long_training", block["long_training"])],
        **{
            kind: [
                run_spec(
                    config, KEY, kind, _as_reals({**block[kind], "delta": block["delta"]}), kind
                )
            ]
            for kind in ("privacy_loss", "counterexample", "utility")
        },
    }


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: figures, tables and claims are made of the records alone."""
    return {}


def takes_features(fields: Mapping[str, Any]) -> bool:
    """Whether the job trains on a frozen backbone's features, and reads no image."""
    return fields.get("features") in ("penultimate", "softmax")


def _trained(config: Mapping[str, Any], kind: str, chosen: Mapping[str, Any]) -> Spec:
    """A spec with private data, named after them and the features."""
    block = config[KEY]
    fields = {
        **{name: block[name] for name in ("delta", "runs", "max_grad_norm")},
        **{name: value for name, value in chosen.items() if value is not None},
        "data": {**chosen["data"], "n_add": 0},
        "backbone": None,
    }
    name = f"{kind.replace('_', '-')}-{chosen['data']['name']}"
    if chosen["backbone"] is not None:
        fields["backbone"] = backbone_spec(config, chosen["backbone"]).id
        name += f"-{chosen['backbone']}"
    if kind != "finetune":
        fields["feature_norm"] = block["feature_norm"]
        if chosen["features"] == "softmax":
            name += "-softmax"
    return run_spec(config, KEY, kind, _as_reals(fields), name)


def _as_reals(fields: Mapping[str, Any]) -> dict[str, Any]:
    """1 and 1.0 mean the same run."""
    found = dict(fields)
    for name, value in fields.items():
        if isinstance(value, Mapping) and name == "grid":
            found[name] = _as_reals(value)
        elif name in REALS and isinstance(value, list):
            found[name] = [float(number) for number in value]
        elif name in REAL and isinstance(value, int):
            found[name] = float(value)
    return found


def _check(config: Mapping[str, Any]) -> None:
    block = config[KEY]
    trained = {
        **{f"accuracy.sets.{i}": each for i, each in enumerate(block["accuracy"]["sets"])},
        **{f"finetune.{i}": each for i, each in enumerate(block["finetune"])},
        "long_training": block["long_training"],
    }
    for place, chosen in trained.items():
        check_records(f"{KEY}.{place}.data", chosen["data"])
        n = chosen["data"]["n_train"]
        if chosen.get("batch", 1) > n:
            allowed = f"at most n_train = {n}"
            raise InputError(f"{KEY}.{place}.batch", chosen["batch"], allowed)
        _check_features(config, f"{KEY}.{place}", chosen)
    for kind in ("privacy_loss", "utility"):
        if block[kind]["batch"] > block[kind]["n"]:
            allowed = f"at most n = {block[kind]['n']}"
            raise InputError(f"{KEY}.{kind}.batch", block[kind]["batch"], allowed)
    for i, chosen in enumerate(block["finetune"]):
        if chosen["relation"] == "replace_one" and chosen["accountant"] == "rdp":
            raise InputError(
                f"{KEY}.finetune.{i}.accountant",
                "rdp for Poisson batches under replace_one",
                "pld or auto; rdp with add_remove",
            )


def _check_features(config: Mapping[str, Any], place: str, chosen: Mapping[str, Any]) -> None:
    raw, backbone = chosen.get("features") == "raw", chosen["backbone"]
    if raw != (backbone is None):
        found = "none" if backbone is None else backbone
        raise InputError(f"{place}.backbone", found, "null with raw features, else a backbone")
    if backbone is None:
        return
    check_private(config, place, chosen)
