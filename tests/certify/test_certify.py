"""`certify`: its parts give its number, it is valid, and no prior sees what it must not."""

import json
import math
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import beta, binom
from torch import nn

from dpatlas.base.seeds import Noise
from dpatlas.certify import Settings, certify
from dpatlas.certify.network import chain
from dpatlas.certify.posterior import count_errors
from dpatlas.certify.priors import PriorProblem, make_prior
from dpatlas.commands import certify as command
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.kappa import kappa, kappa_repaired
from dpatlas.models.mean_field import MeanField, flat_values
from dpatlas.models.mean_field_passes import sampled_outputs
from shown_commands import DOCS, commands, written_files

QUICK = Settings(epochs=3, prior_epochs=5, batch=20)
FEW = {"taus": (0.05, 0.2), "draws": 2000, "seed": 1, "settings": QUICK}


def network(inputs=4, hidden=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def records(n=120, seed=0):
    """Labels that the first value decides."""
    x = np.random.default_rng(seed).normal(size=(n, 4))
    return x, (x[:, 0] > 0).astype(int)


def kl(q, p):
    return sum(a * math.log(a / b) for a, b in ((q, p), (1 - q, 1 - p)) if a)


def by_hand(row, report):
    """Clopper-Pearson and the inverse of kl, by other routines than the package's."""
    shares, count = report.delta_parts, len(report.rows) // 2
    errors = round(row.risk * report.draws)
    level = shares["Monte Carlo"] / (2 * count)
    limit = beta.ppf(1 - level, errors + 1, report.draws - errors)
    root = 2 * count * math.sqrt(report.n)
    paid = row.kl + report.kappa + math.log(root / shares["PAC-Bayes bound"])
    return brentq(lambda p: kl(limit, p) - paid / report.n, limit, 1 - 1e-12)


@pytest.fixture(scope="module", params=["initialisation", "held-out", "dp-sgd"])
def report(request):
    return certify(network(), *records(), prior=request.param, delta=0.1, **FEW)


def test_every_certificate_follows_from_its_parts(report):
    prior = report.prior
    assert sum(report.delta_parts.values()) == pytest.approx(report.delta, rel=1e-12)
    assert [(row.tau, row.trained) for row in report.rows] == [
        (tau, trained) for tau in FEW["taus"] for trained in (True, False)
    ]
    shown = re.findall(r"^\S+ +(?:yes|prior) .* (\S+)$", str(report), re.MULTILINE)
    for row, printed in zip(report.rows, map(float, shown), strict=True):
        expected = by_hand(row, report)
        assert row.certificate == pytest.approx(expected, rel=1e-8)
        assert row.certificate <= printed < row.certificate + 1e-4
        assert row.kl == 0 or row.trained
    assert report.certificate == min(row.certificate for row in report.rows)
    assert report.n == (60 if prior == "held-out" else 120)
    assert (report.kappa > 0) == (report.delta_parts["max-information"] > 0) == (prior == "dp-sgd")


def test_the_kl_is_that_of_the_posterior_from_its_prior(monkeypatch):
    def shifted_and_wider(network, centre, tau, *given, **named):
        return MeanField.around(network, centre + 0.1, 2 * tau)

    monkeypatch.setattr("dpatlas.certify.certificate.train_posterior", shifted_and_wider)
    report = certify(network(), *records(), prior="initialisation", **FEW)
    for row in report.rows[::2]:
        each = (2**2 + (0.1 / row.tau) ** 2 - 1) / 2 - math.log(2)
        assert row.kl == pytest.approx(report.parameters * each, rel=1e-4)


def test_kappa_is_the_form_whose_proof_has_no_gap_and_the_printed_one_stands_beside_it():
    settings = Settings(epochs=1, private_epochs=2, private_batch=30, noise_multiplier=50.0)
    quick = {**FEW, "settings": settings}
    report = certify(network(), *records(), prior="dp-sgd", **quick)
    setting = (30, 1.0, 50.0, 4, 2, 0.025)
    assert report.kappa == kappa_repaired(*setting, moment="minimum")
    assert report.kappa_printed == kappa(*setting)
    assert report.kappa > kappa_repaired(*setting[:4], 1, 0.025, moment="minimum")
    assert "as printed" in report.paid


def coin_records(n, seed):
    """Labels that are fair coins: every network errs with probability 1/2 on new records."""
    draws = np.random.default_rng(seed)
    return draws.normal(size=(n, 20)).astype(np.float32), draws.integers(0, 2, n)


# Few records, many weights and large steps: posteriors that fit the coins.
FIT = Settings(epochs=30, lr=0.05, prior_epochs=60, prior_lr=0.02, batch=20)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["initialisation", "held-out", "dp-sgd"])
def test_certificates_fail_no_more_often_than_delta_where_the_risk_is_known(prior):
    failures, runs = 0, 8
    for seed in range(runs):
        x, y = coin_records(60, seed)
        quick = {"taus": (0.1, 0.5), "draws": 1000, "settings": FIT, "seed": seed}
        report = certify(network(20, 20, seed), x, y, prior=prior, delta=0.1, **quick)
        failures += any(row.certificate < 0.5 for row in report.rows)
    assert failures <= binom.ppf(0.999, runs, 0.1)


