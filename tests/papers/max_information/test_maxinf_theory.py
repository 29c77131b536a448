"""max_information without data: what the jobs refuse, and that simulated moments lie below bounds.

The values of curves are tested where figures show them.
"""

import math

import pytest
from figure_samples import select
from maxinf_sample_records import BASE, KEYS

from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas_workflow.papers.max_information.jobs.simulation import LAWS
from dpatlas_workflow.records import read_record
from dpatlas_workflow.run.command import main

SIMULATED = {"m": 20, "draws": 20_000, "nus": [0.5, 2.0], "ys": [0.02, 0.1, 0.2]}


def run(folder, kind, **fields):
    """Rows of a job without data."""
    spec, path = Spec.of({**KEYS, "kind": kind, **fields}, kind), folder / kind / "record.json"
    words = ["--record", str(path), "--checkpoints", str(folder / "checkpoints")]
    main(["--spec", spec.argument, *words])
    return read_record(path).tables["rows"]


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("kappa", {"base": BASE, "axes": {"n": [4999]}}, "m: found 5000; allowed: at most n"),
        ("kappa", {"base": BASE, "axes": {"T": [50_001]}}, "T: found 50001"),
        ("simulation", {**SIMULATED, "laws": ["signs"], "ys": [0.5]}, "ys.0: found"),
    ],
)
def test_bad_settings_are_refused(kind, fields, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(tmp_path, kind, **fields)


def test_sums_of_signs_have_the_largest_variance_that_is_allowed(tmp_path):
    """E D = 1 for a mean of zero and unit vectors, by definition of nu; less for the others."""
    simulated = run(tmp_path, "simulation", laws=list(LAWS), **SIMULATED)
    for row in simulated:
        assert row["simulated"] - 5 * row["standard_error"] <= row["tight"]
    smallest = min(SIMULATED["ys"])
    for law, expected in (("signs", 1.0), ("sphere", 1.0), ("rare-signs", 0.36), ("axes", 0.48)):
        (row,) = select(simulated, law=law, nu=0.5, y=smallest)
        assert math.log(row["simulated"]) == pytest.approx(smallest * expected, rel=0.08)
    # Values of nu have draws of their own.
    sphere = {row["nu"]: row["simulated"] for row in select(simulated, law="sphere")}
    assert sphere[0.5] != sphere[2.0]
