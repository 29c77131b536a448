"""lp_fft's simulated theory, run in this process."""

import importlib

from dpatlas.core.specs import Spec
from dpatlas.jobs.job import Job, checked_fields


def run_theory(kind, seed=0, **fields):
    """What the job of a kind finds; the spec's fields beside its key, kind and seed are given."""
    named = {"key": "lp_fft", "kind": kind, "seed": seed, "noise_source": "keyed"}
    spec = Spec.of({**named, **fields}, kind)
    found = importlib.import_module(f"dpatlas.papers.lp_fft.jobs.{kind}").KIND
    job = Job(spec, checked_fields(found.spec, spec), None, "cpu", checkpoints=None, stopwatch=None)
    return found.run(job)
