"""Jobs of kl_privacy: their KL curves, resuming, divergence, the linearised network, refusals."""

import numpy as np
import pytest
import small_jobs
import torch

from dpatlas.core.seeds import Noise
from dpatlas.core.specs import Spec
from dpatlas.data import prepared
from dpatlas.data.prepared import load
from dpatlas.errors import InputError, run_command
from dpatlas.jobs.run import main
from dpatlas.models.mlp import initial_weights
from dpatlas.papers.kl_privacy.jobs import linearized as kl_linearized
from dpatlas.papers.kl_privacy.jobs import training as kl_training
from dpatlas.papers.kl_privacy.records import training
from dpatlas.records import read_record

COMMON = {name: small_jobs.KL[name] for name in ("key", "seed", "noise_source", "data")}


def run_main(spec, data_folder, folder):
    return small_jobs.run_main(main, spec, data_folder / "manifest.json", folder)


def metrics_of(spec, data_folder, folder):
    return read_record(run_main(spec, data_folder, folder)).metrics


def linearized_spec(**changes):
    fields = {"init": "he", "depths": [2, 3], "width": 64, "n_train": 8, "epsilon": 1.0}
    steps = {"runs": 6, "min_steps": 50}
    return Spec.of({**COMMON, "kind": "linearized", **fields, **steps, **changes}, "small")


def constants_spec():
    sizes = {"depths": [2, 3], "width": 12, "outputs": 2, "draws": 600}
    inits = ["lecun", "xavier"]
    return Spec.of({**COMMON, "kind": "constants", "inits": inits, **sizes}, "small")


def test_cumulative_kl_is_the_sum_of_the_gaps_of_the_trajectory(
    training_spec, data_folder, tmp_path
):
    """The recorded curve against a plain loop with autograd gradients of every neighbour."""
    spec = training_spec(runs=2, steps=4, width=4)
    data = load(data_folder)
    x = torch.from_numpy(np.concatenate([data.x_train, data.x_add]))
    y = torch.from_numpy(np.concatenate([data.y_train, data.y_add]))
    n, eta, sigma = len(data.x_train), 0.1, 0.01

    def gradient(weights, rows):
        leaves = [weight.clone().requires_grad_() for weight in weights]
        with torch.enable_grad():
            hidden = x[rows]
            for weight in leaves[:-1]:
                hidden = torch.relu(hidden @ weight.T)
            margin = (2 * y[rows] - 1) * (hidden @ leaves[-1].T)[:, 0]
            loss = torch.nn.functional.softplus(-margin).mean()
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, leaves)])

    neighbours = [[j for j in range(n) if j != i] for i in range(n)]
    neighbours += [[*range(n), i] for i in range(n, len(x))]
    expected = np.zeros((2, 4, len(x)))
    for run in range(2):
        start = initial_weights("he", 6, 4, 3, 1, key="kl_privacy", run=run, base_seed=0)
        weights = [torch.from_numpy(weight) for weight in start]
        noise = Noise(spec.digest, "keyed")
        total = np.zeros(len(x))
        for step in range(4):
            base = gradient(weights, list(range(n)))
            gaps = [(gradient(weights, rows) - base).square().sum().item() for rows in neighbours]
            total = total + eta * np.array(gaps) / (4 * sigma**2)
            expected[run, step] = total
            size = sum(weight.numel() for weight in weights)
            draws = noise.normal(size, repetition=run, step=step, use="step")
            flat = torch.cat([weight.flatten() for weight in weights]) - eta * base
            flat = (flat + np.sqrt(2 * eta) * sigma * torch.from_numpy(draws)).float()
            parts = flat.split([weight.numel() for weight in weights])
            weights = [p.view_as(w) for p, w in zip(parts, weights, strict=True)]
    curve = metrics_of(spec, data_folder, tmp_path).kl
    assert np.allclose(curve.worst, expected.mean(0).max(1), rtol=2e-4)
    assert np.allclose(curve.run_max, expected.max(2).T, rtol=2e-4)
    assert np.allclose(curve.mean, expected.mean(0).mean(1), rtol=2e-4)


