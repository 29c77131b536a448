import numpy as np
import pytest
from generated_draws import draw
from scipy import stats
from scipy.spatial.distance import cdist

from dpatlas.base.seeds import generator
from dpatlas.data.generated import BLOCK
from dpatlas.data.registry import find
from dpatlas.data.sets.styles import GREY


@pytest.fixture(scope="module")
def colour():
    """Images (n, 3, 32, 32) of `styles`, and their labels."""
    pixels, labels = draw("styles", 4 * BLOCK)
    return pixels.reshape(-1, 3, 32, 32).astype(float), labels


@pytest.mark.parametrize(("name", "share"), [("leaves-8", 0.35), ("styles-8", 0.15)])
def test_no_single_pixel_tells_the_classes_apart(name, share):
    """The best guess from one pixel's level, over all pixels; a light object takes a half away."""
    pixels, labels = draw(name, 12 * BLOCK)
    wanted, truth = draw(name, BLOCK, part="test")
    found = []
    for pixel in range(64):
        counts = np.zeros((17, len(find(name).classes)))
        np.add.at(counts, (pixels[:, pixel], labels), 1)
        found.append((counts.argmax(1)[wanted[:, pixel]] == truth).mean())
    assert max(found) < share


def test_the_layout_of_a_colour_image_tells_its_class(colour):
    """Five nearest neighbours among means over blocks of 4 x 4, far above 1 in 36."""
    images, labels = colour
    blocks = images.reshape(-1, 3, 8, 4, 8, 4).mean((3, 5)).mean(1).reshape(-1, 64)
    blocks -= blocks.mean(1, keepdims=True)
    blocks /= np.linalg.norm(blocks, axis=1, keepdims=True)
    votes = labels[BLOCK:][np.argsort(cdist(blocks[:BLOCK], blocks[BLOCK:]), axis=1)[:, :5]]
    predicted = [np.bincount(row).argmax() for row in votes]
    assert (predicted == labels[:BLOCK]).mean() > 0.2


def test_the_mean_colour_and_the_contrast_tell_nothing(colour):
    images, labels = colour
    tells = [*images.mean((2, 3)).T, images.std((2, 3)).mean(1)]
    for each in tells:
        groups = [each[labels == style] for style in range(36)]
        assert stats.kruskal(*groups).pvalue > 1e-3


def test_an_image_does_not_depend_on_the_classes_beside_it():
    labels = np.arange(60) % 3
    changed = labels.copy()
    changed[0] = 1
    one, two = GREY.draw(generator(1), labels), GREY.draw(generator(1), changed)
    np.testing.assert_array_equal(one[labels == 2], two[labels == 2])
    # Products of other shapes round otherwise.
    assert np.abs(one[1:].astype(int) - two[1:]).max() <= 1
    assert np.abs(one[0].astype(int) - two[0]).max() > 4
