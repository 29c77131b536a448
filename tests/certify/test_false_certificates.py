"""Inputs for which `certify` stated a bound below the error: counted as errors, or refused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from dpatlas.certify import Settings, certify
from dpatlas.errors import InputError
from dpatlas.models.mean_field_passes import misclassified
from dpatlas.privacy import FullBatch, Noise, PrivateTraining, TrainingPhase, load_weights

QUICK = {"prior": "initialisation", "taus": (0.1,), "draws": 2000, "seed": 1}
QUICK["settings"] = Settings(epochs=1)


def network(*between):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), *(between or [nn.ReLU()]), nn.Linear(8, 2))


def records(n=300):
    """Normal values; labels of which one in ten is 1, whatever the values."""
    draws = np.random.default_rng(0)
    return draws.normal(size=(n, 4)), (draws.random(n) > 0.9).astype(int)


def error_of_drawn_weights(model, tau, x, y, draws=300):
    """Share of errors of the model around its weights, each drawn in float64 for one record."""
    generator, drawn = torch.Generator().manual_seed(7), copy.deepcopy(model).double()
    centre = [value.detach().clone() for value in drawn.parameters()]
    errors = 0
    with torch.no_grad():
        for _ in range(draws):
            for value, mean in zip(drawn.parameters(), centre, strict=True):
                normals = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
                value.copy_(mean + tau * normals)
            i = int(torch.randint(len(x), (), generator=generator))
            errors += int(drawn(torch.from_numpy(x[i : i + 1])).argmax()) != int(y[i])
    return errors / draws


def behind_a_squash():
    """Records that the model gets wrong, with squares that float32 does not hold."""
    model, x = network(nn.Tanh()), 1e20 * np.abs(records()[0])
    return model, x, 1 - model(torch.from_numpy(x).float()).argmax(1).numpy()


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [(network(), 2e30 * np.exp(records()[0]), records()[1]), behind_a_squash()],
    ids=["records of 1e30", "hidden by tanh"],
)
def test_squares_that_float32_does_not_hold_count_as_errors(model, x, y):
    report = certify(model, x, y, **QUICK)
    assert report.prior_certificate >= error_of_drawn_weights(model, 0.1, x, y) > 0.4


def test_records_of_any_size_that_float32_squares_are_counted():
    x, y = records()
    for size in (1e-6, 1.0, 1e6):
        report = certify(network(), size * x, y, **QUICK)
        assert report.certificate < 1
        assert report.prior_certificate > error_of_drawn_weights(network(), 0.1, size * x, y)


def test_a_private_prior_whose_outputs_are_no_numbers_has_the_certificate_1():
    x, y = records()
    deep = network(nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    settings = Settings(epochs=1, private_lr=1e20)
    report = certify(deep, x, y, **{**QUICK, "prior": "dp-sgd", "settings": settings})
    assert report.certificate == 1


def test_ties_and_outputs_that_are_not_finite_are_errors():
    nan, inf = np.nan, np.inf
    rows = [[1, 0], [0, 0], [nan, 0], [0, nan], [inf, 0], [0, -inf], [nan, nan], [0, 1]]
    logits, labels = torch.tensor(rows), torch.zeros(len(rows), dtype=torch.int64)
    assert misclassified(logits, labels).tolist() == [False] + [True] * 7


def of_coins(n=60):
    """Labels that are fair coins, which no network predicts."""
    draws = np.random.default_rng(2)
    x, y = draws.normal(size=(n, 4)), draws.integers(0, 2, n)
    return torch.from_numpy(x).float(), torch.from_numpy(y)


def private(model, x, y, steps=3):
    phase = TrainingPhase(FullBatch(len(x)), 1.0, max_grad_norm=1.0, steps=steps, lr=0.5)
    training = PrivateTraining(model, [phase], x, y, noise=Noise())
    training.run()
    return training


@pytest.mark.parametrize("prior", ["initialisation", "held-out", "dp-sgd"])
def test_weights_of_a_private_training_are_refused(prior, tmp_path):
    x, y = of_coins()
    model, arguments = network(), {**QUICK, "prior": prior}
    training = private(model, x, y)
    training.save(tmp_path / "saved")
    loaded = network()
    load_weights(tmp_path / "saved", loaded)
    for each in (model, loaded):
        with pytest.raises(InputError) as caught:
            certify(each, x, y, **arguments)
        said = str(caught.value)
        assert "model: found weights that a private training left" in said and "\n" not in said
        assert "redraw=True" in said
        assert certify(each, x, y, redraw=True, **arguments).certificate > 0.5
    # Whose records were others says so.
    assert certify(copy.deepcopy(model), *of_coins(80), **arguments).n > 0
    with torch.no_grad():
        for value in model.parameters():
            value.normal_()
    assert certify(model, x, y, **arguments).certificate > 0.5


def test_the_report_says_what_the_certificate_rests_on():
    (x, y), others = records(100), np.random.default_rng(5).normal(size=(100, 4))
    new = certify(network(), x, y, x_test=others, y_test=y, **QUICK)
    said = " ".join(str(new).split())
    assert "independent draws" in said and "has seen none of them" in said
    assert new.duplicates == new.test_overlap == 0 and "are equal to another one" not in said
    assert "on 100 records, which chose nothing" in said
    # A test set of known records is not said to have chosen nothing.
    both = np.concatenate([x[:30], others[:70]])
    arrays = np.tile(x, (3, 1)), np.tile(y, 3)
    known = certify(network(), *arrays, x_test=both, y_test=y, **QUICK)
    assert known.duplicates == 200 and "200 records are equal to another one" in str(known)
    assert known.test_overlap == 30 and "chose nothing" not in str(known)
    assert "on 100 records, of which 30 are among the records too" in str(known)


@pytest.mark.parametrize(
    ("delta", "said"), [(0.05, "0.95"), (1e-8, "1 - 1e-08"), (0.01234546, "1 - 0.0123455")]
)
def test_no_probability_is_rounded_up(delta, said):
    report = certify(network(), *records(100), **{**QUICK, "delta": delta})
    assert f"is at most this with probability {said}\n" in str(report)


def test_what_a_script_has_set_for_torch_changes_no_digit_and_stays():
    x, y = records(100)
    expected = certify(network(), x, y, **QUICK)
    with torch.inference_mode():
        assert certify(network(), np.ma.array(x), y, **QUICK).rows == expected.rows
    single = {"delta": torch.tensor(0.05, dtype=torch.float64), "draws": np.int64(2000)}
    assert certify(network(), torch.from_numpy(x), y, **{**QUICK, **single}).rows == expected.rows
    dtype = torch.get_default_dtype()
    for device in ("cpu", "meta"):
        model = network()
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device(device), torch.no_grad():
                assert certify(model, x, y, **QUICK).rows == expected.rows
                assert torch.get_default_dtype() == torch.float64
                assert torch.get_default_device() == torch.device(device)
                assert not torch.is_grad_enabled()
        finally:
            torch.set_default_dtype(dtype)
