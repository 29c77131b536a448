"""Augmented views: where pixels go, and that a record's views count as one record."""

import itertools

import numpy as np
import pytest
import torch
from small_training import Jitter, N, flat, network, phase, sums_of, training, weights

from dpatlas.accounting.samplers import FullBatch, Poisson
from dpatlas.base.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.privacy.augmentation import ShiftAndFlip

EIGHT = (1, 8, 8)


def moved(image, down, right, mirrored):
    """A view of a (channels, height, width) image, pixel by pixel: shift, fill with 0, mirror."""
    _, height, width = image.shape
    found = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                found[:, row, column] = image[:, row - down, column - right]
    return found.flip(2) if mirrored else found


def trained(augmentation, **changes):
    """Weights after a short training of the small network on 8 x 8 images."""
    phases = [phase(Poisson(N, 6), **changes)]
    run = training(phases, augmentation=augmentation, shared_noise="views")
    run.run()
    return flat(weights(run.model))


@pytest.mark.parametrize("seed", range(3))
def test_the_views_of_a_record_follow_each_other_shifted_and_mirrored(seed):
    """Zeros move in, and what is not finite (0 x NaN is NaN) does not leak out of its view."""
    x = torch.arange(1.0, 6 * 60 + 1).view(6, 60)
    x[:, [0, -1]] = torch.nan
    views = ShiftAndFlip((3, 4, 5), views=4, padding=3, flip=True)
    moves = views.draw(np.random.default_rng(seed), 6)
    assert moves.shape == (6, 4, 3) and moves.dtype == torch.int64
    expected = [
        moved(image.view(3, 4, 5), *move.tolist()).flatten()
        for image, of_image in zip(x, moves, strict=True)
        for move in of_image
    ]
    torch.testing.assert_close(
        views.apply(x, moves), torch.stack(expected), rtol=0, atol=0, equal_nan=True
    )


def test_all_shifts_are_as_likely_and_half_of_the_views_are_mirrored():
    draws = 21_000
    moves = ShiftAndFlip(EIGHT, views=3, padding=3, flip=True)
    found = moves.draw(generator(seed("test", use="views")), draws // 3).view(-1, 3).numpy()
    for axis in (0, 1):
        counts = np.bincount(found[:, axis] + 3, minlength=7)
        assert len(counts) == 7
        # Five standard errors of a count.
        assert np.abs(counts - draws / 7).max() < 5 * np.sqrt(draws * 6 / 49)
    assert set(found[:, 2]) == {0, 1}
    assert abs(found[:, 2].mean() - 0.5) < 5 * 0.5 / np.sqrt(draws)
    assert abs(np.corrcoef(found.T)[0, 1]) < 5 / np.sqrt(draws)


def test_the_size_of_physical_batches_changes_no_view():
    views = ShiftAndFlip(EIGHT, views=3, padding=2, flip=True)
    whole = trained(views)
    for size in (1, 4):
        pieces = trained(views, max_physical_batch=size)
        np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-5)


def test_identical_views_train_as_one_and_others_do_not():
    one = trained(None)
    for views in (1, 4):
        same = trained(ShiftAndFlip(EIGHT, views=views, padding=0, flip=False))
        np.testing.assert_allclose(same, one, rtol=1e-4, atol=1e-5)
    other = trained(ShiftAndFlip(EIGHT, views=4, padding=2, flip=True))
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        (EIGHT, {"padding": 8}, "padding: found 8; allowed: less than 8"),
        ((3, 4, 9), {"padding": 4}, "padding: found 4; allowed: less than 4"),
        (EIGHT, {"padding": -1}, "padding"),
        (EIGHT, {"views": 0}, "views"),
    ],
)
def test_what_no_image_can_bear_is_refused(shape, changes, message):
    with pytest.raises(InputError, match=message):
        ShiftAndFlip(shape, **{"views": 2, "padding": 1, "flip": False, **changes})


def test_every_step_and_every_repetition_has_views_of_its_own():
    sums = []
    for repetition in (0, 1):
        silent = [phase(FullBatch(N), noise_multiplier=0.0, steps=3, lr=1e-12)]
        run = training(silent, network("linear"), augmentation=Jitter(), repetition=repetition)
        sums += [flat(found) for found in sums_of(run)]
    for one, other in itertools.combinations(sums, 2):
        assert not torch.allclose(one, other)
