"""lp_fft's exact rules: verdicts on made-up records, turned by the change each is about."""

import pytest
from lpfft_theory_job import run_theory
from lpfft_theory_sample_records import (
    DISTORTION,
    DYNAMICS,
    bracket_row,
    probed,
    share,
    theory_record,
)
from lpfft_theory_sample_records import distortion_record as shares_as_claimed

from dpatlas.core.statistics import FAILS, HOLDS, OPEN, judge, weigh
from dpatlas.evidence.comparisons import NotRun, PaperRecords
from dpatlas.papers.lp_fft import claims_exact as claims
from dpatlas.papers.lp_fft.records import distortion, dynamics

LEVEL = 0.9999
TIMES = [1.0, 2.0]


def dynamics_record():
    rows = [
        bracket_row(
            phase="head",
            heads="random",
            draw=draw,
            sigma=sigma,
            start=1.0,
            lower=[0.8, 0.6],
            upper=[1.0, 0.9],
            zeroth=[0.9, 0.7],
            diffusion=[0.88, 0.65],
            standard_error=[0.01, 0.01],
        )
        for draw in (0, 1)
        for sigma in (0.5, 1.0)
    ]
    heads = {"norm": [0.3671, 0.311], "error": [0.0007, 0.0005]}
    computed = {"paper": [0.545, 0.4002], "exact": [0.3681, 0.3113]}
    metrics = dynamics.Metrics(
        times=TIMES,
        relu=rows,
        counts=[],
        probing=probed(TIMES, **heads, **computed),
        fine_tuning=[],
    )
    return theory_record(dynamics, metrics, **DYNAMICS)


def distortion_record():
    clusters = [
        distortion.ClusterRow(
            h=h, head_variance=variance, claimed=1 - 2.0**-h, **share(1 - 2.0**-h + 0.001, 20_000)
        )
        for h in (1, 8)
        for variance in (0.01, 1.0)
    ]
    two = [
        distortion.TwoRecordRow(
            head_variance=variance, claimed=0.5, exact=value, **share(value, 20_000)
        )
        for variance, value in ((0.01, 0.501), (100.0, 0.135))
    ]
    record = shares_as_claimed()
    record.metrics.clusters[:], record.metrics.two_records[:] = clusters, two
    return record


def with_row(rows, number, **changes):
    """Replace a row by one with other values."""
    rows[number] = rows[number].model_copy(update=changes)


def answer(test, record, **arguments):
    """What the test says of one record, and the comparison that decides."""
    records = PaperRecords({}, {"group": [record]})
    evidence = getattr(claims, test)(records, group="group", **arguments)
    judged = [[judge(c, LEVEL) for c in group] for group in evidence.alternatives]
    return weigh(judged)


HEAD = {"phase": "head", "heads": "random"}


@pytest.mark.parametrize(
    ("column", "value", "side"), [("zeroth", 0.59, "lower"), ("zeroth", 0.91, "upper")]
)
def test_a_zeroth_order_loss_beyond_its_bracket_refutes(column, value, side):
    record = dynamics_record()
    assert answer("zeroth_order_stays_in_bracket", record, **HEAD, tolerance=1e-6)[0] == HOLDS
    getattr(record.metrics.relu[3], column)[1] = value
    verdict, decisive = answer("zeroth_order_stays_in_bracket", record, **HEAD, tolerance=1e-6)
    assert verdict == FAILS
    assert side in decisive.comparison.label and "draw 1, sigma 1" in decisive.comparison.label


@pytest.mark.parametrize(("value", "expected"), [(0.5, FAILS), (0.98, FAILS), (0.59, HOLDS)])
def test_a_diffusion_surely_beyond_its_bracket_refutes(value, expected):
    record = dynamics_record()
    assert answer("diffusion_stays_in_bracket", record, **HEAD, below=0.0)[0] == HOLDS
    record.metrics.relu[0].diffusion[1] = value
    verdict, decisive = answer("diffusion_stays_in_bracket", record, **HEAD, below=0.0)
    assert verdict == expected
    assert expected == HOLDS or "t = 2" in decisive.comparison.label


def test_the_corrected_head_norm_holds_and_the_printed_one_fails():
    record = dynamics_record()
    given = {"tolerance": 0.02}
    assert answer("head_norm_follows", record, convention="exact", **given)[0] == HOLDS
    assert answer("head_norm_follows", record, convention="paper", **given)[0] == FAILS
    record.metrics.probing.norm_standard_error[:] = [0.1, 0.1]
    assert answer("head_norm_follows", record, convention="exact", **given)[0] == OPEN


