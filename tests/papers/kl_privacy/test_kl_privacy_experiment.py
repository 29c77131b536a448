"""Jobs of kl_privacy: their KL curves, resuming, divergence, the linearised network, refusals."""

import numpy as np
import pytest
import small_jobs
import torch
from figure_samples import select

from dpatlas.base.seeds import Noise
from dpatlas.base.specs import Spec
from dpatlas.data import prepared
from dpatlas.data.prepared import load
from dpatlas.errors import InputError
from dpatlas.models.mlp import initial_weights
from dpatlas.privacy.kl import noisy_step, record_gaps
from dpatlas_workflow.papers.kl_privacy.jobs import linearized as kl_linearized
from dpatlas_workflow.papers.kl_privacy.jobs import training as kl_training
from dpatlas_workflow.papers.kl_privacy.records.training import KlTrainingSpec
from dpatlas_workflow.records import joined, read_record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.run.command import main

COMMON = {name: small_jobs.KL[name] for name in ("key", "seed", "noise_source", "data")}


def run_main(spec, data_folder, folder):
    return small_jobs.run_main(main, spec, data_folder / "manifest.json", folder)


def record_of(spec, data_folder, folder):
    return read_record(run_main(spec, data_folder, folder))


def by_run(record, table, column, **where):
    """A column of a record as an array, (runs,), or (runs, steps) of a table with steps."""
    rows = columns([record], table, **where)
    steps = rows.step if "step" in rows else 0
    return (
        rows.assign(step=steps)
        .pivot(index="run", columns="step", values=column)
        .to_numpy()
        .squeeze()
    )


def sums_of(record):
    """Cumulative KL by record at the last record step."""
    return np.array(record.tables["by_record"][-1]["sums"])


def linearized_spec(**changes):
    fields = {"init": "he", "depths": [2, 3], "width": 64, "n_train": 8, "epsilon": 1.0}
    steps = {"runs": 6, "min_steps": 50, "time": 0.05, "sigma": 0.01}
    steps |= {"widths": [32, 128], "width_depth": 2, "watched": 13}
    fields = {**COMMON, "kind": "linearized", "first_run": 0, **fields, **steps, **changes}
    return Spec.of(fields, f"small-run{fields['first_run']}")


def test_cumulative_kl_is_the_sum_of_the_gaps_of_the_trajectory(
    training_spec, data_folder, tmp_path
):
    """The recorded curve against a plain loop over gaps and steps, which tests/privacy has."""
    spec = training_spec(runs=2, steps=4, width=4, watched=5)
    data = load(data_folder)
    x = torch.from_numpy(np.concatenate([data.x_train, data.x_add]))
    y = torch.from_numpy(np.concatenate([data.y_train, data.y_add]))
    eta, sigma, noise = 0.1, 0.01, Noise(spec.digest, "keyed")
    gaps = np.zeros((2, 4, len(x)))
    for run in range(2):
        start = initial_weights("he", 6, 4, 3, 1, key="kl_privacy", run=run, base_seed=0)
        weights = [torch.from_numpy(weight) for weight in start]
        size = sum(weight.numel() for weight in weights)
        for step in range(4):
            found = record_gaps(weights, x, y, len(data.x_train))
            gaps[run, step] = found.squared_gaps()
            draws = noise.normal(size, repetition=run, step=step, use="step")
            noisy_step(weights, found.gradient, torch.from_numpy(draws), eta, sigma)
    expected = eta * gaps.cumsum(axis=1) / (4 * sigma**2)
    record = record_of(spec, data_folder, tmp_path)
    assert np.allclose(by_run(record, "curves", "kl_max"), expected.max(2), rtol=2e-4)
    assert np.allclose(by_run(record, "curves", "kl_watched"), expected[:, :, 5], rtol=2e-4)
    assert np.allclose(sums_of(record), expected[:, -1].sum(0), rtol=2e-4)
    assert np.allclose(by_run(record, "runs", "gap_max"), gaps[:, 0].max(1), rtol=2e-4)
    assert np.allclose(by_run(record, "runs", "gap_watched"), gaps[:, 0, 5], rtol=2e-4)


def test_runs_that_all_diverged_give_no_statistics(training_spec, data_folder, tmp_path):
    spec = training_spec(lr=1e30, steps=40, init="ntk", depth=2)
    record = record_of(spec, data_folder, tmp_path)
    assert columns([record], "runs").diverged.notna().all()
    assert [row["runs"] for row in record.tables["by_record"]] == [0]
    curves = columns([record], "curves")
    assert len(curves) == 3 * 40 and curves.kl_max.isna().all()
    assert columns([record], "runs").gap_max.isna().all() and not record.tables["probe"]


