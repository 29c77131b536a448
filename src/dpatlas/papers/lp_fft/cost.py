"""The work of lp_fft's jobs."""

from collections.abc import Mapping

from dpatlas.config.sizes import array_mb, draws_records, features_mb
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
from dpatlas.papers.lp_fft.records.strategies import Strategies as AnyStrategies
from dpatlas.papers.lp_fft.records.strategies_tuning import Spec as StrategiesTuning
from dpatlas.papers.lp_fft.records.umap import Spec as Umap
from dpatlas.papers.lp_fft.strategies import STRATEGIES

# scikit-learn takes as long to load as torch, UMAP and its compiler three times as long.
SKLEARN_STARTS, UMAP_STARTS = 1, 6
# Visits of every number of a small network in one step of a solver.
SWEEPS_PER_STEP = 20
# Upper bounds in MB: interpreter, torch and accountants; the same without torch; UMAP's compiler.
LOADED_MB, THEORY_MB, COMPILER_MB = 1200, 700, 500
# Bound on the size of images, activations and per-record gradients, over that of the images.
COPIES = 6


def strategies(fields: Strategies, size: Size, backbone: Backbone) -> Work:
    """Private steps of every phase; the head alone trains on features that are computed once."""
    trainings: dict[str, int] = {name: fields.runs for name in fields.strategies}
    # LP-FFT goes on from LP's head.
    return _trainings(fields, size, backbone, trainings, branched=True)


def strategies_tuning(fields: StrategiesTuning, size: Size, backbone: Backbone) -> Work:
    """Private steps of every phase at every rate; a trial of LP-FFT trains the head in place."""
    trainings: dict[str, int] = {}
    for name in fields.strategies:
        trainings[name] = len(fields.lrs[STRATEGIES[name][-1]]) * fields.tuning_runs
    return _trainings(fields, size, backbone, trainings, branched=False)


def _trainings(
    fields: AnyStrategies,
    size: Size,
    backbone: Backbone,
    trainings: Mapping[str, int],
    *,
    branched: bool,
) -> Work:
    """The work of so many trainings of every strategy at each of its shares."""
    steps = head_steps = in_place = accountings = 0.0
    for name, count in trainings.items():
        parts = STRATEGIES[name]
        shares = [1.0]
        if len(parts) == 2:
            listed = fields.control_shares if parts[0] == parts[1] else fields.shares
            # Shares of 0 and 1 are strategies of one phase.
            shares = [share for share in listed if 0 < share < 1]
        for share in shares:
            phase_shares = (share, 1 - share) if len(parts) == 2 else (1.0,)
            for part, phase_share in zip(parts, phase_shares, strict=True):
                phase_steps = count * phase_share * fields.steps
                if part != HEAD:
                    steps += phase_steps
                elif set(parts) == {HEAD}:
                    head_steps += phase_steps
                elif not branched:
                    in_place += phase_steps
            accountings += 1
    views = fields.augmentation.views if fields.augmentation else 1
    calibrated = CALIBRATION_POINTS if fields.level.epsilon is not None else 0
    # A forward pass, which is all that the frozen layers take, is a quarter of a private step's.
    visits = (steps + in_place / 4) * fields.batch * views
    counts = {
        **private_passes(backbone.model, size.inputs, visits, backbone.options),
        "steps": (steps + head_steps + in_place) * VISITS_PER_UPDATE,
        "accountings": accountings + calibrated,
        "starts": PRIVATE_STARTS,
    }
    numbers = accountings * (max(trainings.values()) + 60)
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def feature_quality(fields: FeatureQuality, size: Size, backbone: Backbone) -> Work:
    """Private steps; at every evaluation the features of both tasks and their neighbours."""
    runs = 2 * len(fields.head_scales) * len(fields.lrs) * fields.runs
    # Half of the runs spend lp_steps on the head alone, in which the features do not move: about a
    # quarter of the evaluations are known beforehand.
    trained = runs * (fields.steps - fields.lp_steps / 2)
    evaluations = runs * len(fields.at) * 0.75
    evaluated = evaluations * (size.n_train + fields.public_known + fields.public_asked)
    # A forward pass is about a quarter of a private step's visit.
    visits = trained * fields.batch + evaluated / 4
    counts = {
        **private_passes(backbone.model, size.inputs, visits, backbone.options),
        "steps": (trained + evaluations) * VISITS_PER_UPDATE,
        "accountings": 1,
        "starts": PRIVATE_STARTS + SKLEARN_STARTS,
    }
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 3 * len(fields.at) * runs)


