import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpatlas.accounting.samplers import (
    SAMPLERS,
    Cyclic,
    FixedSize,
    FullBatch,
    Poisson,
    Shuffled,
    _permutation,
    sampler,
)
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError

NOISE = Noise("a spec's digest", "keyed")
# A statistic that is off does not come near these; one that is right misses them once in 10^4.
UNLIKELY = 1e-4


def memberships(kind, draws: int) -> np.ndarray:
    """Which record was in which draw, shape (draws, n)."""
    inside = np.zeros((draws, kind.n))
    for step in range(draws):
        inside[step, kind.batch_indices(NOISE, 0, step)] = 1
    return inside


@st.composite
def samplers(draw):
    name = draw(st.sampled_from(sorted(SAMPLERS)))
    n = draw(st.integers(1, 200))
    return sampler(name, n, None if name == FullBatch.name else draw(st.integers(1, n)))


@given(samplers(), st.integers(0, 10**6), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_a_batch_is_sorted_and_holds_a_record_once_also_where_a_run_is_resumed(
    kind, step, repetition
):
    batch = kind.batch_indices(NOISE, repetition, step)
    assert batch.dtype == np.int64
    assert (np.diff(batch) > 0).all()
    assert ((batch >= 0) & (batch < kind.n)).all()
    if not isinstance(kind, Poisson):
        assert len(batch) == kind.batch
    assert kind.expected_batch == kind.batch and kind.sample_rate == kind.batch / kind.n
    assert kind.steps_per_epoch * kind.batch <= kind.n < (kind.steps_per_epoch + 1) * kind.batch
    _permutation.cache_clear()
    resumed, noise = type(kind)(kind.n, kind.batch), Noise("a spec's digest", "keyed")
    np.testing.assert_array_equal(batch, resumed.batch_indices(noise, repetition, step))


@pytest.mark.parametrize("kind", [Poisson(1000, 30), FixedSize(1000, 30), Shuffled(1000, 30)])
def test_batches_differ_between_steps_repetitions_and_secrets(kind):
    batches = [
        kind.batch_indices(noise, repetition, step).tobytes()
        for noise, repetition, step in itertools.product(
            (NOISE, Noise("digest", "os"), Noise("digest", "os")), range(3), range(40)
        )
    ]
    assert len(set(batches)) == len(batches)


def test_poisson_inclusions_are_pairwise_independent():
    kind, draws = Poisson(60, 9), 4000
    q = kind.sample_rate
    inside = (memberships(kind, draws) - q) / np.sqrt(q * (1 - q))
    correlations = inside.T @ inside / np.sqrt(draws)
    pairs = correlations[np.triu_indices(kind.n, 1)]
    assert np.abs(pairs).max() < stats.norm.isf(UNLIKELY / len(pairs) / 2)
    assert UNLIKELY < stats.chi2.cdf((pairs**2).sum(), len(pairs)) < 1 - UNLIKELY
    # Records that follow each other are what a walk from hit to hit would get wrong.
    neighbours = np.diagonal(correlations, 1)
    assert abs(neighbours.sum()) < stats.norm.isf(UNLIKELY / 2) * np.sqrt(len(neighbours))


@pytest.mark.parametrize("kind", [Poisson(60, 9), Poisson(40, 1), Poisson(12, 11)])
def test_poisson_batch_sizes_follow_the_binomial_law(kind):
    sizes = memberships(kind, 4000).sum(1).astype(int)
    law = stats.binom(kind.n, kind.sample_rate)
    common = [size for size in range(kind.n + 1) if law.pmf(size) > 5 / len(sizes)]
    observed = np.bincount(sizes, minlength=kind.n + 1)[common]
    expected = law.pmf(common) * len(sizes)
    rest = [len(sizes) - observed.sum(), len(sizes) - expected.sum()]
    table = np.array([[*observed, rest[0]], [*expected, rest[1]]])
    assert stats.chisquare(*table[:, table[1] > 1e-9]).pvalue > UNLIKELY


class Lucky:
    """Noise whose every trial succeeds, which a single draw of distances would cut short."""

    def reused(self, **axes):
        return self

    def geometric(self, q, size):
        return np.ones(size, dtype=np.int64)


def test_a_poisson_batch_far_above_its_expectation_loses_no_record():
    batch = Poisson(5000, 2).batch_indices(Lucky(), 0, 0)
    np.testing.assert_array_equal(batch, np.arange(5000))


@pytest.mark.parametrize("kind", [Poisson(10**12, 4), FixedSize(10**12, 4)])
def test_a_batch_costs_nothing_that_grows_with_n(kind):
    batches = [kind.batch_indices(NOISE, 0, step) for step in range(300)]
    assert 3 < np.mean([len(batch) for batch in batches]) < 5
    places = np.concatenate(batches) / kind.n
    assert stats.kstest(places, "uniform").pvalue > UNLIKELY


def test_a_record_is_in_at_most_one_batch_of_a_shuffled_epoch():
    kind = Shuffled(1050, 100)
    epochs = []
    for epoch in range(4):
        steps = range(epoch * kind.steps_per_epoch, (epoch + 1) * kind.steps_per_epoch)
        batches = [kind.batch_indices(NOISE, 0, step) for step in steps]
        records = np.concatenate(batches)
        assert len(np.unique(records)) == len(records) == 1000
        epochs.append({batch.tobytes() for batch in batches})
    for first, second in itertools.combinations(epochs, 2):
        assert first.isdisjoint(second)


def test_each_shuffled_epoch_leaves_out_its_own_records():
    kind = Shuffled(10, 4)
    out = np.zeros(kind.n)
    for epoch in range(3000):
        seen = [kind.batch_indices(NOISE, 0, 2 * epoch + half) for half in range(2)]
        out[np.setdiff1d(np.arange(kind.n), np.concatenate(seen))] += 1
    scale = 3000 * 0.2 * 0.8 * kind.n / (kind.n - 1)
    assert stats.chi2.sf(((out - 600) ** 2).sum() / scale, kind.n - 1) > UNLIKELY


@pytest.mark.parametrize(
    ("name", "n", "batch", "message"),
    [
        ("poisson", 0, 1, "records of the poisson sampler: found 0; allowed: a whole number >= 1"),
        ("poisson", 5, 6, "batch of the poisson sampler: found 6; allowed: .* >= 1 and <= 5"),
        ("fixed-size", 5, 0, "batch of the fixed-size sampler: found 0; allowed: .* <= 5"),
        ("shuffled", 5, 2.5, "batch of the shuffled sampler: found 2.5; allowed: a whole"),
        ("full-batch", 5, 4, "batch of the full-batch sampler: found 4; allowed: .* >= 5"),
        ("full-batch", 0, None, "records of the full-batch sampler: found 0"),
        ("uniform", 5, 1, "name: found 'uniform'; allowed: one of poisson"),
    ],
)
def test_an_impossible_batch_is_refused_by_name(name, n, batch, message):
    with pytest.raises(InputError, match=message):
        sampler(name, n, batch)


@pytest.mark.parametrize(
    ("name", "n", "batch", "epochs", "steps"),
    [
        ("poisson", 150, 20, 1, 8),
        ("fixed-size", 150, 20, 2, 15),
        ("poisson", 60, 20, 0.1 + 0.2, 1),
        ("shuffled", 150, 20, 2, 14),
        ("cyclic", 150, 20, 1, 7),
        ("cyclic", 150, 100, 2.5, 3),
        ("full-batch", 150, 150, 3, 3),
        ("shuffled", 150, 20, 1e-9, 1),
    ],
)
def test_passes_are_steps_of_which_none_begins_a_pass_that_was_not_asked_for(
    name, n, batch, epochs, steps
):
    assert sampler(name, n, batch).steps_in(epochs) == steps


def test_batches_whose_records_are_known_in_advance():
    assert min(len(Poisson(40, 1).batch_indices(NOISE, 0, step)) for step in range(200)) == 0
    np.testing.assert_array_equal(Poisson(30, 30).batch_indices(NOISE, 0, 0), np.arange(30))
    cyclic = [Cyclic(10, 3).batch_indices(NOISE, 0, step).tolist() for step in range(6)]
    assert cyclic == [[0, 1, 2], [3, 4, 5], [6, 7, 8]] * 2


# Of draws without replacement, counts are correlated by -1 / (n - 1).
@pytest.mark.parametrize(("kind", "lost"), [(Poisson(60, 9), 0), (FixedSize(40, 7), 1)])
def test_every_record_is_included_with_the_rate(kind, lost):
    draws, q = 4000, kind.sample_rate
    variance = draws * q * (1 - q) * kind.n / (kind.n - lost)
    statistic = ((memberships(kind, draws).sum(0) - draws * q) ** 2).sum() / variance
    # Two-sided: counts that are too equal are no such sample either.
    assert UNLIKELY < stats.chi2.cdf(statistic, kind.n - lost) < 1 - UNLIKELY