def test_the_simulation_notices_a_prior_that_has_seen_the_certified_records():
    x, y = coin_records(60, 0)
    noise = Noise("seen", "keyed")
    records = torch.from_numpy(x), torch.from_numpy(y)
    settings = Settings(prior_epochs=200, prior_lr=0.02, held_out=0.95)
    prior = make_prior(
        "held-out", PriorProblem(chain(network(20, 20)), *records, settings, noise), 0
    )
    model = network(20, 20)
    torch.nn.utils.vector_to_parameters(prior.centre, model.parameters())
    quick = {"taus": (0.02,), "draws": 5000, "seed": 0, "settings": QUICK}
    assert certify(model, x, y, prior="initialisation", **quick).certificate < 0.5


def test_a_held_out_prior_never_sees_the_certified_records():
    x, y = (torch.as_tensor(each) for each in records())
    x = x.float()
    given = QUICK, Noise("held", "keyed")
    first = make_prior("held-out", PriorProblem(chain(network()), x, y, *given), 0.0)
    changed, labels = x.clone(), y.clone()
    changed[first.certified] = 1e6
    labels[first.certified] = 1
    again = make_prior("held-out", PriorProblem(chain(network()), changed, labels, *given), 0.0)
    assert torch.equal(first.centre, again.centre)
    others = np.setdiff1d(np.arange(len(x)), first.certified)
    assert len(others) == len(first.certified) == 60
    changed[others[0]] += 1
    moved = make_prior("held-out", PriorProblem(chain(network()), changed, labels, *given), 0.0)
    assert not torch.equal(first.centre, moved.centre)


def test_a_plain_held_out_bound_stands_beside_every_certificate(report):
    x, y = records()
    noise, arrays = Noise("certify/1", "keyed"), (torch.from_numpy(x).float(), torch.from_numpy(y))
    of_split = make_prior("held-out", PriorProblem(chain(network()), *arrays, QUICK, noise), 0)
    model = network()
    torch.nn.utils.vector_to_parameters(of_split.centre, model.parameters())
    chosen = of_split.certified
    errors = int((model(arrays[0][chosen]).argmax(1) != arrays[1][chosen]).sum())
    plain = report.held_out
    assert (plain.learnt, plain.n, plain.errors) == (60, 60, errors) and 0 < errors < 60
    assert plain.limit == pytest.approx(beta.ppf(0.9, errors + 1, 60 - errors), rel=1e-7)
    assert report.tighter == ("held-out" if plain.limit < report.certificate else "certificate")
    values, said = report.as_dict(), " ".join(str(report).split())
    assert values["held_out"]["limit"] == plain.limit and values["tighter"] == report.tighter
    word = "tighter" if report.tighter == "held-out" else "looser"
    assert f"{word} than the certificate by 0." in said
    assert f"60 records errs on {errors} of 60 others, so at most this with probability 0.9" in said


def test_the_held_out_bound_says_which_is_tighter_and_where_there_is_none(report):
    loose = replace(report, held_out=replace(report.held_out, limit=report.certificate + 0.1))
    assert loose.tighter == "certificate"
    assert "looser than the certificate by 0.1000" in str(loose)
    equal = replace(report, held_out=replace(report.held_out, limit=report.certificate))
    assert equal.tighter == "neither" and "equal to the certificate" in str(equal)
    single = certify(network(), *records(1), prior="initialisation", **FEW)
    assert single.held_out is None and single.as_dict()["tighter"] is None
    assert "held-out bound: none" in str(single)


