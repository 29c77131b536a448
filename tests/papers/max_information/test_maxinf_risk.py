"""Pairs of a record and weights: independent, counted once, the same in law by either method."""

import numpy as np
import pytest
import torch
from maxinf_small import N, law, records
from scipy.stats import kstest, norm

from dpatlas.base.seeds import Noise
from dpatlas.certify import risk
from dpatlas.certify.normals import PAIRS, standard_normals


def test_pairs_are_independent_also_those_of_one_record_in_several_chunks(monkeypatch):
    """The number of errors of 60 pairs of a single record is binomial."""
    monkeypatch.setattr(risk, "MAX_PAIRS", 20)
    x, labels = records(1)
    counts = [
        risk.risk_on_records(law(), x, labels, 60, noise=Noise("a", "keyed"), repetition=i).run()[0]
        for i in range(400)
    ]
    share = np.mean(counts) / 60
    assert 0.2 < share < 0.8
    # A sample variance over 400 draws is within 25 % of the law's, at nearly four deviations.
    assert np.var(counts) == pytest.approx(60 * share * (1 - share), rel=0.25)


def test_every_pair_of_all_chunks_is_counted_once():
    x, labels = records()
    still = law(1e-9)
    with torch.no_grad():
        wrong = (still.network(x).argmax(1) != labels).numpy()
    chosen = risk.drawn_records(N, 2500, Noise("a", "keyed"), 0)
    found = risk.PairErrors([still], x, labels, chosen, noise=Noise("a", "keyed"))
    assert found.steps == 3 and found.pairs == 2500
    assert found.run() == [wrong[chosen].sum()]
    assert np.bincount(chosen, minlength=N).min() > 50


def test_sampling_takes_chunks_that_fit_the_memory(monkeypatch):
    x, labels = records()
    monkeypatch.setitem(risk.MAX_NORMALS, "cpu", 1000)
    few = risk.risk_on_records(law(), x, labels, 20, noise=Noise("a", "keyed"), method="sampling")
    assert few.chunk == 1000 // 123 and few.steps == 3
    assert 0 <= few.run()[0] <= 20


@pytest.mark.parametrize("method", risk.METHODS)
def test_laws_judged_together_make_the_errors_that_each_makes_alone(method):
    x, labels = records()
    laws = [law(deviation) for deviation in (0.1, 0.5, 0.9)]
    drawn = risk.drawn_records(N, 2500, Noise("a", "keyed"), 0)
    given = {"noise": Noise("a", "keyed"), "method": method}
    together = risk.PairErrors(laws, x, labels, drawn, **given).run()
    assert together == [
        risk.PairErrors([each], x, labels, drawn, **given).run()[0] for each in laws
    ]
    assert len(set(together)) == 3


def test_normals_are_standard_and_keyed():
    noise, device = Noise("a", "keyed"), torch.device("cpu")

    def draws(repetition=0, step=0, rows=50_000):
        return standard_normals(
            [(rows, 2), (1, 3)], noise, repetition=repetition, step=step, device=device
        )

    first, second = draws()
    assert first.shape == (50_000, 2) and second.shape == (1, 3)
    assert first.dtype == torch.float32
    values = draws(rows=2_000_000)[0].double().flatten().numpy()
    assert kstest(values[:200_000], "norm").pvalue > 1e-3
    for limit in (3.0, 4.0, 5.0):
        expected = 2 * norm.sf(limit) * len(values)
        assert abs((np.abs(values) > limit).sum() - expected) < 4 * np.sqrt(expected)
    # No dependence between neighbours, of one pair, or of one block and the next.
    for lag in (1, PAIRS, 2 * PAIRS):
        for one, other in ((values, values), (values**2 - 1, (values**2 - 1) / 2)):
            assert abs((one[lag:] * other[:-lag]).mean()) < 4 / np.sqrt(len(values))
    assert all(torch.equal(one, other) for one, other in zip(draws(), (first, second), strict=True))
    for other in (draws(repetition=1), draws(step=1)):
        assert not torch.equal(other[0], first)