def test_one_diverged_run_leaves_the_statistics_of_the_others(training_spec):
    fields = KlTrainingSpec.model_validate(training_spec().fields)
    draws = np.random.default_rng(0)

    def result(diverged=0):
        curves = {name: draws.random(12) for name in ("kl_max", "kl_watched", "loss")}
        start = {name: draws.random() for name in ("gap_max", "gap_watched", "norm2")}
        probe = {name: draws.random(4) for name in ("probe_change", "probe_distance")}
        by_record = {"by_record": draws.random((1, 16)), "diverged": diverged}
        return {name: np.array(v) for name, v in (curves | start | probe | by_record).items()}

    results = [result(), result(diverged=6), result()]
    found = kl_training.summary(fields, 12, 4, 6, results)
    assert [row["diverged"] for row in found["runs"]] == [None, 6, None]
    first, _, last = results
    losses = [row["loss"] for row in select(found["curves"], step=fields.shown_steps[3])]
    assert losses == [first["loss"][3], None, last["loss"][3]]
    (sums,) = found["by_record"]
    assert (sums["runs"], sums["run"]) == (2, 2)
    assert np.allclose(sums["sums"], first["by_record"] + last["by_record"])


def test_a_run_of_several_networks_is_their_mean(training_spec, data_folder, tmp_path):
    """Network j of run i starts as run 2 i + j of single networks, with noise of its own."""
    several = record_of(training_spec(networks=2, runs=2), data_folder, tmp_path / "several")
    single = record_of(training_spec(runs=4), data_folder, tmp_path / "single")
    for name in ("gap_max", "norm2"):
        alone = by_run(single, "runs", name).reshape(2, 2)
        assert np.allclose(by_run(several, "runs", name), alone.mean(1), rtol=1e-6)
    # Before any noise, KL is that of the gaps; the largest of a run is a geometric mean.
    kl, alone = (by_run(each, "curves", "kl_max") for each in (several, single))
    first = alone[:, 0].reshape(2, 2)
    assert np.allclose(kl[:, 0], np.exp(np.log(first).mean(1)), rtol=1e-6)
    assert not np.allclose(kl[:, -1], alone[:2, -1], rtol=1e-6)


def test_a_run_is_the_same_in_whatever_block_it_is_but_for_its_noise(
    training_spec, data_folder, tmp_path
):
    """Records and initial weights follow from its number; the noise from the block, too."""
    data = {"name": "small", "redeal": True}
    whole = training_spec(data=data, runs=4)
    block = training_spec(data=data, first_run=2, runs=2)
    of_whole = record_of(whole, data_folder, tmp_path / "whole")
    of_block = record_of(block, data_folder, tmp_path / "block")
    assert of_block.tables["runs"] == of_whole.tables["runs"][2:]
    kl, in_block = (by_run(each, "curves", "kl_max") for each in (of_whole, of_block))
    assert (in_block[:, 0] == kl[2:, 0]).all() and (in_block[:, -1] != kl[2:, -1]).all()
    assert len(set(by_run(of_whole, "runs", "gap_watched"))) == 4
    # The same run on the records as they were prepared is another.
    fixed = record_of(training_spec(runs=4), data_folder, tmp_path / "fixed")
    assert (by_run(fixed, "runs", "norm2") != by_run(of_whole, "runs", "norm2")).all()


def test_sums_by_record_follow_the_records_through_all_deals(training_spec, data_folder, tmp_path):
    """The watched record has one place in the sums, wherever each run deals it."""
    spec = training_spec(data={"name": "small", "redeal": True}, runs=3, watched=14)
    record = record_of(spec, data_folder, tmp_path)
    sums, last = sums_of(record), columns([record], "curves", step=spec.fields["steps"])
    assert sums[14] == pytest.approx(last.kl_watched.sum())
    assert max(sums) <= last.kl_max.sum()


def test_the_linearised_network_has_the_budget_s_bound_and_the_watched_record(
    data_folder, tmp_path
):
    record = record_of(linearized_spec(), data_folder, tmp_path)
    for _, shares in columns([record], "shares").groupby("depth"):
        assert shares.share.max() == 1.0
        assert ((shares.kl_watched > 0) & (shares.kl_watched <= shares.kl_max)).all()
        # Cumulative in the share of the time.
        assert (shares.groupby("run").kl_max.diff().dropna() > 0).all()
        last = shares[shares.share == 1.0]
        assert last.kl_max.mean() < 1.5 * linearized_spec().fields["epsilon"]
    assert np.isfinite(columns([record], "depths").excess_risk).all()
    by_width = columns([record], "widths").groupby("width").R_sphere.mean()
    assert list(by_width.index) == [32, 128] and by_width[128] < by_width[32]