def test_small_heads_are_judged_on_clusters_and_large_ones_left_out():
    record = distortion_record()
    given = {"largest_variance": 0.1, "tolerance": 0.02}
    assert answer("distorts_on_clusters", record, **given)[0] == HOLDS
    with_row(record.metrics.clusters, 1, share=0.3)
    assert answer("distorts_on_clusters", record, **given)[0] == HOLDS
    verdict, decisive = answer("distorts_on_clusters", record, largest_variance=1.0, tolerance=0.02)
    assert verdict == FAILS and "h = 1" in decisive.comparison.label


def test_large_heads_on_two_records_refute():
    record, given = distortion_record(), {"tolerance": 0.02}
    assert answer("distorts_two_records", record, head_variance=0.01, **given)[0] == HOLDS
    verdict, decisive = answer("distorts_two_records", record, head_variance=100.0, **given)
    assert verdict == FAILS
    assert decisive.comparison.estimate.value == pytest.approx(-0.365)


def test_too_few_trials_leave_the_question_open():
    record = distortion_record()
    for number in range(len(record.metrics.clusters)):
        with_row(record.metrics.clusters, number, trials=100)
    given = {"largest_variance": 1.0, "tolerance": 0.02}
    assert answer("distorts_on_clusters", record, **given)[0] == OPEN


ALL, ALIGNED = {**HEAD, "phase": "all"}, {**HEAD, "heads": "aligned"}
NARROW, OTHER = {"largest_variance": 1e-3}, {"head_variance": 3.0}


@pytest.mark.parametrize(
    ("test", "record", "arguments"),
    [
        ("zeroth_order_stays_in_bracket", dynamics_record, {**ALL, "tolerance": 0.1}),
        ("diffusion_stays_in_bracket", dynamics_record, {**ALIGNED, "below": 0.0}),
        ("distorts_on_clusters", distortion_record, {**NARROW, "tolerance": 0.1}),
        ("distorts_two_records", distortion_record, {**OTHER, "tolerance": 0.1}),
    ],
)
def test_what_a_record_lacks_is_not_run(test, record, arguments):
    with pytest.raises(NotRun, match="has no"):
        answer(test, record(), **arguments)


def test_what_the_theory_s_experiments_record_gives_the_verdicts_of_the_errata():
    relu = {"records": 4, "inputs": 3, "hidden": 4, "angle": 20.0, "head_variance": 0.25}
    relu |= {"step": 0.02, "times": [1.0, 2.0]}
    relu["phases"] = {
        "head": {"sigmas": [1.5], "draws": 2, "paths": 1000},
        "all": {"sigmas": [0.1], "draws": 1, "paths": 2},
    }
    linear = {"records": 10, "inputs": 6, "hidden": 3, "head_variance": 0.4, "sigma2": 0.05}
    linear |= {"b_norm2": 0.19, "paths": 100_000, "times": [1.0]}
    chosen = {
        "dynamics": {
            "relu": relu,
            "probing": linear,
            "fine_tuning": {**DYNAMICS["fine_tuning"], "sizes": []},
        },
        "distortion": {
            "clusters": {"records": 4, "inputs": 3, "angle": 40.0, "hs": [8]}
            | {"head_variances": [0.01], "trials": 2000},
            "two_records": {"spread": 0.2, "ratio": 2.0, "head_variances": [100.0]}
            | {"trials": 2000},
            "after_probing": {**DISTORTION["after_probing"], "angles": []},
            "counterexample": {"lp_spans": [], "span": 1.0, "step": 0.1},
        },
    }
    records = {
        types: theory_record(types, run_theory(kind, **chosen[kind]).metrics, **chosen[kind])
        for kind, types in (("dynamics", dynamics), ("distortion", distortion))
    }
    tolerance = {"tolerance": 0.02}
    expected = {
        ("zeroth_order_stays_in_bracket", dynamics): ({**HEAD, "tolerance": 1e-6}, HOLDS),
        ("diffusion_stays_in_bracket", dynamics): ({**HEAD, "below": 0.0}, FAILS),
        ("head_norm_follows", dynamics): ({"convention": "paper", **tolerance}, FAILS),
        ("distorts_on_clusters", distortion): ({"largest_variance": 1.0, **tolerance}, HOLDS),
        ("distorts_two_records", distortion): ({"head_variance": 100.0, **tolerance}, FAILS),
    }
    for (test, types), (arguments, verdict) in expected.items():
        assert answer(test, records[types], **arguments)[0] == verdict, test
    exact = {"convention": "exact", **tolerance}
    assert answer("head_norm_follows", records[dynamics], **exact)[0] == HOLDS
