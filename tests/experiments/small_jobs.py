"""What tests of jobs share: a command line, small labelled data, and a job that is killed."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest


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
