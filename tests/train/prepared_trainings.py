"""Trainings on a small prepared data set: by a job of the workflow, or by settings."""

import json

import yaml
from small_jobs import labelled

from dpatlas.commands.train import main
from dpatlas.data import prepared

SETTINGS = {
    "data": "data/manifest.json",
    "model": "linear",
    "noise_multiplier": 1.0,
    "delta": 1e-5,
    "batch": 8,
    "steps": 3,
    "max_grad_norm": 1.0,
    "lr": 0.5,
    "momentum": 0.9,
    "noise_source": "keyed",
}


def save_data(folder, n_train=12, n_test=6, n_validation=8, **first_values):
    """The manifest of a small prepared set; `first_values` replace the first number of an array."""
    sizes = {"train": n_train, "add": 0, "test": n_test, "validation": n_validation}
    arrays = labelled(sizes, margin=3)
    for name, value in first_values.items():
        arrays[name].flat[0] = value
    prepared.save(folder, arrays, {"name": "small", "classes": [*"abc"], "image_shape": [1, 4, 4]})
    return folder / "manifest.json"


def write(folder, **changes):
    """A settings file in the folder above the data; a change to None drops the key."""
    merged = {**SETTINGS, **changes}
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({key: each for key, each in merged.items() if each is not None}))
    return path


def words(folder, *options, output="out", **changes):
    """The command line of a training by these settings."""
    return [str(write(folder, **changes)), "--output", str(folder / output), *options]


def record_in(folder):
    """The only record in a folder of trainings."""
    (path,) = folder.glob("*/record.json")
    return json.loads(path.read_text())


def trained(folder, output="out", **changes):
    """The record of a training by the command."""
    assert main(words(folder, output=output, **changes)) == 0
    return record_in(folder / output)
