"""Small records of lp_fft's simulated theory: the smoke tier's specs, run in this process."""

import copy
import functools
import importlib

from lpfft_sample_records import record_of_kind, smoke_fields

from dpatlas.base.records import checked_fields
from dpatlas.base.specs import Spec
from dpatlas.jobs.job import Job


def run_theory(fields):
    """The outcome of the theory job with these fields."""
    kind = fields["kind"]
    spec = Spec.of(fields, kind)
    job_kind = importlib.import_module(f"dpatlas_workflow.papers.lp_fft.jobs.{kind}").KIND
    checked = checked_fields(job_kind.record.spec, spec.fields, "--spec: ")
    return job_kind.run(Job(spec, checked, None, "cpu", checkpoints=None, stopwatch=None))


@functools.cache
def _simulated(kind):
    types = importlib.import_module(f"dpatlas_workflow.papers.lp_fft.records.{kind}")
    return record_of_kind(types, run_theory(smoke_fields()[kind]).metrics)


def theory_record(kind):
    """A record of the kind that a test may change."""
    return copy.deepcopy(_simulated(kind))


RECORDS = {
    "lpfft_theory": lambda: [theory_record("dynamics")],
    "lpfft_distortion": lambda: [theory_record("distortion")],
    "lpfft_sensitivity": lambda: [theory_record("sensitivity")],
    "lpfft_imbalance": lambda: [theory_record("imbalance")],
}
