"""Small data, a small backbone and small specs of dp_sgld's trained kinds."""

import json

import numpy as np
from small_jobs import arguments, labelled

from dpatlas.core.specs import Spec
from dpatlas.data import prepared
from dpatlas.jobs.features import features as take_features
from dpatlas.jobs.job import checked_fields
from dpatlas.jobs.run import kind_of, main
from dpatlas.models import backbone
from dpatlas.models.build import build

CLASSES = ["a", "b", "c"]
SCALE = {"multiply": 1, "subtract": 0, "divide": 16, "norm": None}
BACKBONE = "small-backbone"
COMMON = {
    "key": "dp_sgld",
    "seed": 0,
    "noise_source": "keyed",
    "data": {"name": "small"},
    "backbone": None,
    "delta": 1e-5,
    "runs": 2,
    "tuning_runs": 1,
    "max_grad_norm": 1.0,
}
REGRESSION = {"features": "raw", "normalise": True, "feature_norm": 1.0}
FIELDS = {
    "accuracy": {
        **COMMON,
        **REGRESSION,
        "kind": "accuracy",
        "schedule": "both",
        "epsilons": [8.0],
        "batch": 6,
        "grid": {"lambda": [0.03, 0.1], "epochs": [2], "steps": [3], "lr": [0.5, 2.0]},
    },
    "finetune": {
        **COMMON,
        "kind": "finetune",
        "backbone": BACKBONE,
        "epsilons": [8.0],
        "relation": "add_remove",
        "batch": 6,
        "steps": 3,
        "lrs": [0.1, 1.0],
        "unfreeze": [
            {"name": "head", "trainable": ["head"]},
            {"name": "last block", "trainable": ["linear2", "head"]},
        ],
    },
    "long_training": {
        **COMMON,
        **REGRESSION,
        "kind": "long_training",
        "epsilon": 8.0,
        "steps": [2, 5],
        "lambdas": [0.03, 0.1],
        "lrs": [0.5, 2.0],
    },
}


def spec_of(kind, **changes):
    return Spec.of({**FIELDS[kind], **changes}, "small")


def fields_of(kind, **changes):
    """As a job sees them."""
    spec = spec_of(kind, **changes)
    return checked_fields(kind_of(spec)[1].spec, spec)


def save_data(folder, scale=SCALE, **poison):
    """24 training, 9 validation and 12 test records of 16 numbers; the class shows clearly.

    poison: arrays of other values from the first record on.
    """
    arrays = labelled({"train": 24, "add": 0, "test": 12, "validation": 9}, margin=4)
    for name, value in poison.items():
        arrays[name][: np.size(value)] = value
    facts = {"name": "small", "classes": CLASSES, "image_shape": [1, 4, 4], "preprocessing": scale}
    prepared.save(folder, arrays, facts)
    return folder / "manifest.json"


def save_backbone(
    folder, spec_id=BACKBONE, scale=SCALE, image_shape=(1, 4, 4), sha256=None, seed=0
):
    """sha256: of the images that it is said to be trained on."""
    options = {"widths": [8, 6]}
    network = build("mlp", image_shape, 3, key="pretrain", run=0, base_seed=seed, **options)
    backbone.save(
        folder,
        network,
        architecture="mlp",
        options=options,
        image_shape=image_shape,
        classes=CLASSES,
        training={
            "spec_id": spec_id,
            "data": {"name": "other", "sha256": sha256, "preprocessing": scale},
        },
    )
    return folder


def save_features(manifest, backbone, folder):
    """What the backbone shows of the data."""
    take_features(manifest, backbone, folder, "cpu")
    return folder


def run(spec, manifest, folder, backbones=(), features=None):
    """The record's bytes; features are taken first if the spec wants them and none are given."""
    frozen = spec.fields.get("features") in ("penultimate", "softmax")
    if frozen and len(backbones) == 1 and features is None:
        features = save_features(manifest, backbones[0], folder / "features")
    given = [] if features is None else ["--features", str(features)]
    main([*arguments(spec, manifest, folder, backbones), *given])
    return (folder / "record.json").read_bytes()


def metrics_of(*arguments):
    return json.loads(run(*arguments))["metrics"]