def test_every_tau_of_the_grid_is_paid_for():
    alone, among = (
        certify(network(), *records(), **{**FEW, "taus": taus}).rows[1]
        for taus in ((0.05,), (0.05, 0.1, 0.2))
    )
    assert (alone.risk, alone.kl) == (among.risk, among.kl)
    assert alone.certificate < among.certificate


def test_trainings_that_diverge_have_the_certificate_1():
    steps = Settings(epochs=3, lr=1e30, batch=20)
    report = certify(
        network(), *records(), prior="initialisation", **{**FEW, "taus": (0.05,), "settings": steps}
    )
    posterior, prior = report.rows
    assert posterior.certificate == 1 and math.isinf(posterior.kl)
    assert report.certificate == prior.certificate
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["grid"][0]["kl"] is None
    steps = Settings(prior_epochs=3, prior_lr=1e30, batch=20)
    report = certify(network(), *records(), **{**FEW, "settings": steps})
    assert report.certificate == report.held_out.limit == 1 and "vacuous" in str(report)


def test_a_seed_repeats_a_report_and_leaves_torch_and_the_model_alone():
    model, (x, y) = network(), records()
    before, state = flat_values(model), torch.get_rng_state()
    first = certify(model, x, y, redraw=True, **FEW)
    assert torch.equal(before, flat_values(model)) and torch.equal(state, torch.get_rng_state())
    assert first.rows == certify(model, x, y, redraw=True, **FEW).rows
    assert first.rows != certify(model, x, y, redraw=True, **{**FEW, "seed": 2}).rows
    assert first.rows != certify(model, x, y, **FEW).rows


def test_a_test_set_is_counted_and_chooses_nothing():
    x, y = records()
    without = certify(network(), x, y, **FEW)
    x_test, y_test = records(50, 1)
    with_it = certify(network(), x, y, x_test=x_test, y_test=y_test, **FEW)
    wrong = certify(network(), x, y, x_test=x_test, y_test=1 - y_test, **FEW)
    assert without.rows == with_it.rows == wrong.rows and without.test_error is None
    assert with_it.test_error == pytest.approx(1 - wrong.test_error)


def images(seed=0):
    torch.manual_seed(seed)
    conv = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(conv, nn.Flatten(), nn.Linear(12, 2))


@pytest.mark.parametrize(("model", "shape"), [(network(), (4,)), (images(), (1, 4, 4))])
def test_counts_agree_with_weights_that_are_drawn_for_every_pair(model, shape):
    law = MeanField.around(chain(model), flat_values(model), 0.3)
    draws, x = 20_000, torch.ones(1, *shape)
    generator = torch.Generator().manual_seed(3)
    zeros = torch.zeros(1, dtype=torch.int64)
    found = count_errors(law, x, zeros, np.zeros(draws, np.int64), generator) / draws
    normals = torch.randn(draws, len(law.mean), generator=generator)
    weights = law.mean + law.deviation * normals
    expected = (sampled_outputs(law, weights, x.expand(draws, *shape)).argmax(1) != 0).double()
    assert 0.02 < found < 0.98
    assert abs(found - float(expected.mean())) < 5 * math.sqrt(2 * 0.25 / draws)


def hooked(part, kind="forward"):
    getattr(part, f"register_{kind}_hook")(lambda *_: None)
    return part


def scaled(part):
    """With a parameter that the formulas for the layer do not know."""
    part.register_parameter("scale", nn.Parameter(torch.ones(1)))
    return part


def resized(layer, outputs):
    """Parameters of another number of outputs than the layer says that it has."""
    layer.weight = nn.Parameter(torch.zeros(outputs, layer.in_features))
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer


def with_own(part, name="forward"):
    setattr(part, name, lambda *given: given[0] - given[0].mean(0) if given else None)
    return part


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


def after(first):
    """A part, then a linear layer of two classes."""
    return {"model": nn.Sequential(first, nn.Linear(4, 2))}


