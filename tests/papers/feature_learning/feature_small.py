"""Small specs of feature_learning, jobs of them, and networks at their start."""

import json
from contextlib import contextmanager

import pytest
import yaml

from dpatlas.base.seeds import Noise
from dpatlas.base.specs import Spec
from dpatlas.formulas.feature_learning.single_index import link
from dpatlas.jobs.job import execute
from dpatlas_workflow.papers.feature_learning import sizes
from dpatlas_workflow.papers.feature_learning.jobs.draws import draw
from dpatlas_workflow.run.command import kind_of

MIXED = [-0.5, 1.0, 0.5]
BASE = {"n": 60, "p": 6, "d": 5, "epsilon": 2.0}
FIELDS = yaml.safe_load("""
{key: feature_learning, kind: simulation, seed: 0, noise_source: keyed, link: mixed, axis: n,
 delta: 1.0e-5, runs: 3, steps: 4, n_test: 30, sharing: split,
 clip_quantiles: {first: 0.5, second: 0.9}, penalty_per_neuron: 1.0e-3}
""")
FIELDS |= {"polynomial": MIXED, "points": [{**BASE, "n": 40}, BASE]}
FEATURES = ("private", "direction", "nonprivate", "random", "random-both", "printed")


def spec_of(**changes):
    return Spec.of({**FIELDS, **changes}, "small")


def run(spec, folder):
    """The record's bytes."""
    module, kind = kind_of(spec)
    paths = {"record": folder / "record.json", "checkpoints": folder / "checkpoints"}
    execute(spec, kind, module=module, data=None, device="cpu", **paths)
    return (folder / "record.json").read_bytes()


def record_of(spec, folder):
    return json.loads(run(spec, folder))


def drawn(d=5, p=6, n=40, n_test=10, runs=(0, 1), polynomial=MIXED, seed=0):
    return draw(link(polynomial), d, p, n, n_test, runs, seed)


def with_record(records, index, x, y):
    """Records of which one, in the first run, is x with label y."""
    changed = type(records)(records.x.copy(), records.y.copy())
    changed.x[0, index], changed.y[0, index] = x, y
    return changed


@contextmanager
def one_run_at_a_time():
    """Within, no two runs fit into memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "MOST_NUMBERS", 1)
        yield


@contextmanager
def noise_keys():
    """The list of (repetition, step, use) of all draws of noise made within."""
    keys, real = [], Noise.normal

    def normal(noise, size, **named):
        keys.append((named["repetition"], named["step"], named["use"]))
        return real(noise, size, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "normal", normal)
        yield keys
