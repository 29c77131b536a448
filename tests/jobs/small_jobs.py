"""What tests of jobs share: settings, a command line, small labelled data, a job that is killed."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest
import yaml

# Fields of a spec that trains for kl_privacy, of one that pretrains, and of networks that are
# trained for the table `audit`.
KL, PRETRAIN, NETWORK = yaml.safe_load("""
- {key: kl_privacy, kind: training, seed: 0, noise_source: keyed, data: {name: small}, init: he,
   depth: 3, width: 5, outputs: 1, lr: 0.1, sigma: 0.01, steps: 6, networks: 1,
   shown_steps: [1, 2, 3, 4, 5, 6], record_steps: [6], watched: 0, runs: 2}
- {key: pretrain, kind: backbone, seed: 0, data: {name: strokes}, model: mlp,
   options: {widths: [8]}, epochs: 2, batch: 8, lr: 0.01, weight_decay: 0.01,
   label_smoothing: 0.05}
- {key: audit, kind: network, seed: 0, noise_source: keyed, data: {name: small}, model: linear,
   epsilon: 3.0, delta: 1.0e-5, batch: 8, steps: 3, max_grad_norm: 1.0, optimizer: sgd, lr: 0.5,
   momentum: 0.9, settings_tried: 1, runs: 2}
""")


def kl_of(steps, **changes):
    """Fields of `KL` with so many steps, all of which are shown."""
    shown = list(range(1, steps + 1))
    return {**KL, "steps": steps, "shown_steps": shown, "record_steps": [steps], **changes}


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it and clean up."""


def arguments(spec, manifest, folder, backbones=()):
    """The command line of a job whose record and checkpoints lie in `folder`."""
    return [
        "--spec", spec.argument,
        "--data", str(manifest),
        "--record", str(folder / "record.json"),
        "--checkpoints", str(folder / "checkpoints"),
        *(word for each in backbones for word in ("--backbone", str(each))),
    ]  # fmt: skip


def run_main(main, spec, manifest, folder):
    """Run a job by an experiment's `main`; the path of its record."""
    main(arguments(spec, manifest, folder))
    return folder / "record.json"


def labelled(sizes, margin):
    """x (n, 16) and y (n,) of every part in `sizes`: normal, with `margin` added at the label."""
    draws = np.random.default_rng(5)
    arrays = {}
    for part, n in sizes.items():
        labels = np.arange(n) % 3
        arrays[f"x_{part}"] = draws.standard_normal((n, 16)).astype(np.float32)
        arrays[f"x_{part}"][np.arange(n), labels] += margin
        arrays[f"y_{part}"] = labels
    return arrays


@contextmanager
def watched(places, before):
    """Within, `before(call)` is called ahead of every call, from 0 on, of the functions `places`.

    A place is (owner, name); calls are counted over all places together.
    """
    calls = itertools.count()

    def preceded(real):
        def call(*given, **named):
            before(next(calls))
            return real(*given, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in places:
            patch.setattr(owner, name, preceded(getattr(owner, name)))
        yield


@contextmanager
def killed_at(call, *places):
    """What runs within is killed at this call, from 0 on, of the functions `places`."""

    def die(number):
        if number == call:
            raise Killed

    with watched(places, die), pytest.raises(Killed):
        yield


@contextmanager
def counted(*places):
    """The list of calls that were made within of the functions `places`."""
    calls = []
    with watched(places, calls.append):
        yield calls
