"""What tests of a classifier's private training share: data, and a job's record."""

import functools
import json

import small_jobs
from small_jobs import labelled

from dpatlas.data import prepared
from dpatlas.jobs.run import main

run_main = functools.partial(small_jobs.run_main, main)


def save_data(folder, n_train=12, n_test=6, n_validation=8, **first_values):
    """The manifest of a small prepared set; `first_values` replace the first number of an array."""
    sizes = {"train": n_train, "add": 0, "test": n_test, "validation": n_validation}
    arrays = labelled(sizes, margin=3)
    for name, value in first_values.items():
        arrays[name].flat[0] = value
    prepared.save(folder, arrays, {"name": "small", "classes": [*"abc"], "image_shape": [1, 4, 4]})
    return folder / "manifest.json"


def record_of(spec, manifest, folder):
    """Run a job; its record."""
    return read(run_main(spec, manifest, folder))


def read(path):
    return json.loads(path.read_text())
