"""Augmented views: where pixels go, and that a record's views count as one record."""

import numpy as np
import pytest
import torch
from small_training import Jitter, N, flat, network, phase, sums_of, training, weights

from dpatlas.accounting.samplers import FullBatch, Poisson
from dpatlas.base.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.privacy.augmentation import ShiftAndFlip

EIGHT = (1, 8, 8)


def view(image, down, right, mirrored):
    """One view of a (channels, height, width) image."""
    one = ShiftAndFlip(image.shape, views=1, padding=2, flip=True)
    moves = torch.tensor([[[down, right, mirrored]]])
    return one.apply(image.reshape(1, -1), moves).view(image.shape)


def moved(image, down, right, mirrored):
    """The same, pixel by pixel: shift, fill with 0, then mirror."""
    _, height, width = image.shape
    found = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                found[:, row, column] = image[:, row - down, column - right]
    return found.flip(2) if mirrored else found


def trained(augmentation, model=None, **changes):
    """Weights after a short training of the small network on 8 x 8 images."""
    model = network() if model is None else model
    run = training(
        [phase(Poisson(N, 6), **changes)], model, augmentation=augmentation, shared_noise="views"
    )
    run.run()
    return weights(model)


@pytest.mark.parametrize("mirrored", [0, 1])
@pytest.mark.parametrize(("down", "right"), [(0, 0), (1, 0), (-2, 0), (0, 2), (0, -1), (2, -2)])
def test_pixels_are_shifted_and_mirrored_and_zeros_move_in(down, right, mirrored):
    image = torch.arange(1.0, 3 * 4 * 5 + 1).view(3, 4, 5)
    found = view(image, down, right, mirrored)
    assert torch.equal(found, moved(image, down, right, mirrored))
    assert int((found == 0).sum()) == 3 * (20 - (4 - abs(down)) * (5 - abs(right)))


def test_what_is_not_finite_does_not_leak_out_of_its_view():
    # 0 x NaN is NaN: a filled pixel must not take the value that was clamped into its place.
    image = torch.ones(1, 3, 3)
    image[0, 0, 0] = torch.nan
    assert int(view(image, 1, 0, 0).isnan().sum()) == 1


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
    whole = flat(trained(views))
    for size in (1, 4):
        pieces = flat(trained(views, max_physical_batch=size))
        np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-5)


def test_the_views_of_a_record_follow_each_other():
    x = torch.arange(3 * 64.0).view(3, 64)
    two = ShiftAndFlip(EIGHT, views=2, padding=3, flip=True)
    moves = two.draw(generator(seed("test", use="views")), 3)
    assert moves.shape == (3, 2, 3) and moves.dtype == torch.int64
    expected = [
        moved(image.view(EIGHT), *move.tolist()).flatten()
        for image, of_image in zip(x, moves, strict=True)
        for move in of_image
    ]
    assert torch.equal(two.apply(x, moves), torch.stack(expected))


def test_identical_views_train_as_one_and_others_do_not():
    one = flat(trained(None))
    for views in (1, 4):
        same = flat(trained(ShiftAndFlip(EIGHT, views=views, padding=0, flip=False)))
        np.testing.assert_allclose(same, one, rtol=1e-4, atol=1e-5)
    other = flat(trained(ShiftAndFlip(EIGHT, views=4, padding=2, flip=True)))
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
    for number, one in enumerate(sums):
        assert not any(torch.allclose(one, other) for other in sums[:number])
