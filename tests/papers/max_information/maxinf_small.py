"""Small data and small specs of max_information's trained kinds."""

import json

import numpy as np
import torch
import yaml
from sgld_small import CLASSES, SCALE
from small_jobs import labelled, run_main

from dpatlas.base.specs import Spec
from dpatlas.certify.risk import PairErrors
from dpatlas.data import prepared
from dpatlas.models.mean_field import MeanField, flat_values, initial_network
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.max_information.jobs.posteriors import PosteriorTraining
from dpatlas_workflow.run.command import main

# Training records; what a job does step by step.
N = 24
STEPS = ((PrivateTraining, "step"), (PosteriorTraining, "step"), (PairErrors, "step"))
TUPLE = {"zeta": 0.1, "sigma": 1.0, "m": 8, "E": 1, "lr": 2.0}
DP_SGD = {"kind": "dp-sgd", **TUPLE}
NOISE_ONLY = {"kind": "noise-only", **TUPLE}
INDEPENDENT = {"kind": "independent"}
LOOKS = {"number": 1, "registered": True, "others": []}
FIELDS = yaml.safe_load("""
{key: max_information, kind: certificates, seed: 0, noise_source: keyed, data: {name: small},
 model: mlp, options: {widths: [6]}, objective: fclassic, loss: per-class,
 grid: {zetas: [0.1, 0.2], lrs: [2.0, 4.0], epochs: [1, 2], taus: [0.2, 0.4], m: 8, sigma: 1.0},
 taus: [0.2, 0.4], K1: 8, K2: 2, delta: 0.05, delta_mc: 0.0125, beta: 0.025, runs: 2, draws: 1500,
 test_repetitions: 3, training: {lr: 0.1, momentum: 0.9, batch: 8, epochs: 3}}
""")
FIELDS |= {"looks": LOOKS, "priors": [INDEPENDENT, DP_SGD, NOISE_ONLY]}


def spec_of(**changes):
    fields = {**FIELDS, **changes}
    if fields["kind"] == "agreement":
        del fields["runs"]
    return Spec.of(fields, "small")


def save_data(folder):
    """24 training and 12 test records of 16 numbers; the class shows clearly."""
    arrays = labelled({"train": N, "add": 0, "test": 12}, margin=4)
    facts = {"name": "small", "classes": CLASSES, "image_shape": [1, 4, 4], "preprocessing": SCALE}
    prepared.save(folder, arrays, facts)
    return folder / "manifest.json"


def run(spec, manifest, folder):
    """The record's bytes."""
    return run_main(main, spec, manifest, folder).read_bytes()


def metrics_of(spec, manifest, folder):
    return json.loads(run(spec, manifest, folder))["metrics"]


def law(deviation=0.5, widths=(6,)):
    keys = {"key": "max_information", "run": 0, "base_seed": 0}
    network = initial_network("mlp", (1, 4, 4), 3, widths=list(widths), **keys)
    return MeanField.around(network, flat_values(network), deviation)


def records(n=N):
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((n, 16)).astype(np.float32))
    return x, torch.arange(n) % 3