def test_runs_that_all_diverged_give_no_statistics(training_spec, data_folder, tmp_path):
    spec = training_spec(lr=1e30, steps=40, init="ntk", depth=2)
    metrics = metrics_of(spec, data_folder, tmp_path)
    assert None not in metrics.diverged
    assert metrics.kl is None and metrics.runs_used == 0


def test_one_diverged_run_leaves_the_statistics_of_the_others(training_spec, data_folder):
    fields = training.Spec.model_validate(training_spec().fields)
    data = kl_training.TrainingData.of(load(data_folder), "cpu")
    draws = np.random.default_rng(0)
    steps, records = fields.steps, len(data.x)
    same = {"loss": np.ones(steps), "grad_norm2": np.ones(steps)}
    same |= {"probe_change": np.zeros(4), "probe_distance": np.ones(4)}
    results = [{"kl": draws.random((steps, records)).cumsum(0), **same} for _ in range(3)]
    results[1]["kl"][5:] = np.nan
    metrics = kl_training.summary(fields, data, results)
    assert metrics.diverged == [None, 6, None]
    assert metrics.runs_used == 2
    others = np.stack([results[0]["kl"], results[2]["kl"]]).mean(0).max(1)
    assert np.allclose(metrics.kl.worst, others)


def test_the_bootstrap_interval_covers_the_worst_case_curve(training_spec, data_folder, tmp_path):
    kl = metrics_of(training_spec(), data_folder, tmp_path).kl
    low, worst, high = (np.array(curve) for curve in (kl.low, kl.worst, kl.high))
    assert (low <= worst + 1e-12).all() and (low < high).all()
    # Resampling a maximum of means is biased upwards, so the curve may sit low in its interval.
    assert (worst <= high).all()


def test_the_linearised_network_meets_its_kl_budget_in_the_mean(data_folder, tmp_path):
    for row in metrics_of(linearized_spec(), data_folder, tmp_path).depths:
        assert row.kl_bound[-1] == pytest.approx(1.0)
        assert np.mean(row.kl_worst_runs[-1]) > 0
        assert np.isfinite(row.excess_risk_runs).all()
        assert row.shown_steps[-1] == row.steps >= 50


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
    for row in metrics_of(constants_spec(), data_folder, tmp_path).rows:
        assert abs(row.mean - row.B) < 5 * row.standard_error


def test_more_records_than_there_are_are_refused(data_folder, tmp_path):
    with pytest.raises(InputError, match="n_train: found 99; allowed: at most 12 records"):
        run_main(linearized_spec(n_train=99), data_folder, tmp_path)


@pytest.mark.parametrize(("depth", "scale"), [(2, 1.0), (3, 2.0)])
def test_records_with_a_singular_ntk_matrix_are_refused_in_one_line(tmp_path, capsys, depth, scale):
    """Contradicting labels on one record, or on its multiple, have no solution."""
    draws = np.random.default_rng(3)
    x = draws.standard_normal((6, 6)).astype(np.float32)
    x[4] = scale * x[1]
    arrays = {"x_train": x, "x_add": x}
    arrays |= {"y_train": np.array([0, 0, 1, 1, 1, 0]), "y_add": np.zeros(6, int)}
    prepared.save(tmp_path / "data", arrays, {"name": "small"})
    spec = linearized_spec(depths=[depth], width=9, n_train=6, runs=2, min_steps=5)
    manifest = tmp_path / "data/manifest.json"
    assert run_command(main, small_jobs.arguments(spec, manifest, tmp_path)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "dpatlas:" in line]
    assert line.startswith("dpatlas: kl_privacy.data: found 6 records whose NTK matrix is singular")
    assert not (tmp_path / "record.json").exists()


def test_the_lazy_training_distance_solves_for_the_outputs_of_the_lemma():
    jacobian = np.random.default_rng(4).standard_normal((5, 30))
    sign = np.array([1.0, -1, 1, 1, -1])
    target = 2 * np.log(5) * sign - 0.3
    step = np.linalg.pinv(jacobian) @ target
    distance = kl_linearized.lazy_training_distance(np.full(5, 0.3), jacobian @ jacobian.T, sign)
    assert distance == pytest.approx(step @ step, rel=1e-9)
