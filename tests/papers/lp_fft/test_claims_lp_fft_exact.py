"""lp_fft's tests of claims on simulated theory: which side of a limit decides, and by how much.

That every claim holds and fails where it should is a contract test over worlds.py.
"""

import pytest
from lpfft_world import claimed_distortion, dynamics_record

from dpatlas.core.statistics import FAILS, HOLDS, OPEN, judge, weigh
from dpatlas.evidence.comparisons import NotRun, PaperRecords
from dpatlas.papers.lp_fft import claims_exact as claims

LEVEL = 0.9999
HEAD = {"phase": "head", "heads": "random"}
ZEROTH = {**HEAD, "tolerance": 1e-6}
NARROW, WIDE = ({"largest_variance": limit, "tolerance": 0.02} for limit in (0.1, 1.0))


def answer(test, record, **arguments):
    """The answer of a test on one record, and the comparison that decides."""
    records = PaperRecords({}, {"group": [record]})
    evidence = getattr(claims, test)(records, group="group", **arguments)
    return weigh([[judge(c, LEVEL) for c in group] for group in evidence.alternatives])


@pytest.mark.parametrize(("value", "side"), [(0.59, "lower"), (0.91, "upper")])
def test_a_zeroth_order_loss_beyond_either_bound_refutes(value, side):
    record = dynamics_record()
    record.metrics.relu[3].zeroth[1] = value
    verdict, decisive = answer("zeroth_order_stays_in_bracket", record, **ZEROTH)
    assert verdict == FAILS
    assert side in decisive.comparison.label and "draw 1, sigma 1" in decisive.comparison.label


@pytest.mark.parametrize(("value", "expected"), [(0.5, FAILS), (0.98, FAILS), (0.59, HOLDS)])
def test_a_diffusion_surely_beyond_its_bracket_refutes(value, expected):
    record = dynamics_record()
    record.metrics.relu[0].diffusion[1] = value
    verdict, decisive = answer("diffusion_stays_in_bracket", record, **HEAD, below=0.0)
    assert verdict == expected
    assert expected == HOLDS or "t = 2" in decisive.comparison.label


def test_too_wide_an_interval_leaves_the_head_norm_open():
    record = dynamics_record()
    record.metrics.probing.norm_standard_error[:] = [0.1, 0.1]
    assert answer("head_norm_follows", record, convention="exact", tolerance=0.02)[0] == OPEN


def test_distortion_is_judged_at_small_variances_alone_and_open_with_few_trials():
    record = claimed_distortion()
    rows = record.metrics.clusters
    rows[1] = rows[1].model_copy(update={"share": 0.3})
    assert answer("distorts_on_clusters", record, **NARROW)[0] == HOLDS
    verdict, decisive = answer("distorts_on_clusters", record, **WIDE)
    assert verdict == FAILS and "h = 1" in decisive.comparison.label
    rows[:] = [
        row.model_copy(update={"trials": 100}) for row in claimed_distortion().metrics.clusters
    ]
    assert answer("distorts_on_clusters", record, **WIDE)[0] == OPEN


@pytest.mark.parametrize(
    ("test", "record", "arguments"),
    [
        ("zeroth_order_stays_in_bracket", dynamics_record, {**ZEROTH, "heads": "aligned"}),
        ("diffusion_stays_in_bracket", dynamics_record, {**HEAD, "heads": "aligned", "below": 0.0}),
        ("distorts_on_clusters", claimed_distortion, {**WIDE, "largest_variance": 1e-3}),
        ("distorts_two_records", claimed_distortion, {"head_variance": 3.0, "tolerance": 0.1}),
    ],
)
def test_what_a_record_lacks_is_not_run(test, record, arguments):
    with pytest.raises(NotRun, match="has no"):
        answer(test, record(), **arguments)
