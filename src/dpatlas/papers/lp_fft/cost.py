"""The work of lp_fft's jobs."""

from dpatlas.config.sizes import array_mb, features_mb
from dpatlas.core.records import SpecFields
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.cost.training import (
    CALIBRATION_POINTS,
    PRIVATE_STARTS,
    VISITS_PER_UPDATE,
    private_passes,
)
from dpatlas.papers.lp_fft.records.distortion import Spec as Distortion
from dpatlas.papers.lp_fft.records.dynamics import Spec as Dynamics
from dpatlas.papers.lp_fft.records.feature_quality import Spec as FeatureQuality
from dpatlas.papers.lp_fft.records.imbalance import Spec as Imbalance
from dpatlas.papers.lp_fft.records.private import HEAD, PrivateFields
from dpatlas.papers.lp_fft.records.sensitivity import Spec as Sensitivity
from dpatlas.papers.lp_fft.records.strategies import Spec as Strategies
from dpatlas.papers.lp_fft.records.umap import Spec as Umap
from dpatlas.papers.lp_fft.strategies import STRATEGIES

# scikit-learn takes as long to load as torch, UMAP and its compiler three times as long.
SKLEARN_STARTS, UMAP_STARTS = 1, 6
# Visits of every number of a small network in one step of a solver.
SWEEPS_PER_STEP = 20


def strategies(fields: Strategies, size: Size, backbone: Backbone) -> Work:
    """Private steps of all that a phase trains; LP alone runs on features that are kept."""
    steps = head_steps = accountings = 0.0
    for name in fields.strategies:
        parts = STRATEGIES[name]
        shares = [1.0]
        if len(parts) == 2:
            named = fields.control_shares if parts[0] == parts[1] else fields.shares
            # At 0 and 1 a strategy of one phase stands for it.
            shares = [share for share in named if 0 < share < 1]
        trainings = len(fields.lrs[parts[-1]]) * fields.tuning_runs + fields.runs
        for share in shares:
            of_phases = (share, 1 - share) if len(parts) == 2 else (1.0,)
            for part, of_phase in zip(parts, of_phases, strict=True):
                spent = trainings * of_phase * fields.steps
                head_steps += spent * (part == HEAD)
                steps += spent * (part != HEAD)
            accountings += 1
    views = fields.augmentation.views if fields.augmentation else 1
    calibrated = CALIBRATION_POINTS if fields.level.epsilon is not None else 0
    visits = steps * fields.batch * views
    counts = {
        **private_passes(backbone.model, size.inputs, visits, backbone.options),
        "steps": (steps + head_steps) * VISITS_PER_UPDATE,
        "accountings": accountings + calibrated,
        "starts": PRIVATE_STARTS,
    }
    numbers = accountings * (fields.runs + 60)
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def feature_quality(fields: FeatureQuality, size: Size, backbone: Backbone) -> Work:
    """Private steps, and at every look features of both tasks and their neighbours."""
    runs = 2 * len(fields.head_scales) * len(fields.lrs) * fields.runs
    # LP-FFT trains everything in the rest of the steps, and features do not move before.
    trained = runs * (fields.steps - fields.lp_steps / 2)
    looks = runs * len(fields.at) * 0.75
    looked_at = looks * (size.n_train + fields.public_known + fields.public_asked)
    visits = trained * fields.batch + looked_at / 4
    counts = {
        **private_passes(backbone.model, size.inputs, visits, backbone.options),
        "steps": trained * VISITS_PER_UPDATE + looks * VISITS_PER_UPDATE,
        "accountings": 1,
        "starts": PRIVATE_STARTS + SKLEARN_STARTS,
    }
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 3 * len(fields.at) * runs)


