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


def resized(layer, outputs):
    """Parameters of another number of outputs than the layer says that it has."""
    layer.weight = nn.Parameter(torch.zeros(outputs, layer.in_features))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer


def shared_bias(layer):
    layer.bias = nn.Parameter(torch.zeros(1))
    return layer


def with_own(part, name="forward"):
    setattr(part, name, lambda *given: given[0] - given[0].mean(0) if given else None)
    return part


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(resized(nn.Linear(4, 1), 10)), "part 0 (Linear)"),
        (nn.Sequential(resized(nn.Linear(4, 3), 2)), "part 0 (Linear)"),
        (nn.Sequential(shared_bias(nn.Linear(4, 2)), nn.Linear(2, 2)), "part 0 (Linear)"),
        (network(with_own(nn.Identity())), "part 1 (Identity) with a forward of its own"),
        (with_own(network()), "Sequential with a forward of its own"),
        (
            nn.Sequential(with_own(nn.Linear(4, 2), "reset_parameters")),
            "part 0 (Linear) with a reset_parameters of its own",
        ),
        (tied(), "layers that share weights"),
    ],
)
def test_what_the_formulas_for_layers_do_not_know_is_refused(model, said):
    with pytest.raises(InputError) as caught:
        certify(model, *records(), **QUICK)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def of_coins(n=60):
    """Labels that are fair coins, which no network predicts."""
    draws = np.random.default_rng(2)
    return torch.from_numpy(draws.normal(size=(n, 4))).float(), torch.from_numpy(
        draws.integers(0, 2, n)
    )


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
    x, y = records(100)
    said = str(certify(network(), x, y, **QUICK))
    assert "independent draws" in said and "has seen none of them" in " ".join(said.split())
    assert "are equal to another one" not in said
    repeated = certify(network(), np.tile(x, (3, 1)), np.tile(y, 3), **QUICK)
    assert repeated.duplicates == 200
    assert "200 records are equal to another one" in str(repeated)


def test_a_test_set_of_known_records_is_not_said_to_have_chosen_nothing():
    (x, y), others = records(100), np.random.default_rng(5).normal(size=(100, 4))
    new = certify(network(), x, y, x_test=others, y_test=y, **QUICK)
    assert new.test_overlap == 0 and "on 100 records, which chose nothing" in str(new)
    both = np.concatenate([x[:30], others[:70]])
    known = certify(network(), x, y, x_test=both, y_test=y, **QUICK)
    assert known.test_overlap == 30 and "chose nothing" not in str(known)
    assert "on 100 records, of which 30 are among the records too" in str(known)


@pytest.mark.parametrize(
    ("delta", "said"), [(0.05, "0.95"), (1e-8, "1 - 1e-08"), (0.01234546, "1 - 0.0123455")]
)
def test_no_probability_is_rounded_up(delta, said):
    report = certify(network(), *records(100), **{**QUICK, "delta": delta})
    assert f"is at most this with probability {said}\n" in str(report)


@pytest.mark.parametrize(
    "change",
    [
        {"delta": np.array([0.05, 0.1])},
        {"delta": torch.tensor([0.05, 0.1])},
        {"delta": 5e-324},
        {"draws": np.array([5, 6])},
        {"draws": torch.tensor(-5)},
        {"draws": torch.tensor(500.5)},
        {"seed": np.array([1, 2])},
        {"taus": np.array(0.1)},
        {"taus": np.ones((2, 2))},
        {"taus": torch.tensor([0.1, 0.1])},
        {"taus": (1e-25,)},
        {"settings": {}},
        {"redraw": "no"},
        {"x": [[1.0, 2.0], [3.0]]},
        {"x": np.ma.masked_array(np.ones((300, 4)), np.ones((300, 4)))},
        {"redraw": 1},
    ],
)
def test_what_is_no_single_value_or_no_array_is_refused_by_name(change):
    x, y = records()
    with pytest.raises(InputError, match=f"^{next(iter(change))}"):
        certify(**{"model": network(), "x": x, "y": y, **QUICK, **change})


def test_what_a_script_has_set_for_torch_changes_no_digit_and_stays():
    x, y = records(100)
    expected = certify(network(), x, y, **QUICK)
    with torch.inference_mode():
        assert certify(network(), np.ma.array(x), y, **QUICK).rows == expected.rows
    single = {"delta": torch.tensor(0.05, dtype=torch.float64), "draws": np.int64(2000)}
    assert certify(network(), torch.from_numpy(x), y, **{**QUICK, **single}).rows == expected.rows
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        for device in ("cpu", "meta"):
            model = network()
            torch.set_default_dtype(torch.float64)
            torch.set_default_device(device)
            torch.set_grad_enabled(False)
            assert certify(model, x, y, **QUICK).rows == expected.rows
            assert torch.get_default_dtype() == torch.float64
            assert torch.get_default_device() == torch.device(device)
            assert not torch.is_grad_enabled()
            torch.set_default_device(None)
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
