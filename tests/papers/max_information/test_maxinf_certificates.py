"""Certificates: rows against formulas, pairs that are independent, resuming, refusals."""

import json

import maxinf_small as small
import numpy as np
import pytest
import torch
from maxinf_small import STEPS, N, metrics_of, run, save_data, spec_of
from small_jobs import counted, killed_at

from dpatlas.certify.risk import PairErrors
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.formulas.max_information import certificates
from dpatlas.formulas.max_information.kappa import kappa_repaired
from dpatlas.formulas.max_information.universe import certificate_universe, setting_weight
from dpatlas.jobs import job as job_module
from dpatlas.models.mean_field import initial_network
from dpatlas_workflow.papers.max_information.jobs import certificates as certificates_module
from dpatlas_workflow.papers.max_information.jobs.posteriors import PosteriorTraining
from dpatlas_workflow.papers.max_information.jobs.problem import normalised
from dpatlas_workflow.papers.max_information.records.certified import Normalise


def grid(**changes):
    return {"grid": {**small.FIELDS["grid"], **changes}}


DRAWS = 1500
LEVEL = (N, 8, 3, 0.05, 0.0125, 0.025)
# After a look that tried a deviation more.
LOOK = {"look": "small-1", "n": N, "K1": 1, **grid(taus=[0.1])}
LATER = {"looks": {"number": 2, "registered": True, "others": [LOOK]}, "K2": 3}
# Two epochs, whose composition as printed has a gap in its proof.
TWICE = [small.INDEPENDENT, *({**each, "E": 2} for each in (small.DP_SGD, small.NOISE_ONLY))]
AGREEMENT = {"kind": "agreement", "priors": [small.DP_SGD], "taus": [0.4], "repetitions": 3}
AGREEMENT |= {"draws": 6000}
TRAINING = small.FIELDS["training"]
ALONE = {"priors": [small.INDEPENDENT], "runs": 1, "taus": [0.2]}
REDEALT = {"data": {"name": "small", "redeal": True}}
# Next to no step.
UNTRAINED = {"training": {**TRAINING, "lr": 1e-30, "epochs": 1}}
# Of the difference of two risks over 20,000 draws.
SPREAD = 4 * np.sqrt(2 * 0.25 / 20_000)