def of_images(*parts):
    """Parts for records of 4 x 4 values without channels."""
    model = nn.Sequential(*parts, nn.Flatten(), nn.Linear(16, 2))
    return {"model": model, "x": np.ones((120, 4, 4))}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))}, "BatchN"),
        ({"model": nn.Sequential(nn.Conv2d(1, 2, 5), nn.Flatten(), nn.Linear(2, 2))}, "Conv2d"),
        ({"model": nn.Sequential(nn.Linear(4, 2), nn.ReLU())}, "as the last"),
        ({"model": nn.Sequential(nn.Linear(4, 4), layer := nn.Linear(4, 4), layer)}, "twice"),
        ({"model": nn.LSTM(4, 2)}, "LSTM"),
        ({"model": nn.Sequential()}, "no part"),
        ({"model": nn.Sequential(nn.Linear(5, 2))}, "fails on records"),
        (after(nn.utils.spectral_norm(nn.Linear(4, 4))), "part 0 (Linear) with a forward hook"),
        (after(hooked(nn.ReLU(), "forward_pre")), "part 0 (ReLU) with a forward hook"),
        ({"model": hooked(network())}, "Sequential with a forward hook"),
        (after(scaled(nn.Linear(4, 4))), "part 0 (Linear)"),
        (after(nn.Linear(4, 4, device="meta")), "weights on the meta device"),
        (of_images(nn.MaxPool2d(2, return_indices=True)), "MaxPool2d that gives a tuple"),
        (of_images(nn.Conv2d(2, 2, 3, padding=1)), "Conv2d fails on records of shape (4, 4)"),
        # Layers whose formulas would be of other layers.
        ({"model": nn.Sequential(resized(nn.Linear(4, 1), 10))}, "part 0 (Linear)"),
        (after(with_own(nn.Identity())), "part 0 (Identity) with a forward of its own"),
        ({"model": with_own(network())}, "Sequential with a forward of its own"),
        (
            after(with_own(nn.Linear(4, 4), "reset_parameters")),
            "part 0 (Linear) with a reset_parameters of its own",
        ),
        ({"model": tied()}, "layers that share weights"),
        ({"x": np.zeros((120, 3, 4))}, "flat records"),
        ({"x": np.full((120, 4), np.nan)}, "not finite"),
        ({"x": [["a"]]}, "array of numbers"),
        ({"y": np.zeros(119, int)}, "y: found"),
        ({"y": np.zeros(120)}, "whole numbers"),
        ({"y": np.full(120, 2)}, "labels from 2 to 2"),
        ({"x_test": np.zeros((3, 4))}, "both or neither"),
        ({"x_test": np.zeros((3, 5)), "y_test": np.zeros(3, int)}, "that of x"),
        ({"taus": 0.1}, "taus: found 0.1; allowed: a sequence of numbers"),
        ({"taus": (0.1, 0.1)}, "none twice"),
        ({"prior": "dp-sgd", "settings": Settings(private_batch=121)}, "private_batch"),
        # What is no single value, or no array.
        ({"delta": np.array([0.05, 0.1])}, "delta: found"),
        ({"delta": 5e-324}, "delta: found"),
        ({"draws": np.array([5, 6])}, "draws: found"),
        ({"draws": torch.tensor(500.5)}, "draws: found"),
        ({"seed": np.array([1, 2])}, "seed: found"),
        ({"taus": np.array(0.1)}, "taus: found"),
        ({"taus": (1e-25,)}, "taus: found"),
        ({"settings": {}}, "settings: found"),
        ({"redraw": "no"}, "redraw: found"),
        ({"x": [[1.0, 2.0], [3.0]]}, "x: found"),
        ({"x": np.ma.masked_array(np.ones((120, 4)), np.ones((120, 4)))}, "x: found"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, said):
    x, y = records()
    arguments = {"model": network(), "x": x, "y": y, **FEW, **change}
    with pytest.raises(InputError) as caught:
        certify(**arguments)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [{"lr": 0.0}, {"held_out": 1.0}, {"batch": 1.5}, {"lr": np.array([1.0, 2.0])}],
)
def test_settings_that_are_no_single_values_in_their_ranges_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Settings(**settings)


SCRIPT = """from torch import nn
def make_model():
    return nn.Sequential(nn.Linear(4, 2))
def broken():
    raise ValueError('no weights')
def number():
    return 3
def leaves():
    raise SystemExit(0)
class Stop(BaseException):
    pass
def stops():
    raise Stop('no more')
def talks():
    print('here it is')
    return make_model()
"""


