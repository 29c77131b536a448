"""The work of lp_fft's jobs."""

from collections.abc import Mapping
from typing import Any

from dpatlas.config.sizes import array_mb, features_mb
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, JobCost, Size, Work
from dpatlas.cost.training import (
    CALIBRATION_POINTS,
    PRIVATE_STARTS,
    VISITS_PER_UPDATE,
    private_passes,
)
from dpatlas.papers.lp_fft.records.private import HEAD
from dpatlas.papers.lp_fft.strategies import STRATEGIES, takes_features

# scikit-learn takes as long to load as torch, UMAP and its compiler three times as long.
SKLEARN_STARTS, UMAP_STARTS = 1, 6
# Visits of every number of a small network in one step of a solver.
SWEEPS_PER_STEP = 20


def strategies(fields: Mapping[str, Any], size: Size) -> Work:
    """Private steps of all that a phase trains; LP alone runs on features that are kept."""
    steps = head_steps = accountings = 0.0
    for name in fields["strategies"]:
        parts = STRATEGIES[name]
        shares = [1.0]
        if len(parts) == 2:
            named = fields["control_shares" if parts[0] == parts[1] else "shares"]
            # At 0 and 1 a strategy of one phase stands for it.
            shares = [share for share in named if 0 < share < 1]
        trainings = len(fields["lrs"][parts[-1]]) * fields["tuning_runs"] + fields["runs"]
        for share in shares:
            of_phases = (share, 1 - share) if len(parts) == 2 else (1.0,)
            for part, of_phase in zip(parts, of_phases, strict=True):
                spent = trainings * of_phase * fields["steps"]
                head_steps += spent * (part == HEAD)
                steps += spent * (part != HEAD)
            accountings += 1
    views = fields["augmentation"]["views"] if fields["augmentation"] else 1
    calibrated = CALIBRATION_POINTS if "epsilon" in fields["level"] else 0
    counts = {
        **private_passes(fields["backbone"], size.inputs, steps * fields["batch"] * views),
        "steps": (steps + head_steps) * VISITS_PER_UPDATE,
        "accountings": accountings + calibrated,
        "starts": PRIVATE_STARTS,
    }
    numbers = accountings * (fields["runs"] + 60)
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def feature_quality(fields: Mapping[str, Any], size: Size) -> Work:
    """Private steps, and at every look features of both tasks and their neighbours."""
    runs = 2 * len(fields["head_scales"]) * len(fields["lrs"]) * fields["runs"]
    # LP-FFT trains everything in the rest of the steps, and features do not move before.
    trained = runs * (fields["steps"] - fields["lp_steps"] / 2)
    looks = runs * len(fields["at"]) * 0.75
    looked_at = looks * (size.n_train + fields["public_known"] + fields["public_asked"])
    counts = {
        **private_passes(
            fields["backbone"], size.inputs, trained * fields["batch"] + looked_at / 4
        ),
        "steps": trained * VISITS_PER_UPDATE + looks * VISITS_PER_UPDATE,
        "accountings": 1,
        "starts": PRIVATE_STARTS + SKLEARN_STARTS,
    }
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 3 * len(fields["at"]) * runs)


def umap(fields: Mapping[str, Any], size: Size) -> Work:
    """A training for every length of LP, and three pictures of it."""
    trainings = len(fields["lp_steps"])
    steps = trainings * fields["fft_steps"] + sum(fields["lp_steps"])
    counts = {
        **private_passes(fields["backbone"], size.inputs, steps * fields["batch"]),
        "steps": steps * VISITS_PER_UPDATE,
        "accountings": trainings,
        "starts": PRIVATE_STARTS + UMAP_STARTS,
    }
    numbers = 3 * trainings * 2 * fields["points"]
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def dynamics(fields: Mapping[str, Any], size: Size) -> Work:
    """Paths of small networks, step by step."""
    relu, tuned = fields["relu"], fields["fine_tuning"]
    steps = relu["times"][-1] / relu["step"]
    width = relu["records"] * relu["hidden"]
    paths = sum(
        len(phase["sigmas"]) * phase["draws"] * phase["paths"] for phase in relu["phases"].values()
    )
    sweeps = SWEEPS_PER_STEP * steps * paths * width
    for d, h in tuned["sizes"]:
        sweeps += tuned["span"] / tuned["step"] * tuned["paths"] * d * h * h
    sweeps += fields["probing"]["paths"] * len(fields["probing"]["times"]) * SWEEPS_PER_STEP
    return Work({"elements": sweeps}, 300_000)


def distortion(fields: Mapping[str, Any], size: Size) -> Work:
    """Networks drawn, and some of them trained."""
    after, clusters = fields["after_probing"], fields["clusters"]
    steps = after["lp_span"] / after["lp_step"] + after["fft_spans"][-1] / after["step"]
    trained = len(after["angles"]) * after["runs"] * steps * after["records"] * after["hidden"]
    drawn = clusters["trials"] * sum(clusters["hs"]) * clusters["records"]
    return Work({"elements": SWEEPS_PER_STEP * (trained + drawn)}, 2 * RECORD_BYTES)


def sensitivity(fields: Mapping[str, Any], size: Size) -> Work:
    """Gradients of small linear networks."""
    start, drift = fields["start"], fields["drift"]
    looked_at = sum(start["seeds"] * d * d for d in start["dims"]) * start["records_per_input"]
    trained = drift["seeds"] * drift["steps"] * drift["d"] ** 2
    return Work({"elements": start["hidden"] * (looked_at + trained)}, 2 * RECORD_BYTES)


def imbalance(fields: Mapping[str, Any], size: Size) -> Work:
    """Paths of small linear networks, with eigenvalues now and then."""
    sweeps = 0.0
    for each in (fields["gap"], fields["drift"]):
        sweeps += each["paths"] * each["steps"] * each["inputs"] * each["hidden"] * SWEEPS_PER_STEP
    return Work({"elements": sweeps}, 2 * RECORD_BYTES)


def memory_mb(fields: Mapping[str, Any]) -> int:
    """Peak memory of a job in MB: interpreter, torch, accountants; images, maps, features."""
    data = fields.get("data")
    if data is None:
        return 700
    images = array_mb(data) + (array_mb(fields["public_data"]) if "public_data" in fields else 0)
    shown = features_mb(data) if takes_features(fields) else 0
    # Numba compiles what UMAP runs.
    return round(1200 + 6 * images + shown + (500 if fields["kind"] == "umap" else 0))


KINDS = {
    "strategies": JobCost(
        strategies,
        memory_mb,
        lower=("max_physical_batch", "batch", "data.n_train"),
        gpu=True,
        takes_features=takes_features,
    ),
    "feature_quality": JobCost(
        feature_quality, memory_mb, lower=("max_physical_batch", "batch", "public_known"), gpu=True
    ),
    "umap": JobCost(umap, memory_mb, lower=("max_physical_batch", "batch", "points"), gpu=True),
    "dynamics": JobCost(dynamics, memory_mb, lower=("paths", "trials", "seeds")),
    "distortion": JobCost(distortion, memory_mb, lower=("paths", "trials", "seeds")),
    "sensitivity": JobCost(sensitivity, memory_mb, lower=("paths", "trials", "seeds")),
    "imbalance": JobCost(imbalance, memory_mb, lower=("paths", "trials", "seeds")),
}
