"""Seeds of named axes, and noise that is keyed, never reused and independent."""

import itertools

import numpy as np
import pytest
from scipy import stats

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.seeds import Noise, generator, note_stream, recording, reused, seed
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError


def test_every_axis_changes_a_seed_and_every_part_a_noise_key():
    """Which never meet either."""
    axes = (("kl_privacy", "dp_sgld"), ("init", "split"), range(12), range(12))
    keys = [
        seed(key, use=use, run=run, layer=layer)
        for key, use, run, layer in itertools.product(*axes)
    ]
    keys += [seed("kl_privacy", use="init"), seed("kl_privacy", use="init", base=0)]
    keys += [seed("kl_privacy", use="init", run="1")]
    fields = {"key": "kl_privacy", "kind": "training"}
    digests = [Spec.of({**fields, "lr": lr}, "same-slug").digest for lr in (0.1, 0.2)]
    keys += [seed(digests[0], use="init", run=run) for run in range(50)]
    axes = (digests, range(50), (0, 1, 111), ("init", "step", "depth 2"))
    keys += [
        Noise(digest, "keyed").key(repetition, step, use)
        for digest, repetition, step, use in itertools.product(*axes)
    ]
    assert len(set(keys)) == len(keys)
    again = seed("kl_privacy", layer=0, run=3, use="init")
    assert again == seed("kl_privacy", use="init", run=3, layer=0)


@pytest.mark.parametrize("low", [0, 32, 64, 96])
def test_all_128_bits_of_a_key_reach_the_stream(low):
    plain, changed = (generator(key).standard_normal(4) for key in (5, 5 ^ (1 << (low + 31))))
    assert not np.isclose(plain, changed).any()


def test_keys_use_all_128_bits():
    keys = [Noise("digest", "keyed").key(0, step, "step") for step in range(200)]
    keys += [seed("kl_privacy", use="init", run=run) for run in range(200)]
    assert all(0 <= key < 2**128 for key in keys)
    ones = np.array([[(key >> bit) & 1 for bit in range(128)] for key in keys]).mean(0)
    # Each bit is a fair coin: 400 throws stay within five standard deviations.
    assert (np.abs(ones - 0.5) < 5 * 0.5 / np.sqrt(len(keys))).all()


def test_noise_is_standard_normal_and_float64():
    draws = Noise("digest", "keyed").normal(50_000, repetition=0, step=0, use="step")
    assert draws.dtype == np.float64
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    other = Noise("digest", "keyed").normal(50_000, repetition=0, step=1, use="step")
    assert abs(np.corrcoef(draws, other)[0, 1]) < 4 / np.sqrt(len(draws))


def test_the_operating_systems_secret_is_new_for_every_run():
    first, second = Noise("digest", "os"), Noise("digest", "os")
    noises = (first, second, Noise("digest", "keyed"))
    assert len({noise.key(0, step, "step") for noise in noises for step in (0, 1)}) == 6
    draws = [noise.normal(5, repetition=0, step=0, use="step") for noise in (first, second)]
    assert not np.isclose(*draws).any()


def test_a_run_that_kept_its_secret_goes_on_with_the_same_draws():
    before = Noise("digest", "os")
    after = Noise("digest", "os")
    after.carry(before.secret)
    assert after.key(2, 7, "shuffle") == before.key(2, 7, "shuffle")
    for noise, secret in ((after, None), (Noise("digest", "keyed"), before.secret)):
        with pytest.raises(InputError, match="checkpoint: found a run with"):
            noise.carry(secret)


def test_streams_note_themselves_while_they_are_recorded():
    seed("kl_privacy", use="before", run=0)
    with recording() as outer:
        seed("kl_privacy", use="init", run=0, layer=1, base=0)
        with recording() as inner:
            seed("kl_privacy", use="init", layer=2, run=7, base=0)
            Noise("digest", "keyed").normal(3, repetition=0, step=0, use="step")
            Noise().generator(repetition=0, step=0, use="batch")
        note_stream("named", "ties (audit, a constant)")
    Noise("digest", "keyed").key(0, 0, "after")
    drawn = {"keyed": ["step"], "named": ["init (kl_privacy, base, layer, run)"], "os": ["batch"]}
    assert inner.facts() == drawn
    assert outer.facts() == drawn | {"named": [*drawn["named"], "ties (audit, a constant)"]}


@pytest.mark.parametrize("bits", [0, 5, 2**64 + 5, 2**128 - 1])
def test_a_reused_generator_draws_what_a_new_one_would_whatever_was_drawn_before(bits):
    # An odd number of 32-bit draws leaves half a word behind.
    reused(7).integers(0, 2**31, 3, dtype=np.int32)
    one, other = reused(bits), generator(bits)
    np.testing.assert_array_equal(
        one.integers(0, 2**31, 5, dtype=np.int32), other.integers(0, 2**31, 5, dtype=np.int32)
    )
    np.testing.assert_array_equal(one.standard_normal(5), other.standard_normal(5))
    np.testing.assert_array_equal(one.geometric(0.1, 5), other.geometric(0.1, 5))


def test_a_key_is_that_of_canonical_json():
    for root, use, part in (("a", "batch", ""), ('"é\n', "noise", "layer.0"), ("a,1", "x", "é")):
        values = [root, 3, 4, use, *([part] if part else [])]
        expected = int(sha256(f"noise {canonical_json(values)}")[:32], 16)
        assert Noise(root, "keyed").key(3, 4, use, part) == expected