def umap(fields: Umap, size: Size, backbone: Backbone) -> Work:
    """A training and three pictures for every length of LP, in every run."""
    trainings = len(fields.lp_steps) * fields.runs
    steps = trainings * fields.fft_steps + sum(fields.lp_steps) * fields.runs
    counts = {
        **private_passes(backbone.model, size.inputs, steps * fields.batch, backbone.options),
        "steps": steps * VISITS_PER_UPDATE,
        "accountings": trainings,
        "starts": PRIVATE_STARTS + UMAP_STARTS,
    }
    numbers = 3 * trainings * 2 * fields.points
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def dynamics(fields: Dynamics, size: Size, backbone: Backbone | None) -> Work:
    """Simulated paths of small networks."""
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
    """Draws of networks, and the training of some of them."""
    after, clusters = fields.after_probing, fields.clusters
    steps = after.lp_span / after.lp_step + after.fft_spans[-1] / after.step
    trained = len(after.angles) * after.runs * steps * after.records * after.hidden
    drawn = clusters.trials * sum(clusters.hs) * clusters.records
    return Work({"elements": SWEEPS_PER_STEP * (trained + drawn)}, 2 * RECORD_BYTES)


def sensitivity(fields: Sensitivity, size: Size, backbone: Backbone | None) -> Work:
    """Gradient steps of small linear networks."""
    start, drift = fields.start, fields.drift
    evaluated = sum(start.seeds * d * d for d in start.dims) * start.records_per_input
    trained = drift.seeds * drift.steps * drift.d**2
    return Work({"elements": start.hidden * (evaluated + trained)}, 2 * RECORD_BYTES)


def imbalance(fields: Imbalance, size: Size, backbone: Backbone | None) -> Work:
    """Simulated paths of small linear networks; the eigenvalues cost little."""
    sweeps = 0.0
    for part in (fields.gap, fields.drift):
        sweeps += part.paths * part.steps * part.inputs * part.hidden * SWEEPS_PER_STEP
    return Work({"elements": sweeps}, 2 * RECORD_BYTES)


def takes_features(fields: AnyStrategies) -> bool:
    """Whether some strategy trains the head alone, on features computed once for all runs."""
    on_features = any(set(STRATEGIES[name]) == {HEAD} for name in fields.strategies)
    return fields.augmentation is None and on_features and not draws_records(fields.data)


def private_mb(fields: PrivateFields) -> int:
    """Peak memory of a private job in MB."""
    images, more = array_mb(fields.data), 0.0
    if isinstance(fields, FeatureQuality):
        images += array_mb(fields.public_data)
    elif isinstance(fields, AnyStrategies) and takes_features(fields):
        more = features_mb(fields.data)
    elif isinstance(fields, Umap):
        more = COMPILER_MB
    return round(LOADED_MB + COPIES * images + more)


def theory_mb(fields: SpecFields) -> int:
    """Peak memory in MB of a job without a data set."""
    return THEORY_MB


KINDS = {
    "strategies": JobCost(
        strategies,
        private_mb,
        lower=("max_physical_batch", "batch", "data.n_train"),
        gpu=True,
        takes_features=takes_features,
    ),
    "strategies_tuning": JobCost(
        strategies_tuning,
        private_mb,
        lower=("max_physical_batch", "batch", "tuning_runs"),
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