def rows_of(manifest, folder, **changes):
    return metrics_of(spec_of(**changes), manifest, folder)["rows"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def record(data, tmp_path_factory):
    return json.loads(run(spec_of(**LATER, priors=TWICE), data, tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="module")
def rows(record):
    return record["metrics"]["rows"]


def test_a_record_has_its_rows_its_priors_ledgers_and_the_looks_it_comes_after(record, rows):
    kinds = ("independent", "dp-sgd", "noise-only")
    places = [(row["run"], row["prior"], row["tau"]) for row in rows]
    assert places == [(run, kind, tau) for run in (0, 1) for kind in kinds for tau in (0.2, 0.4)]
    ledger = record["ledger"]
    assert ledger["epsilon"] is None and "without privacy" in ledger["mechanism"]
    (entry,) = ledger["priors"]
    assert entry["epsilon"] > 0 and "not epsilon" in entry["paid"]
    metrics = record["metrics"]
    assert metrics["selected_after_a_look"] and "others: small-1" in metrics["looks"]


def test_certificates_follow_from_the_rows_own_numbers(rows):
    """Eqs. 97 and 98; the rigorous one pays the smaller proven kappa, in exact counts."""
    for row in rows:
        # Only priors that saw the records pay.
        paid = [row[f"kappa_{form}"] for form in ("explicit", "optimised", "tight", "repaired")]
        assert [value > 0 for value in paid] == [row["prior"] == "dp-sgd"] * 4
        assert paid[0] >= paid[1] >= paid[2] and paid[3] >= paid[1]
        assert row["standing"] == ("as printed" if row["prior"] == "dp-sgd" else "rigorous")
        kappa = row["kappa_optimised"]
        for law_name, kl in (("prior", 0.0), ("posterior", row["kl"])):
            risk = row[f"risk_{law_name}"]
            assert risk == row[f"errors_{law_name}"] / DRAWS
            expected = certificates.certificate_monte_carlo(risk, DRAWS, kl, kappa, *LEVEL)
            assert row[f"certificate_{law_name}"] == pytest.approx(float(expected), rel=1e-12)
        assert row["kl"] > 0.1
        limit = certificates.monte_carlo_risk(risk, DRAWS, 0.0125 / 24, "clopper-pearson")
        exponent = certificates.certificate_exponent(row["kl"], row["kappa_rigorous"], *LEVEL)
        assert row["certificate_rigorous"] == pytest.approx(
            float(certificates.kl_inverse(limit, exponent))
        )
        assert row["certificate_tight"] <= row["certificate_posterior"]
        assert row["certificate_tight"] <= row["certificate_rigorous"]


def test_the_universe_certificate_pays_for_its_weight_kappa_and_count(rows):
    for row in rows:
        setting = {name: row[name] for name in small.TUPLE} if row["zeta"] else {}
        weight = setting_weight(
            **{"kind": row["prior"], "model": "mlp", "widths": [6], "normalise": None, **setting},
            **{"tau": row["tau"], "tau_is": "deviation", "n": N, "look": 2, "run": row["run"]},
        )
        assert row["universe_weight"] == weight
        kappa = 0.0
        if row["prior"] == "dp-sgd":
            kappa = kappa_repaired(8, 0.1, 1.0, 3, 2, 0.025 * weight, moment="minimum")
            assert kappa > row["kappa_rigorous"]
        assert row["universe_kappa"] == pytest.approx(float(kappa))
        given = (row["risk_posterior"], DRAWS, row["kl"], kappa, N, weight, *LEVEL[-3:])
        assert row["certificate_universe"] == pytest.approx(float(certificate_universe(*given)))
        assert row["certificate_universe"] > row["certificate_rigorous"]


@pytest.mark.parametrize("schedule", [{}, {"batch": N, "epochs": 1}], ids=["steps", "one step"])
def test_a_diverged_posterior_stays_in_the_table_with_a_certificate_of_one(
    data, tmp_path, schedule
):
    (row,) = rows_of(data, tmp_path, **ALONE, training={**TRAINING, "lr": 1e30, **schedule})
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
    given = {"form": "repaired", "priors": TWICE, **LATER}
    rows = rows_of(data, tmp_path, runs=1, draws=10, **given)
    (training,) = seen
    for row, extra, tau in zip(rows, training.extras, training.taus, strict=True):
        paid = certificates.certificate_exponent(0.0, row["kappa_repaired"], *LEVEL) * N
        assert row["standing"] == "rigorous"
        assert extra == pytest.approx(float(paid))
        assert tau == row["tau"]


def test_the_priors_of_a_run_share_records_batches_weights_and_pairs_and_runs_do_not(
    data, tmp_path, monkeypatch
):
    trained, counted_pairs = watch(monkeypatch, PosteriorTraining), watch(monkeypatch, PairErrors)
    given = {"draws": 10, "first_run": 4, **REDEALT}
    rows = rows_of(data, tmp_path, **given)
    assert [row["run"] for row in rows] == [4] * 6 + [5] * 6
    assert [training.repetition for training in trained] == [4, 5]
    for seen in (trained, counted_pairs):
        keys = {(each.repetition, each.noise.key(0, 0, "normals")) for each in seen}
        # Training has one key; counts have one for each of both sets of records.
        assert len(keys) == len(seen) == 2 * (1 if seen is trained else 2)
    # Priors and posteriors.
    assert all(len(pairs.posteriors) == 12 for pairs in counted_pairs)
    content = prepared.load(data.parent)
    pool = {row.tobytes() for row in np.concatenate([content.x_train, content.x_test])}
    first, second = ({row.numpy().tobytes() for row in training.x} for training in trained)
    assert len(first) == len(second) == N and first != second and first | second <= pool
    # Whatever else a job computes.
    rows_of(data, tmp_path, **given | {"runs": 1, "taus": [0.2]}, priors=[small.INDEPENDENT])
    assert torch.equal(trained[-1].x, trained[0].x)


def close_rows(found, expected):
    """Rows that agree but for rounding, which may decide the error of a pair or two."""
    for one, other in zip(found, expected, strict=True):
        for name, value in one.items():
            if isinstance(value, float):
                assert value == pytest.approx(other[name], abs=2.5 / DRAWS, rel=1e-5), name
            elif not name.startswith("errors"):
                assert value == other[name], name


def test_posteriors_trained_in_several_groups_are_those_of_one(data, tmp_path, monkeypatch):
    given = {"runs": 1}
    together = rows_of(data, tmp_path, **given)
    trained = watch(monkeypatch, PosteriorTraining)
    monkeypatch.setattr(certificates_module, "MAX_STACKED", 4 * 123)
    close_rows(rows_of(data, tmp_path, **given), together)
    assert [len(training.taus) for training in trained] == [4, 2]


def test_a_posterior_that_diverges_leaves_the_others_as_they_are(data, tmp_path, monkeypatch):
    given = {"runs": 1, "priors": [small.INDEPENDENT, small.NOISE_ONLY], "taus": [0.2]}
    sound = rows_of(data, tmp_path, **given)
    real = PosteriorTraining.__init__

    def init(made, network, centres, *arguments, **named):
        centres = centres.clone()
        centres[0] = np.inf
        real(made, network, centres, *arguments, **named)

    monkeypatch.setattr(PosteriorTraining, "__init__", init)
    first, second = rows_of(data, tmp_path, **given)
    assert first["diverged"] == 1 and first["certificate_posterior"] == 1.0
    assert first["errors_prior"] == sound[0]["errors_prior"]
    assert second == sound[1]


def test_a_run_is_the_same_in_whichever_block_and_beside_whichever_priors(data, tmp_path):
    few = {"priors": [small.DP_SGD], "taus": [0.4]}
    rows = rows_of(data, tmp_path, **REDEALT)
    assert rows_of(data, tmp_path, **REDEALT, runs=1, first_run=1) == rows[6:]
    close_rows(rows_of(data, tmp_path, **REDEALT, **few, runs=1, first_run=1), rows[9:10])


def test_all_kinds_of_prior_start_at_the_network_of_their_run_and_are_judged_on_both_sets(
    data, tmp_path
):
    """Next to no deviation and rate: the errors of the initial network itself."""
    # So wide that every record opens a unit: closed ones would leave a tie to the noise.
    given = {**UNTRAINED, **grid(taus=[1e-6], lrs=[1e-12]), "options": {"widths": [32]}, "seed": 1}
    priors = [small.INDEPENDENT, {**small.NOISE_ONLY, "lr": 1e-12}]
    given |= {"taus": [1e-6], "draws": 20_000, "first_run": 3, "runs": 1}
    keys = {"key": "max_information", "run": 3, "base_seed": 1}
    network = initial_network("mlp", (1, 4, 4), 3, widths=[32], **keys)
    content = prepared.load(data.parent)
    with torch.no_grad():
        train, test = (
            float((network(torch.from_numpy(x)).argmax(1).numpy() != y).mean())
            for x, y in ((content.x_train, content.y_train), (content.x_test, content.y_test))
        )
    assert abs(train - test) > 0.05
    for row in rows_of(data, tmp_path, priors=priors, **given):
        for name in ("risk_prior", "risk_posterior"):
            assert row[name] == pytest.approx(train, abs=4 * np.sqrt(0.25 / 20_000))
        assert row["prior_test_error"] == row["test_error"] == pytest.approx(test)


def test_tau_as_a_variance_is_the_deviations_square(data, tmp_path):
    given = {**ALONE, **UNTRAINED, **grid(taus=[0.04, 0.2]), "draws": 20_000}
    (variance,) = rows_of(data, tmp_path, **given | {"taus": [0.04]}, tau_is="variance")
    same, other = rows_of(data, tmp_path, **given | {"taus": [0.2, 0.04]})
    assert variance["risk_prior"] == pytest.approx(same["risk_prior"], abs=SPREAD)
    assert abs(variance["risk_prior"] - other["risk_prior"]) > SPREAD


def test_reparametrisation_and_sampling_agree_on_prior_and_posterior(data, tmp_path):
    rows = rows_of(data, tmp_path, **AGREEMENT)
    assert len(rows) == 2 * 2 * 3
    for what in ("prior", "posterior"):
        risks = [
            np.mean([r["risk"] for r in rows if (r["what"], r["method"]) == (what, method)])
            for method in ("reparametrisation", "sampling")
        ]
        assert risks[0] == pytest.approx(risks[1], abs=4 * np.sqrt(2 * 0.25 / 18_000))
    assert len({row["errors"] for row in rows}) > 6
    assert all(row["risk"] == row["errors"] / 6000 for row in rows)


def test_a_killed_job_resumes_to_the_same_bytes_with_the_noise_of_its_secret(
    data, tmp_path, monkeypatch
):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    priors, kills = [small.DP_SGD, small.INDEPENDENT], (2, 9, 13, 16, 20)
    spec = spec_of(noise_source="os", priors=priors, taus=[0.2], objective="flambda")
    with monkeypatch.context() as patch:
        patch.setattr("dpatlas.base.seeds.os.urandom", lambda count: bytes(16))
        whole = run(spec, data, tmp_path / "whole")
        # In the first run's prior, posteriors and counts, and with another run to come.
        for kill_at in kills:
            with killed_at(kill_at, *STEPS):
                run(spec, data, tmp_path / f"killed-{kill_at}")
    for kill_at in kills:
        assert run(spec, data, tmp_path / f"killed-{kill_at}") == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta_mc": 0.03}, "delta_mc [+] beta"),
        ({**LATER, "K2": 2}, "K2: found 2; allowed: a whole number >= 3"),
        # Outside of the universe.
        ({**grid(taus=[0.123456]), "taus": [0.123456]}, "grid.taus: found 0.123456"),
        ({"taus": [0.2, 0.2]}, "taus: found 2 entries; allowed: different ones"),
        ({"priors": [small.DP_SGD] * 2}, "priors: found 2 entries; allowed: different ones"),
        ({"priors": [{**small.DP_SGD, "zeta": 0.3}]}, "zeta 0.3"),
        ({"priors": [{**small.DP_SGD, "sampler": "poisson"}]}, "'poisson'.*'shuffled' or 'cyclic'"),
        ({"priors": [{**small.DP_SGD, "momentum": 0.9}]}, "priors.0.dp-sgd.momentum: found 0.9"),
        ({"objective": "fkl"}, "loss: found per-class with fkl; allowed: bounded"),
        ({"training": {**TRAINING, "batch": 25}}, "training.batch: found 25"),
        ({**AGREEMENT, "taus": [0.2, 0.4]}, "taus: found .*at most 1 item"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_trained(data, tmp_path, changes, message):
    with counted(*STEPS) as calls, pytest.raises(InputError, match=message):
        run(spec_of(**changes), data, tmp_path)
    assert not calls and not (tmp_path / "record.json").exists()


def test_channels_are_normalised_as_grey_levels_between_0_and_1():
    levels = np.random.default_rng(0).integers(0, 256, (5, 2, 9)).astype(np.float32)
    scaling = {"multiply": 2, "subtract": 255, "divide": 255, "norm": None}
    stored = ((2 * levels - 255) / 255).reshape(5, 18).astype(np.float32)
    facts = {"preprocessing": scaling, "image_shape": [2, 3, 3]}
    data = prepared.Prepared(*[stored, np.zeros(5)] * 4, manifest=facts)
    means, deviations = [0.49, 0.45], [0.2, 0.25]
    scaled = normalised(stored, data, Normalise(means=means, deviations=deviations))
    expected = (levels / 255 - np.array(means)[:, None]) / np.array(deviations)[:, None]
    np.testing.assert_allclose(scaled.reshape(5, 2, 9), expected, atol=1e-5)
    assert scaled.dtype == np.float32
    with pytest.raises(InputError, match="normalise"):
        normalised(stored, data, Normalise(means=[0.5], deviations=[0.2]))
