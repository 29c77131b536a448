"""Records of lp_fft's training in which every claim on it is true."""

import numpy as np
from committed_claims import CLAIMS
from lpfft_sample_records import arm, followed, trained

from dpatlas.evidence.claims import judge_claims
from dpatlas.evidence.comparisons import PaperRecords
from dpatlas.papers.lp_fft.records.feature_quality import Row

RUNS, SPREAD = 6, 5e-4
THEORY = {"lpfft-7", "lpfft-8", "lpfft-9"}
ARMS = (
    *(("fft", 0.0), ("lp-fft", 0.25), ("lp-fft", 0.5), ("lp", 1.0)),
    *(("lp-lp", 0.5), ("fft-fft", 0.5)),
)
LORA_ARMS = (("lora", 0.0), ("lp-lora", 0.5), ("lp", 1.0))
# By noise multiplier, in the order of the arms.
ACCURACY = {
    0.0: (0.95, 0.93, 0.92, 0.88, 0.89, 0.94),
    1.0: (0.93, 0.92, 0.91, 0.87, 0.88, 0.92),
    2.0: (0.90, 0.89, 0.89, 0.86, 0.87, 0.89),
    4.0: (0.85, 0.86, 0.86, 0.84, 0.85, 0.85),
    8.0: (0.72, 0.76, 0.78, 0.74, 0.75, 0.74),
    16.0: (0.50, 0.56, 0.58, 0.60, 0.60, 0.51),
}
LORA_ACCURACY = {1.0: (0.93, 0.92, 0.87), 4.0: (0.80, 0.85, 0.82), 16.0: (0.50, 0.55, 0.60)}
EPSILON = {0.0: None, 1.0: 10.9, 2.0: 3.8, 4.0: 1.6, 8.0: 0.71, 16.0: 0.3}
STEPS, LP_STEPS = [0, 10, 20, 30, 40, 50, 60], 20
KNN = {
    "fft": (0.98, 0.90, 0.85, 0.88, 0.92, 0.94, 0.95),
    "lp-fft": (0.98, 0.98, 0.98, 0.93, 0.91, 0.94, 0.96),
}


def runs_of(mean, *keys, spread=SPREAD):
    """Runs about `mean`, one number or a curve."""
    mean = np.asarray(mean)
    noise = np.random.default_rng(keys).normal(0, spread, (RUNS, *mean.shape))
    return (mean + noise).tolist()


def strategies_record(
    noise, arms=ARMS, means=ACCURACY, group="strategies", scenario="inverted-t", level=None
):
    rows = [
        arm(strategy, share, noise, runs_of(mean, int(noise), place), epsilon=EPSILON[noise])
        for place, ((strategy, share), mean) in enumerate(zip(arms, means[noise], strict=True))
    ]
    level = level or {"noise_multiplier": noise}
    return trained(rows, level, group=group, scenario=scenario)


def calibrated_record():
    """Of the same scenario, at an epsilon, with every claim the other way round."""
    record = strategies_record(8.0, level={"epsilon": 0.71})
    for row in record.metrics.rows:
        row.accuracy[:] = [1 - accuracy for accuracy in row.accuracy]
    return record


def quality_record(noise=1.0, head_scales=(1.0, 4.0), lrs=(5.0, 10.0)):
    """The public task and the other rate have no dip."""
    flat = np.ones(len(STEPS))
    rows = [
        Row(
            head_scale=head_scale,
            lr=lr,
            strategy=strategy,
            steps=STEPS,
            private=runs_of(curve if lr == 10 else flat, int(head_scale), place),
            public=runs_of(flat, int(head_scale), place, 2),
            accuracy=runs_of(flat, 3),
        )
        for head_scale in head_scales
        for lr in lrs
        for place, (strategy, curve) in enumerate(KNN.items())
    ]
    return followed(rows, noise, lp_steps=LP_STEPS)


def world():
    """Groups of records in which every claim is true."""
    other = strategies_record(8.0, means={8.0: (0.9,) * 6}, scenario="leaves")
    return {
        "strategies": [*map(strategies_record, ACCURACY), calibrated_record(), other],
        "lora": [
            strategies_record(noise, LORA_ARMS, LORA_ACCURACY, "lora", "lora")
            for noise in LORA_ACCURACY
        ],
        "feature_quality": [quality_record(), quality_record(4.0)],
    }


def verdicts(groups):
    """Rows of claims.csv on training, by claim."""
    rows = judge_claims(CLAIMS, {"lp_fft": PaperRecords({}, groups)}, "test")
    own = [row for row in rows if row["paper"] == "lp_fft"]
    return {row["claim"]: row for row in own if row["claim"].rstrip("abcd") not in THEORY}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def record_at(groups, noise, group="strategies"):
    """The record at a noise multiplier; of several scenarios the first."""
    return next(
        record
        for record in groups[group]
        if getattr(record.spec, "level", record.spec).noise_multiplier == noise
    )


def arm_of(groups, noise, strategy, share=None, group="strategies"):
    (row,) = (
        row
        for row in record_at(groups, noise, group).metrics.rows
        if row.strategy == strategy and (share is None or row.share == share)
    )
    return row


def curves_of(groups, strategy, head_scale=4.0, lr=10.0):
    rows = record_at(groups, 1.0, "feature_quality").metrics.rows
    condition = (strategy, head_scale, lr)
    (row,) = (row for row in rows if (row.strategy, row.head_scale, row.lr) == condition)
    return row
