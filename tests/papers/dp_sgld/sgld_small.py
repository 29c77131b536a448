"""Small data, a small backbone and small specs of dp_sgld's trained kinds."""

import json

import numpy as np
import yaml
from small_jobs import arguments, labelled

from dpatlas.base.records import checked_fields
from dpatlas.base.specs import Spec
from dpatlas.data import prepared
from dpatlas.models import backbone
from dpatlas.models.build import build
from dpatlas_workflow.papers.dp_sgld.jobs import accuracy, finetune, protocol
from dpatlas_workflow.run.command import kind_of, main
from dpatlas_workflow.run.features import features as take_features

CLASSES = ["a", "b", "c"]
SCALE = {"multiply": 1, "subtract": 0, "divide": 16, "norm": None}
BACKBONE = "small-backbone"
COMMON, GRID, PROTOCOL, FINETUNE = yaml.safe_load("""
- {key: dp_sgld, seed: 0, noise_source: keyed, data: {name: small}, backbone: null, delta: 1.0e-5,
   max_grad_norm: 1.0}
- {batches: [6], epochs: [2], steps: [3], lambda: [0.03, 0.1], step_sizes: [0.5],
   weight_decays: [0.0, 0.03], lr: [0.5, 2.0], max_grad_norms: [1.0]}
- {epsilon: 8.0, batch: 6, epochs: 2, readings: [
   {name: paper, step_size: 0.5, lambda: 0.03, without_l2: true, schedules: [constant, decreasing]},
   {name: code, step_size: 0.99, lambda: 0.03, without_l2: false, schedules: [constant]}]}
- {backbone: small-backbone, epsilons: [8.0], relation: add_remove, batch: 6, steps: 3, unfreeze: [
    {name: head, trainable: [head]}, {name: last block, trainable: [linear2, head]}]}
""")
REGRESSION = {**COMMON, "features": "raw", "normalise": True, "feature_norm": 1.0}
ACCURACY = {**REGRESSION, "schedule": "both", "epsilons": [8.0]}
PROTOCOL, FINETUNE = {**REGRESSION, **PROTOCOL}, {**COMMON, **FINETUNE}
LONG = {**REGRESSION, "epsilon": 8.0, "steps": [2, 5]}
# What the specs of each kind share with those of its tuning, and what the latter tries.
TUNED = {
    "protocol": (PROTOCOL, {"clips": [0.5, 1.0]}),
    "accuracy": (ACCURACY, {"grid": GRID}),
    "finetune": (FINETUNE, {"lrs": [0.1, 1.0]}),
    "long_training": (LONG, {"lambdas": [0.03, 0.1], "lrs": [0.5, 2.0]}),
}
FIELDS = {
    f"{kind}_tuning": {**fields, "kind": f"{kind}_tuning", "tuning_runs": 2, **grid}
    for kind, (fields, grid) in TUNED.items()
}


def chosen_of(kind, **changes):
    """Settings of every arm of the kind, by its name: the first that its tuning would try."""
    if kind == "protocol":
        return {
            arm.name: {"max_grad_norm": 1.0} if arm.method == "dp-sgd" else {}
            for arm in protocol.compared(fields_of("protocol_tuning", **changes))
        }
    if kind == "accuracy":
        return {
            arm.name: {"lr": 2.0, "epochs": 2, "batch": 6, "weight_decay": 0.0}
            if arm.schedule is None
            else {
                **{"lambda": 0.03, "step_size": 0.5, "batch": 6},
                "steps" if arm.method in accuracy.FULL_BATCH else "epochs": 3,
            }
            for arm in accuracy.compared(fields_of("accuracy_tuning", **changes))
        }
    if kind == "finetune":
        arms = finetune.compared(fields_of("finetune_tuning", **changes))
        return {arm.name: {"lr": 1.0} for arm in arms}
    return long_chosen(changes.get("steps", LONG["steps"]))


def long_chosen(steps, epsilon=8.0, lam=0.03, lr=0.5):
    """Settings of every arm of long_training, by its name."""
    methods = {
        "repaired-full, guaranteed": {"lambda": lam},
        "dp-sgd, guaranteed": {"lr": lr},
        "noisy-gd, theorem": {"lambda": lam},
    }
    return {
        f"{method}, {count} steps, epsilon {epsilon:g}": chosen
        for count in steps
        for method, chosen in methods.items()
    }


def spec_of(kind, **changes):
    """A spec of the kind, or of a tuning; `data` of reported runs is dealt anew for each."""
    if kind in FIELDS:
        return Spec.of({**FIELDS[kind], **changes}, "small")
    fields, _ = TUNED[kind]
    of_arms = {name: value for name, value in changes.items() if name in fields}
    reported = {
        **{**fields, "data": {"name": "small", "redeal": True}},
        **{"kind": kind, "tuning": "small-tuning", "first_run": 0, "runs": 2},
    }
    if "chosen" not in changes:
        reported["chosen"] = chosen_of(kind, **of_arms)
    return Spec.of({**reported, **changes}, "small")


def fields_of(kind, **changes):
    """As a job sees them."""
    spec = spec_of(kind, **changes)
    return checked_fields(kind_of(spec)[1].record.spec, spec.fields, "--spec: ")


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
    facts = {"architecture": "mlp", "options": options, "image_shape": image_shape}
    data = {"name": "other", "sha256": sha256, "preprocessing": scale}
    training = {"spec_id": spec_id, "data": data}
    backbone.save(folder, network, **facts, classes=CLASSES, training=training)
    return folder


def save_features(manifest, backbone, folder):
    """What the backbone shows of the data."""
    take_features(manifest, backbone, folder, "cpu")
    return folder


def run(spec, manifest, folder, backbones=(), features=None, tuning=None):
    """The record's bytes; features are taken first if the spec wants them and none are given."""
    frozen = spec.fields.get("features") in ("penultimate", "softmax")
    if frozen and len(backbones) == 1 and features is None:
        features = save_features(manifest, backbones[0], folder / "features")
    given = [] if features is None else ["--features", str(features)]
    given += [] if tuning is None else ["--tuning", str(tuning)]
    main([*arguments(spec, manifest, folder, backbones), *given])
    return (folder / "record.json").read_bytes()


def metrics_of(*arguments):
    return json.loads(run(*arguments))["metrics"]


def arms_in(metrics):
    """Arms in the metrics (JSON) of a record, with lists over runs of what was measured."""
    return [
        arm
        | {
            name: [run[name] for run in metrics["runs"] if run["arm"] == arm["arm"]]
            for name in metrics["runs"][0]
            if name != "arm"
        }
        for arm in metrics["arms"]
    ]