def test_a_block_of_the_linearised_network_joins_to_what_one_job_measures(data_folder, tmp_path):
    """R and the constants of a run are the same in whatever block; noise is not."""
    data = {"name": "small", "redeal": True}
    specs = [
        linearized_spec(data=data, runs=4, depths=[2]),
        linearized_spec(data=data, runs=2, depths=[2]),
        linearized_spec(data=data, first_run=2, runs=2, depths=[2]),
    ]
    paths = [
        run_main(spec, data_folder, tmp_path / str(number)) for number, spec in enumerate(specs)
    ]
    whole, *blocks = map(read_record, paths)
    (together,) = joined(blocks)
    assert together.spec == whole.spec
    constants = ["run", "B", "R", "BR_over_n", "R_sphere", "BR_over_n_sphere", "T"]
    depths, of_whole = (columns([each], "depths") for each in (together, whole))
    assert depths[constants].equals(of_whole[constants])
    assert (depths.kl_fixed != of_whole.kl_fixed)[2:].all()
    assert together.cut(2).tables == blocks[0].tables


def test_linearised_training_without_noise_is_gradient_descent_on_the_linearised_loss():
    """Function space against an explicit parameter vector."""
    draws = np.random.default_rng(1)
    features = draws.standard_normal((6, 9))
    start, sign = draws.standard_normal(6), np.array([1, -1, 1, -1, 1, -1.0])
    n, eta, steps = 4, 0.3, 7
    network = kl_linearized.Linearization(start, features @ features.T)
    trained = kl_linearized.langevin(network, sign, n, eta, 1e-30, steps, lambda step: np.zeros(6))
    w = np.zeros(9)
    kl = np.zeros(6)
    average = np.zeros(4)
    for _ in range(steps):
        f = start + features @ w
        average += f[:n] / steps
        g = (-sign / (1 + np.exp(sign * f)))[:, None] * features
        mean = g[:n].mean(0)
        for i in range(6):
            other = (g[:n].sum(0) - g[i]) / (n - 1) if i < n else (g[:n].sum(0) + g[i]) / (n + 1)
            kl[i] += eta * ((mean - other) ** 2).sum() / (4 * 1e-30)
        w -= eta * mean
    assert np.allclose(trained.kl[-1], kl, rtol=1e-9)
    assert trained.excess_risk == pytest.approx(np.logaddexp(0, -sign[:n] * average).mean())


def test_the_monte_carlo_check_of_b_agrees_with_eq_7(data_folder, tmp_path):
    sizes = {"depths": [2, 3], "width": 12, "outputs": 2, "draws": 600}
    fields = {**COMMON, "kind": "constants", "inits": ["lecun", "xavier"], **sizes}
    for row in record_of(Spec.of(fields, "small"), data_folder, tmp_path).tables["rows"]:
        assert abs(row["mean"] - row["B"]) < 5 * row["standard_error"]


def test_records_that_there_are_not_are_refused(training_spec, data_folder, tmp_path):
    for spec, message in (
        (training_spec(watched=16), "watched: found 16; allowed: a position below 16"),
        (linearized_spec(watched=16), "watched: found 16; allowed: a position below 16"),
        (linearized_spec(n_train=99), "n_train: found 99; allowed: at most 12 records"),
    ):
        with pytest.raises(InputError, match=message):
            run_main(spec, data_folder, tmp_path)


@pytest.mark.parametrize(("depth", "scale"), [(2, 1.0), (3, 2.0)])
def test_records_with_a_singular_ntk_matrix_are_refused(tmp_path, depth, scale):
    """Contradicting labels on one record, or on its multiple, have no solution."""
    x = np.random.default_rng(3).standard_normal((6, 6)).astype(np.float32)
    x[4] = scale * x[1]
    arrays = {"x_train": x, "x_add": x}
    arrays |= {"y_train": np.array([0, 0, 1, 1, 1, 0]), "y_add": np.zeros(6, int)}
    prepared.save(tmp_path / "data", arrays, {"name": "small"})
    spec = linearized_spec(depths=[depth], width=9, n_train=6, runs=2, min_steps=5, watched=0)
    with pytest.raises(InputError, match="data: found 6 records whose NTK matrix is singular"):
        run_main(spec, tmp_path / "data", tmp_path)


def test_the_lazy_training_distance_solves_for_the_outputs_of_the_lemma():
    jacobian = np.random.default_rng(4).standard_normal((5, 30))
    sign = np.array([1.0, -1, 1, 1, -1])
    target = 2 * np.log(5) * sign - 0.3
    step = np.linalg.pinv(jacobian) @ target
    distance = kl_linearized.lazy_training_distance(np.full(5, 0.3), jacobian @ jacobian.T, sign)
    assert distance == pytest.approx(step @ step, rel=1e-9)