@pytest.fixture
def files(tmp_path):
    """A script with a model, and its data."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    x, y = records()
    np.savez(tmp_path / "data.npz", x=x, y=y, x_test=x[:10], y_test=y[:10])
    np.savez(tmp_path / "other.npz", x=x)
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 nothing")
    return tmp_path


SHORT = ("--tau", 0.1, "--draws", 500, "--seed", 3, "--set", "epochs=2", "--set", "prior_lr=0.01")


@pytest.mark.parametrize("chosen", [{}, {"prior": "initialisation", "delta": 0.1, "redraw": True}])
def test_the_command_prints_what_certify_returns(result_of, files, chosen):
    words = [f"{files}/mine.py:talks", "--data", files / "data.npz", *SHORT]
    for name, value in chosen.items():
        words += [f"--{name}"] if value is True else [f"--{name}", value]
    code, out, errors = result_of(command.main, *words, "--json")
    torch.manual_seed(3)
    x, y = records()
    given = {"x": x, "y": y, "x_test": x[:10], "y_test": y[:10], "taus": (0.1,), "draws": 500}
    given |= {"seed": 3, "settings": Settings(epochs=2, prior_lr=0.01)}
    report = certify(nn.Sequential(nn.Linear(4, 2)), **given, **chosen)
    expected = json.loads(json.dumps(report.as_dict()))
    assert code == 0 and {**json.loads(out), "seconds": 0} == {**expected, "seconds": 0}
    assert "here it is" in errors
    code, out, _ = result_of(command.main, *words)
    assert code == 0 and "randomised network" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{}/mine.py:nothing", "--data", "{}/data.npz"), "no function nothing"),
        (("{}/mine.py", "--data", "{}/data.npz"), "FILE.py:FUNCTION that returns the model"),
        (("{}/mine.py:broken", "--data", "{}/data.npz"), "no weights at mine.py:5"),
        (("{}/mine.py:leaves", "--data", "{}/data.npz"), "SystemExit: 0 at mine.py:9"),
        (("{}/mine.py:stops", "--data", "{}/data.npz"), "Stop: no more at mine.py:13"),
        (("{}/mine.py:number", "--data", "{}/data.npz"), "found int"),
        (("{}/mine.py:make_model", "--data", "{}/none.npz"), "no file"),
        (("{}/mine.py:make_model", "--data", "{}/other.npz"), "with x;"),
        (("{}/mine.py:make_model", "--data", "{}/damaged.npz"), "damaged"),
        (("{}/mine.py:make_model", "--data", "{}/data.npz", "--set", "speed=3"), "speed=3"),
        (("{}/mine.py:make_model", "--data", "{}/data.npz", "--set", "epochs=x"), "--set epochs"),
        (
            ("{}/mine.py:make_model", "--data", "{}/data.npz", "--set=epochs=1", "--set=epochs=2"),
            "--set epochs: found 1 and 2; allowed: one value",
        ),
        (("{}/mine.py:make_model", "--data", "{}/data.npz", "--seed", "-1"), "--seed"),
        (("{}/mine.py:make_model",), "--data"),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line_and_exit_code_2(refusal_of, files, words, said):
    assert said in refusal_of(command.main, *(word.format(files) for word in words))


@pytest.mark.slow
def test_what_the_page_shows_certifies_digits(tmp_path):
    page = DOCS / "certify.md"
    for name, content in written_files(page).items():
        (tmp_path / name).write_text(content)
    subprocess.run([sys.executable, "save_digits.py"], cwd=tmp_path, check=True)
    (line,) = [line for line in commands(page) if line.startswith("dpatlas certify my_model")]
    words = [sys.executable, "-m", *shlex.split(line), "--json"]
    done = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["test_error"] < found["certificate"] < 0.15
    text = page.read_text()
    assert f"at most {math.ceil(1000 * found['certificate']) / 1000} " in text
    plain = found["held_out"]
    assert found["tighter"] == "held-out"
    assert f"errs on {plain['errors']} of the {plain['n']} others" in text
    assert f"at most {math.ceil(1000 * plain['limit']) / 1000} " in text
