"""The job that holds local reparametrisation against drawing all weights."""

import maxinf_small as small
import numpy as np
import pytest
from maxinf_small import STEPS, metrics_of, run, save_data, spec_of
from small_jobs import counted, killed_at

from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_data(tmp_path_factory.mktemp("data"))


def agreement_spec(**changes):
    given = {"kind": "agreement", "priors": [small.DP_SGD], "taus": [0.4], "repetitions": 3}
    return spec_of(**{**given, "draws": 6000, **changes})


def test_reparametrisation_and_sampling_agree_on_prior_and_posterior(data, tmp_path):
    rows = metrics_of(agreement_spec(), data, tmp_path)["rows"]
    assert len(rows) == 2 * 2 * 3
    for what in ("prior", "posterior"):
        risks = [
            np.mean([r["risk"] for r in rows if (r["what"], r["method"]) == (what, method)])
            for method in ("reparametrisation", "sampling")
        ]
        assert risks[0] == pytest.approx(risks[1], abs=4 * np.sqrt(2 * 0.25 / 18_000))
    assert len({row["errors"] for row in rows}) > 6
    assert all(row["risk"] == row["errors"] / 6000 for row in rows)


def test_an_agreement_that_was_killed_resumes_to_the_same_bytes(data, tmp_path, monkeypatch):
    spec = agreement_spec(draws=1500, repetitions=2)
    with counted(*STEPS) as calls:
        whole = run(spec, data, tmp_path / "whole")
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    for kill_at in (2, 8, 13, 17, 23):
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, *STEPS):
            run(spec, data, folder)
        with counted(*STEPS) as left:
            assert run(spec, data, folder) == whole
        assert len(left) == len(calls) - kill_at


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"taus": [0.2, 0.4]}, "taus: found .*at most 1 item"),
        ({"priors": [small.DP_SGD, small.NOISE_ONLY]}, "priors: found .*at most 1 item"),
        ({"repetitions": 0}, "repetitions: found 0"),
    ],
)
def test_an_agreement_of_several_priors_is_refused(data, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        run(agreement_spec(**changes), data, tmp_path)
