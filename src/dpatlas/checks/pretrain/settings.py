"""pretrain: public backbones, trained here or imported, and what their features are worth."""

from collections.abc import Mapping
from typing import Any

from dpatlas.config.own import check_backbone
from dpatlas.config.sizes import check_records
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "pretrain"
# What the block sets for all backbones and each backbone may set for itself.
SIZES = ("n_train", "n_test")
COUNTS = ("epochs", "batch")
RATES = ("lr", "weight_decay", "label_smoothing")
# Sources that stand for weights which others trained and published, and networks that have them.
IMPORTED = {
    "imagenet": (
        "imagenet-resnet18",
        "imagenet-resnet50",
        "imagenet-mobilenet-v3",
        "imagenet-deit-tiny",
        "imagenet-alexnet",
    ),
    "moco": ("moco-v2-resnet50", "moco-v3-resnet50"),
}
OF_IMPORTED = ("source", "model", "options", "image_shape")
# What says nothing about an imported network: MoCo's weights lie in a file that the config names.
OF_FILE = ("file", "sha256")
FROM_FILES = ("moco",)


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """Specs by group: one training or import per backbone, one measurement of those it names."""
    _check_names(config[KEY])
    specs = [backbone_spec(config, name) for name in config[KEY]["train"]]
    return {
        "backbones": [spec for spec in specs if spec.fields["kind"] == "backbone"],
        "imported": [spec for spec in specs if spec.fields["kind"] == "imported"],
        "transfer": [_transfer(config)],
    }


def backbone_spec(config: Mapping[str, Any], name: str) -> Spec:
    """The training, or the import, of the backbone that the config calls `name`.

    Raises InputError for a name that the config does not define or train, and for settings that
    say nothing about this backbone.
    """
    block = config[KEY]
    if name not in block["backbones"]:
        raise InputError("backbone", repr(name), "one of " + ", ".join(block["backbones"]))
    if name not in block["train"]:
        raise InputError("backbone", repr(name), f"one of pretrain.train, {block['train']}")
    own = block["backbones"][name]
    if own["source"] in IMPORTED:
        return _imported(name, own)
    _check_trained(name, own)
    chosen = {**{key: block[key] for key in (*SIZES, *COUNTS, *RATES)}, **own}
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


def check_private(config: Mapping[str, Any], place: str, chosen: Mapping[str, Any]) -> None:
    """InputError, naming the config key `place`, for a backbone that cannot serve private records.

    chosen: `data` and `backbone` of a place in the config, and `features` if it names any. A
    backbone has to be trained, on none of the private records: of one data set, on other classes.
    """
    name, data = chosen["backbone"], chosen["data"]
    if not config[KEY]["enabled"]:
        raise InputError("pretrain.enabled", "false", f"true: {place} takes backbone {name}")
    if name not in config[KEY]["train"]:
        known = ", ".join(config[KEY]["train"])
        raise InputError(f"{place}.backbone", repr(name), f"one of pretrain.train: {known}")
    own = config[KEY]["backbones"][name]
    if "own" in data:
        check_backbone(place, name, own, data)
    if own["source"] in FROM_FILES and chosen.get("features") == "softmax":
        found = f"softmax of {name}, whose weights have no layer for classes"
        raise InputError(f"{place}.features", found, "penultimate")
    if own["source"] != data["name"]:
        return
    shared = [each for each in data["classes"] if each in own.get("classes", data["classes"])]
    if shared:
        found = f"{name}, trained on {', '.join(map(str, shared))} of {data['name']}"
        raise InputError(
            f"{place}.backbone", found, "one that was trained on none of the private classes"
        )


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: the figure is made of the records alone."""
    return {}


def weights_file(config: Mapping[str, Any], spec: Spec) -> str:
    """The file that the config names for an imported backbone; empty if its address is known."""
    return config[KEY]["backbones"][spec.slug].get("file", "")


def _imported(name: str, own: Mapping[str, Any]) -> Spec:
    """Where a file lies takes no part in the spec: ids are the same on every machine."""
    place, source = f"{KEY}.backbones.{name}", own["source"]
    settings = OF_IMPORTED + (OF_FILE if source in FROM_FILES else ())
    for key in own:
        if key not in settings:
            allowed = f"{', '.join(settings)}: weights of {source} are not trained here"
            raise InputError(f"{place}.{key}", own[key], allowed)
    if own["model"] not in IMPORTED[source]:
        raise InputError(f"{place}.model", own["model"], ", ".join(IMPORTED[source]))
    if "image_shape" not in own:
        allowed = "channels, height and width of the records that it will see"
        raise InputError(f"{place}.image_shape", "nothing", allowed)
    if source in FROM_FILES and "file" not in own:
        allowed = f"path of a checkpoint of {source}: no address of it is known here"
        raise InputError(f"{place}.file", "nothing", allowed)
    fields = {key: own[key] for key in OF_IMPORTED}
    if own.get("sha256"):
        fields["sha256"] = own["sha256"].lower()
    return Spec.of({"key": KEY, "kind": "imported", **fields}, name)


def _check_trained(name: str, own: Mapping[str, Any]) -> None:
    place = f"{KEY}.backbones.{name}"
    for source, models in IMPORTED.items():
        if own["model"] in models:
            raise InputError(f"{place}.source", own["source"], f"{source} for {own['model']}")
    if "image_shape" in own:
        allowed = "nothing: a backbone that is trained here takes its images' shape"
        raise InputError(f"{place}.image_shape", own["image_shape"], allowed)
    for key in OF_FILE:
        if key in own:
            allowed = "nothing: a backbone that is trained here reads no weights"
            raise InputError(f"{place}.{key}", own[key], allowed)


def _check_names(block: Mapping[str, Any]) -> None:
    """Backbones that are trained are defined, those that are measured are trained."""
    for place, named, source, known in (
        ("train", block["train"], "backbones", block["backbones"]),
        ("transfer.backbones", block["transfer"]["backbones"], "train", block["train"]),
    ):
        for i, name in enumerate(named):
            if name not in known:
                allowed = f"one of {KEY}.{source}: {', '.join(known)}"
                raise InputError(f"{KEY}.{place}.{i}", repr(name), allowed)


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
