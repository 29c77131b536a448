"""Certificates: rows against formulas, pairs that are independent, resuming, refusals."""

import json

import maxinf_small as small
import numpy as np
import pytest
import torch
from maxinf_small import STEPS, N, metrics_of, run, save_data, spec_of
from small_jobs import counted, killed_at

from dpatlas.data import prepared
from dpatlas.errors import InputError, run_command
from dpatlas.jobs import job as job_module
from dpatlas.jobs.run import main
from dpatlas.models.mean_field import flat_values, initial_network
from dpatlas.papers.max_information.formulas.certificates import (
    certificate_exponent,
    certificate_monte_carlo,
    kl_inverse,
    monte_carlo_risk,
)
from dpatlas.papers.max_information.formulas.kappa import kappa_repaired
from dpatlas.papers.max_information.formulas.universe import setting_weight
from dpatlas.papers.max_information.jobs.certificates import selected
from dpatlas.papers.max_information.jobs.posteriors import PosteriorTraining
from dpatlas.papers.max_information.jobs.problem import normalised
from dpatlas.papers.max_information.records.certificates import Row, Selected
from dpatlas.papers.max_information.records.certified import Normalise
from dpatlas.privacy.training import PrivateTraining

DRAWS = 1500
LEVEL = (N, 8, 2, 0.05, 0.0125, 0.025)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def record(data, tmp_path_factory):
    return json.loads(run(spec_of(), data, tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="module")
def rows(record):
    return record["metrics"]["rows"]


def test_there_is_a_row_for_every_run_prior_and_tau(rows):
    found = [(row["run"], row["prior"], row["tau"]) for row in rows]
    kinds = ("independent", "dp-sgd", "noise-only")
    assert found == [(run, kind, tau) for run in (0, 1) for kind in kinds for tau in (0.2, 0.4)]
    tuples = [{name: row[name] for name in small.TUPLE} for row in rows[2:6]]
    assert tuples == [small.TUPLE] * 4
    assert {row["T"] for row in rows[2:6]} == {3}
    assert rows[0]["zeta"] is None and rows[0]["T"] is None


def test_certificates_are_eqs_97_and_98_of_the_rows_own_numbers(rows):
    for row in rows:
        kappa = row["kappa"]["optimised"]
        for law_name, kl in (("prior", 0.0), ("posterior", row["kl"])):
            risk = row[f"risk_{law_name}"]
            assert risk == row[f"errors_{law_name}"] / DRAWS
            expected = certificate_monte_carlo(risk, DRAWS, kl, kappa, *LEVEL)
            assert row[f"certificate_{law_name}"] == pytest.approx(float(expected), rel=1e-12)
        assert row["kl"] > 0.1


def test_only_priors_that_saw_the_records_pay_kappa(rows):
    for row in rows:
        paid = [row["kappa"][form] for form in ("optimised", "explicit", "tight", "repaired")]
        assert all(value > 0 for value in paid) == (row["prior"] == "dp-sgd")
        assert any(paid) == (row["prior"] == "dp-sgd")
        assert row["standing"] == "rigorous"


def test_the_tight_and_the_rigorous_certificate_are_what_they_say(rows):
    for row in rows:
        assert row["certificate_tight"] <= row["certificate_posterior"]
        risk = row["risk_posterior"]
        limit = monte_carlo_risk(risk, DRAWS, 0.0125 / 16, "clopper-pearson")
        exponent = certificate_exponent(row["kl"], row["kappa"]["rigorous"], *LEVEL)
        assert row["certificate_rigorous"] == pytest.approx(float(kl_inverse(limit, exponent)))
        assert row["certificate_rigorous"] >= row["certificate_tight"]


def test_the_universe_certificate_pays_for_its_weight_kappa_and_count(record, rows):
    for row in rows:
        setting = {name: row[name] for name in small.TUPLE} if row["zeta"] else {}
        weight = setting_weight(
            **{"kind": row["prior"], "model": "mlp", "widths": [6], "normalise": None, **setting},
            **{"tau": row["tau"], "tau_is": "deviation", "n": N, "look": 1, "run": row["run"]},
        )
        assert row["universe"]["weight"] == weight
        assert row["universe"]["nats"] == pytest.approx(np.log(1 / weight))
        kappa = 0.0
        if row["prior"] == "dp-sgd":
            kappa = kappa_repaired(8, 0.1, 1.0, 3, 1, 0.025 * weight, moment="minimum")
            assert kappa > row["kappa"]["rigorous"]
        assert row["universe"]["kappa"] == pytest.approx(float(kappa))
        limit = monte_carlo_risk(row["risk_posterior"], DRAWS, 0.0125 * weight, "clopper-pearson")
        left = np.log(2 * np.sqrt(N) / 0.0125)
        expected = kl_inverse(limit, (row["kl"] + kappa + left - np.log(weight)) / N)
        assert row["certificate_universe"] == pytest.approx(float(expected), rel=1e-9)
        assert row["certificate_universe"] > row["certificate_rigorous"]
        assert row["selected_after_a_look"] is False
    assert record["metrics"]["selected_after_a_look"] is False


def test_rows_say_which_looks_they_come_after(data, tmp_path):
    other = {"look": "small-1", "n": N}
    other |= {"K1": 1, "grid": {**small.FIELDS["grid"], "taus": [0.1]}}
    looks = {"number": 2, "registered": True, "others": [other]}
    few = {"looks": looks, "priors": [small.INDEPENDENT], "runs": 1, "draws": 50}
    found = metrics_of(spec_of(**few, K2=3), data, tmp_path)
    (first, _) = metrics_of(spec_of(**few | {"looks": small.LOOKS}), data, tmp_path / "1")["rows"]
    for row in found["rows"]:
        assert row["selected_after_a_look"]
        assert row["looks"] == "look 2 at these records; others: small-1"
        assert row["universe"]["nats"] == pytest.approx(first["universe"]["nats"] + np.log(3))
    with pytest.raises(InputError, match=r"K2: found 2; allowed: a whole number >= 3"):
        run(spec_of(**few), data, tmp_path / "unpaid")


def test_a_certificate_outside_of_the_universe_is_refused_in_one_line(data, tmp_path, capsys):
    grid = {**small.FIELDS["grid"], "taus": [0.123456]}
    spec = spec_of(grid=grid, taus=[0.123456])
    paths = ["--record", str(tmp_path / "record.json"), "--checkpoints", str(tmp_path / "c")]
    arguments = ["--spec", spec.argument, "--data", str(data), *paths]
    assert run_command(main, arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "grid.taus: found 0.123456" in line
    assert not (tmp_path / "record.json").exists()


def test_a_dearer_union_bound_gives_a_larger_certificate(rows, data, tmp_path):
    alone = {"priors": [small.INDEPENDENT], "runs": 1, "taus": [0.2], "draws": 50}
    cheap, dear = (
        metrics_of(spec_of(**alone, K1=K1), data, tmp_path)["rows"][0] for K1 in (1, 10_000)
    )
    # The objective knows what is paid, so the posteriors differ; the priors do not.
    cost = np.log(10_000) / N
    before = certificate_exponent(0.0, 0.0, N, 1, *LEVEL[2:])
    paid = certificate_exponent(0.0, 0.0, N, 10_000, *LEVEL[2:])
    assert paid - before == pytest.approx(cost)
    assert dear["certificate_prior"] > cheap["certificate_prior"]


def test_an_untrained_posterior_has_no_kl_and_the_certificate_of_its_prior(data, tmp_path):
    spec = spec_of(training={**small.FIELDS["training"], "epochs": 0}, runs=1)
    for row in metrics_of(spec, data, tmp_path)["rows"]:
        assert row["kl"] < 1e-9
        kappa = row["kappa"]["optimised"]
        expected = certificate_monte_carlo(row["risk_posterior"], DRAWS, 0.0, kappa, *LEVEL)
        assert row["certificate_posterior"] == pytest.approx(float(expected), rel=1e-9)
        # The counts are of other pairs of the same law.
        spread = 5 * np.sqrt(2 * 0.25 / DRAWS)
        assert row["risk_posterior"] == pytest.approx(row["risk_prior"], abs=spread)
        assert row["errors_posterior"] != row["errors_prior"]


def test_kinds_of_prior_share_initial_means_and_runs_do_not(data, tmp_path):
    """A noise-only prior whose rate is next to nothing is the independent one."""
    still = {**small.NOISE_ONLY, "lr": 1e-12}
    grid = {**small.FIELDS["grid"], "lrs": [1e-12]}
    training = {**small.FIELDS["training"], "epochs": 0}
    given = {"priors": [small.INDEPENDENT, still], "taus": [0.2], "grid": grid}
    spec = spec_of(**given, training=training, draws=20_000)
    rows = metrics_of(spec, data, tmp_path)["rows"]
    risks = [row["risk_prior"] for row in rows]
    spread = 4 * np.sqrt(2 * 0.25 / 20_000)
    assert risks[0] == pytest.approx(risks[1], abs=spread)
    assert risks[2] == pytest.approx(risks[3], abs=spread)
    assert abs(risks[0] - risks[2]) > spread


def test_epochs_beyond_the_first_are_certified_as_printed(data, tmp_path):
    twice = {**small.DP_SGD, "E": 2}
    spec = spec_of(priors=[twice], runs=1, taus=[0.2])
    (row,) = metrics_of(spec, data, tmp_path)["rows"]
    assert row["standing"] == "as printed"
    assert row["kappa"]["repaired"] > row["kappa"]["optimised"] > row["kappa"]["tight"]
    assert row["certificate_rigorous"] > row["certificate_tight"]
    repaired = spec_of(priors=[twice], runs=1, taus=[0.2], form="repaired")
    (row,) = metrics_of(repaired, data, tmp_path / "repaired")["rows"]
    assert row["standing"] == "rigorous"


def test_the_least_certificate_of_a_run_and_kind_is_selected(record, rows):
    for chosen in record["metrics"]["selected"]:
        rivals = [
            row["certificate_posterior"]
            for row in rows
            if (row["run"], row["prior"]) == (chosen["run"], chosen["prior"])
        ]
        assert rows[chosen["row"]]["certificate_posterior"] == min(rivals)
    assert len(record["metrics"]["selected"]) == 6
    tied = [Row.model_validate({**rows[0], "certificate_posterior": c}) for c in (0.4, 0.3, 0.3)]
    assert selected(tied) == [Selected(run=0, prior="independent", row=1)]


@pytest.mark.parametrize("steps", ["several", "one, after which nobody looks"])
def test_a_diverged_posterior_stays_in_the_table_with_a_certificate_of_one(data, tmp_path, steps):
    training = {**small.FIELDS["training"], "lr": 1e30}
    if steps != "several":
        training |= {"batch": N, "epochs": 1}
    spec = spec_of(training=training, runs=1, taus=[0.2])
    found = metrics_of(spec, data, tmp_path)
    assert len(found["rows"]) == 3
    for row in found["rows"]:
        assert row["diverged"] >= 1
        assert row["kl"] is None and row["test_error"] is None and row["risk_posterior"] is None
        assert row["certificate_posterior"] == row["certificate_rigorous"] == 1.0
        assert row["certificate_prior"] <= 1 and row["risk_prior"] is not None


def watch(monkeypatch, kind):
    """Every object of a class as it is made."""
    seen, real_init = [], kind.__init__

    def init(made, *arguments, **named):
        real_init(made, *arguments, **named)
        seen.append(made)

    monkeypatch.setattr(kind, "__init__", init)
    return seen


def test_a_posterior_is_trained_on_what_its_certificate_pays(data, tmp_path, monkeypatch):
    seen = watch(monkeypatch, PosteriorTraining)
    rows = metrics_of(spec_of(runs=1, draws=10), data, tmp_path)["rows"]
    for row, training in zip(rows, seen, strict=True):
        paid = certificate_exponent(0.0, row["kappa"]["optimised"], *LEVEL) * N
        assert training.extra == pytest.approx(float(paid))
        assert training.tau == row["tau"]
    assert len({training.repetition for training in seen}) == len(rows)


def test_twins_share_their_noise_and_runs_and_tuples_do_not(data, tmp_path, monkeypatch):
    seen = watch(monkeypatch, PrivateTraining)
    dearer = {**small.DP_SGD, "zeta": 0.2}
    priors = [small.DP_SGD, small.NOISE_ONLY, dearer]
    run(spec_of(priors=priors, taus=[0.2], draws=10), data, tmp_path)
    first, second = ([each.repetition for each in seen[start : start + 3]] for start in (0, 3))
    for repetitions in (first, second):
        assert repetitions[0] == repetitions[1] != repetitions[2]
    assert not set(first) & set(second)
    assert len({each.noise.key(0, 0, "noise") for each in seen}) == 1


def test_priors_are_the_same_in_whichever_job_they_are(data, tmp_path, monkeypatch):
    seen = watch(monkeypatch, PrivateTraining)
    small_job = {"taus": [0.2], "runs": 1, "draws": 10}
    together = run(spec_of(priors=[small.DP_SGD, small.NOISE_ONLY], **small_job), data, tmp_path)
    for prior in (small.DP_SGD, small.NOISE_ONLY):
        run(spec_of(priors=[prior], **small_job), data, tmp_path)
    centres = [flat_values(training.model) for training in seen]
    assert torch.equal(centres[0], centres[2]) and torch.equal(centres[1], centres[3])
    run(spec_of(priors=[small.DP_SGD], **small_job, seed=1), data, tmp_path)
    assert not torch.equal(centres[0], flat_values(seen[4].model))
    assert seen[4].noise.key(0, 0, "noise") != seen[0].noise.key(0, 0, "noise")
    assert json.loads(together)["metrics"]["rows"][0]["prior"] == "dp-sgd"


def test_the_record_says_where_numbers_and_guarantees_come_from(record):
    metrics, ledger = record["metrics"], record["ledger"]
    assert metrics["parameters"] == 16 * 6 + 6 + 6 * 3 + 3
    assert (metrics["n_train"], metrics["n_test"], metrics["T"]) == (N, 12, 3)
    assert metrics["rows"][0]["test_draws"] == 36
    assert ledger["epsilon"] is None and "without privacy" in ledger["mechanism"]
    (entry,) = ledger["priors"]
    assert entry["epsilon"] > 0 and "not epsilon" in entry["paid"]


def test_risks_are_of_training_records_and_test_errors_of_test_records(data, tmp_path):
    """Next to no deviation: the errors of the initial network itself."""
    grid = {**small.FIELDS["grid"], "taus": [1e-6]}
    training = {**small.FIELDS["training"], "epochs": 0}
    given = {"priors": [small.INDEPENDENT], "taus": [1e-6], "runs": 1, "draws": 20_000}
    # So wide that every record opens a unit: closed ones would leave a tie to the noise.
    options = {"widths": [32]}
    spec = spec_of(**given, grid=grid, training=training, options=options, seed=1)
    (row,) = metrics_of(spec, data, tmp_path)["rows"]
    keys = {"key": "max_information", "run": 0, "base_seed": 1}
    network = initial_network("mlp", (1, 4, 4), 3, **options, **keys)
    content = prepared.load(data.parent)
    with torch.no_grad():
        train, test = (
            float((network(torch.from_numpy(x)).argmax(1).numpy() != y).mean())
            for x, y in ((content.x_train, content.y_train), (content.x_test, content.y_test))
        )
    assert abs(train - test) > 0.05
    for name in ("risk_prior", "risk_posterior"):
        assert row[name] == pytest.approx(train, abs=4 * np.sqrt(0.25 / 20_000))
    assert row["prior_test_error"] == row["test_error"] == pytest.approx(test)


def test_tau_as_a_variance_is_the_deviations_square(data, tmp_path):
    grid = {**small.FIELDS["grid"], "taus": [0.04, 0.2]}
    training = {**small.FIELDS["training"], "epochs": 0}
    given = {"priors": [small.INDEPENDENT], "runs": 1, "grid": grid, "training": training}
    spec = spec_of(**given, taus=[0.04], tau_is="variance", draws=20_000)
    (variance,) = metrics_of(spec, data, tmp_path)["rows"]
    spec = spec_of(**given, taus=[0.2, 0.04], draws=20_000)
    same, other = metrics_of(spec, data, tmp_path)["rows"]
    spread = 4 * np.sqrt(2 * 0.25 / 20_000)
    assert variance["risk_prior"] == pytest.approx(same["risk_prior"], abs=spread)
    assert abs(variance["risk_prior"] - other["risk_prior"]) > spread


def test_a_job_killed_at_any_step_resumes_to_the_same_bytes(data, tmp_path, monkeypatch):
    spec = spec_of(taus=[0.2, 0.4], priors=[small.DP_SGD], runs=1, objective="flambda")
    with counted(*STEPS) as calls:
        whole = run(spec, data, tmp_path / "whole")
    # Centre, then by tau prior's counts, training and posterior's counts.
    assert len(calls) == 3 + 2 * (2 + 1 + 9 + 2 + 1)
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    for kill_at in (1, 4, 5, 9, 15, 18, 21):
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, *STEPS):
            run(spec, data, folder)
        with counted(*STEPS) as left:
            assert run(spec, data, folder) == whole
        assert len(left) == len(calls) - kill_at


def test_noise_of_the_operating_system_survives_a_restart(data, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    spec = spec_of(noise_source="os", priors=[small.DP_SGD], taus=[0.2])
    secret = "0" * 32
    monkeypatch.setattr("dpatlas.core.seeds.os.urandom", lambda count: bytes.fromhex(secret))
    whole = run(spec, data, tmp_path / "whole")
    # In the first prior's training, and after it, with another to come.
    for kill_at in (2, 9):
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, *STEPS):
            run(spec, data, folder)
    monkeypatch.undo()
    for kill_at in (2, 9):
        assert run(spec, data, tmp_path / f"killed-{kill_at}") == whole


def test_the_command_line_writes_the_same_record(record, data, tmp_path):
    paths = ["--record", str(tmp_path / "record.json"), "--checkpoints", str(tmp_path / "c")]
    assert main(["--spec", spec_of().argument, "--data", str(data), *paths]) == 0
    found = json.loads((tmp_path / "record.json").read_text())
    assert found["metrics"] == record["metrics"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta_mc": 0.03}, "delta_mc [+] beta"),
        ({"K1": 0}, "K1: found 0; allowed: Input should be greater than or equal to 1"),
        ({"K2": 1}, "K2: found 1"),
        ({"looks": {**small.LOOKS, "number": 0}}, "looks.number: found 0"),
        ({"form": "loose"}, "form: found 'loose'"),
        ({"tau_is": "width"}, "tau_is: found 'width'"),
        ({"draws": 0}, "draws: found 0"),
        ({"runs": 0}, "runs: found 0"),
        ({"delta": 1.0}, "delta: found 1.0"),
        ({"momentum": 0.9}, "momentum: found 0.9"),
        ({"grid": {**small.FIELDS["grid"], "taus": [0.0]}}, "grid.taus.0: found 0.0"),
        ({"taus": [0.3]}, "taus: found 0.3"),
        ({"taus": [0.2, 0.2]}, "taus: found 2 entries; allowed: different ones"),
        ({"priors": []}, "priors: found .*at least 1 item"),
        (
            {"priors": [small.DP_SGD, small.DP_SGD]},
            "priors: found 2 entries; allowed: different ones",
        ),
        ({"priors": [{**small.DP_SGD, "zeta": 0.3}]}, "zeta 0.3"),
        ({"priors": [{"kind": "public"}]}, "priors.0"),
        ({"priors": [{**small.DP_SGD, "sampler": "poisson"}]}, "'poisson'.*'shuffled' or 'cyclic'"),
        ({"priors": [{**small.DP_SGD, "zeta": 0.0}]}, "priors.0.dp-sgd.zeta: found 0.0"),
        ({"priors": [{**small.DP_SGD, "m": 0}]}, "priors.0.dp-sgd.m: found 0"),
        ({"priors": [{**small.DP_SGD, "momentum": 0.9}]}, "priors.0.dp-sgd.momentum: found 0.9"),
        ({"priors": [{"kind": "dp-sgd", "zeta": 0.1}]}, "priors.0.dp-sgd.sigma"),
        ({"priors": [{**small.INDEPENDENT, "zeta": 0.1}]}, "priors.0.independent.zeta: found 0.1"),
        ({"objective": "elbo"}, "objective: found 'elbo'"),
        ({"loss": "hinge"}, "loss: found 'hinge'"),
        ({"objective": "fkl"}, "loss: found per-class with fkl; allowed: bounded"),
        *(
            ({"training": {**small.FIELDS["training"], name: bad}}, f"training.{name}: found {bad}")
            for name, bad in (
                *(("lr", 0.0), ("momentum", 1.0), ("batch", 0), ("epochs", -1)),
                ("kl_penalty", -0.1),
            )
        ),
        ({"model": "vgg"}, "model: found 'vgg'"),
        ({"training": {**small.FIELDS["training"], "batch": 25}}, "training.batch: found 25"),
        ({"kind": "table"}, "one of certificates, agreement"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_trained(data, tmp_path, changes, message):
    with counted(*STEPS) as calls, pytest.raises(InputError, match=message):
        run(spec_of(**changes), data, tmp_path)
    assert not calls and not (tmp_path / "record.json").exists()


def test_data_without_test_records_are_refused(tmp_path):
    arrays = {name: np.zeros((9, 16), np.float32) for name in ("x_train", "x_add")}
    arrays |= {name: np.zeros(9, np.int64) for name in ("y_train", "y_add")}
    facts = {"name": "small", "classes": ["a", "b"], "image_shape": [1, 4, 4]}
    prepared.save(tmp_path / "data", arrays, facts)
    with pytest.raises(InputError, match="n_test"):
        run(spec_of(), tmp_path / "data" / "manifest.json", tmp_path)


def test_channels_are_normalised_as_grey_levels_between_0_and_1(tmp_path):
    levels = np.random.default_rng(0).integers(0, 256, (5, 2, 9)).astype(np.float32)
    scaling = {"multiply": 2, "subtract": 255, "divide": 255, "norm": None}
    stored = ((2 * levels - 255) / 255).reshape(5, 18).astype(np.float32)
    facts = {"preprocessing": scaling, "image_shape": [2, 3, 3]}
    data = prepared.Prepared(*[stored, np.zeros(5)] * 4, manifest=facts)
    given = {"means": [0.49, 0.45], "deviations": [0.2, 0.25]}
    found = normalised(stored, data, Normalise(**given)).reshape(5, 2, 9)
    for channel, (mean, deviation) in enumerate(zip(*given.values(), strict=True)):
        expected = (levels[:, channel] / 255 - mean) / deviation
        np.testing.assert_allclose(found[:, channel], expected, atol=1e-5)
    assert found.dtype == np.float32
    assert normalised(stored, data, None) is stored
    for bad in (
        {"means": [0.5], "deviations": [0.2]},
        {**given, "deviations": [0.2]},
    ):
        with pytest.raises(InputError, match="normalise"):
            normalised(stored, data, Normalise(**bad))


def test_the_convolutional_network_is_certified_too(tmp_path):
    draws = np.random.default_rng(1)
    arrays = {
        f"{name}_{part}": values
        for part, n in (("train", 8), ("add", 0), ("test", 2))
        for name, values in (
            ("x", draws.standard_normal((n, 64)).astype(np.float32)),
            ("y", np.arange(n) % 3),
        )
    }
    facts = {"name": "small", "classes": small.CLASSES, "image_shape": [1, 8, 8]}
    prepared.save(tmp_path / "data", arrays, {**facts, "preprocessing": small.SCALE})
    grid = {**small.FIELDS["grid"], "m": 4}
    spec = spec_of(
        model="bayes-cnn9",
        options={},
        grid=grid,
        priors=[{**small.DP_SGD, "m": 4}],
        taus=[0.2],
        runs=1,
        draws=4,
        test_repetitions=1,
        training={**small.FIELDS["training"], "batch": 4, "epochs": 1},
    )
    (row,) = metrics_of(spec, tmp_path / "data" / "manifest.json", tmp_path)["rows"]
    assert row["kl"] > 0 and row["diverged"] is None
    assert row["errors_prior"] in range(5) and row["errors_posterior"] in range(5)