def umap(fields: Umap, size: Size, backbone: Backbone) -> Work:
    """A training for every length of LP, and three pictures of it."""
    trainings = len(fields.lp_steps)
    steps = trainings * fields.fft_steps + sum(fields.lp_steps)
    counts = {
        **private_passes(backbone.model, size.inputs, steps * fields.batch, backbone.options),
        "steps": steps * VISITS_PER_UPDATE,
        "accountings": trainings,
        "starts": PRIVATE_STARTS + UMAP_STARTS,
    }
    numbers = 3 * trainings * 2 * fields.points
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def dynamics(fields: Dynamics, size: Size, backbone: Backbone | None) -> Work:
    """Paths of small networks, step by step."""
    relu, tuned, probing = fields.relu, fields.fine_tuning, fields.probing
    steps = relu.times[-1] / relu.step
    width = relu.records * relu.hidden
    phases = (relu.phases.head, relu.phases.all)
    paths = sum(len(phase.sigmas) * phase.draws * phase.paths for phase in phases)
    sweeps = SWEEPS_PER_STEP * steps * paths * width
    for d, h in tuned.sizes:
        sweeps += tuned.span / tuned.step * tuned.paths * d * h * h
    sweeps += probing.paths * len(probing.times) * SWEEPS_PER_STEP
    return Work({"elements": sweeps}, 300_000)


def distortion(fields: Distortion, size: Size, backbone: Backbone | None) -> Work:
    """Networks drawn, and some of them trained."""
    after, clusters = fields.after_probing, fields.clusters
    steps = after.lp_span / after.lp_step + after.fft_spans[-1] / after.step
    trained = len(after.angles) * after.runs * steps * after.records * after.hidden
    drawn = clusters.trials * sum(clusters.hs) * clusters.records
    return Work({"elements": SWEEPS_PER_STEP * (trained + drawn)}, 2 * RECORD_BYTES)


def sensitivity(fields: Sensitivity, size: Size, backbone: Backbone | None) -> Work:
    """Gradients of small linear networks."""
    start, drift = fields.start, fields.drift
    looked_at = sum(start.seeds * d * d for d in start.dims) * start.records_per_input
    trained = drift.seeds * drift.steps * drift.d**2
    return Work({"elements": start.hidden * (looked_at + trained)}, 2 * RECORD_BYTES)


def imbalance(fields: Imbalance, size: Size, backbone: Backbone | None) -> Work:
    """Paths of small linear networks, with eigenvalues now and then."""
    sweeps = 0.0
    for each in (fields.gap, fields.drift):
        sweeps += each.paths * each.steps * each.inputs * each.hidden * SWEEPS_PER_STEP
    return Work({"elements": sweeps}, 2 * RECORD_BYTES)


def takes_features(fields: Strategies) -> bool:
    """Whether some strategy trains the head alone, on features that augmentation does not move."""
    return fields.augmentation is None and any(
        set(STRATEGIES[name]) == {HEAD} for name in fields.strategies
    )


def private_mb(fields: PrivateFields) -> int:
    """Peak memory of a job in MB: interpreter, torch, accountants; images, maps, features."""
    images, more = array_mb(fields.data), 0.0
    if isinstance(fields, FeatureQuality):
        images += array_mb(fields.public_data)
    elif isinstance(fields, Strategies) and takes_features(fields):
        more = features_mb(fields.data)
    elif isinstance(fields, Umap):
        # Numba compiles what UMAP runs.
        more = 500
    return round(1200 + 6 * images + more)


def theory_mb(fields: SpecFields) -> int:
    """Likewise, of a job without a data set."""
    return 700


KINDS = {
    "strategies": JobCost(
        strategies,
        private_mb,
        lower=("max_physical_batch", "batch", "data.n_train"),
        gpu=True,
        takes_features=takes_features,
    ),
    "feature_quality": JobCost(
        feature_quality, private_mb, lower=("max_physical_batch", "batch", "public_known"), gpu=True
    ),
    "umap": JobCost(umap, private_mb, lower=("max_physical_batch", "batch", "points"), gpu=True),
    "dynamics": JobCost(dynamics, theory_mb, lower=("paths", "trials", "seeds")),
    "distortion": JobCost(distortion, theory_mb, lower=("paths", "trials", "seeds")),
    "sensitivity": JobCost(sensitivity, theory_mb, lower=("paths", "trials", "seeds")),
    "imbalance": JobCost(imbalance, theory_mb, lower=("paths", "trials", "seeds")),
}
