import numpy as np
import pytest
from generated_draws import draw
from scipy.spatial.distance import cdist

from dpatlas.base.seeds import generator
from dpatlas.data.definitions import scale
from dpatlas.data.generated import BLOCK
from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.data.registry import DATA_SETS, find
from dpatlas.errors import InputError

GENERATED = [name for name, entry in DATA_SETS.items() if entry.drawn]
BLOCK_COUNTS = [name for name in GENERATED if find(name).image_shape == (1, 8, 8)]


@pytest.mark.parametrize("name", GENERATED)
def test_images_have_all_levels_and_are_of_every_class(name):
    entry, levels = find(name), 17 if name in BLOCK_COUNTS else 256
    pixels, labels = draw(name, 2 * BLOCK)
    assert pixels.shape == (2 * BLOCK, np.prod(entry.image_shape)) and pixels.dtype == np.uint8
    assert set(np.unique(pixels)) == set(range(levels))
    assert set(labels) == set(range(len(set(entry.classes))))
    # No image is blank, and of the large ones none is mostly beyond the levels there are.
    assert (np.ptp(pixels, axis=1) >= 8).all()
    if name not in BLOCK_COUNTS:
        assert np.isin(pixels, (0, 255)).mean(1).max() < 0.4 and pixels.std(1).min() > 15


def test_a_part_that_grows_extends_itself():
    few, many = draw("strokes", 5), draw("strokes", BLOCK + 3)
    for short, long in zip(few, many, strict=True):
        np.testing.assert_array_equal(short, long[:5])


@pytest.mark.parametrize("name", ["strokes", "leaves-8"])
@pytest.mark.parametrize("other", [{"part": "test"}, {"selection": 1}])
def test_parts_and_selections_share_no_image(name, other):
    one, two = draw(name, 100)[0], draw(name, 100, **other)[0]
    assert cdist(one.astype(float), two.astype(float), "cityblock").min() > 0


MEANT_FOR = {"leaves": "cifar10", "leaves-grey": "pneumonia", "styles": "cifar10"} | dict.fromkeys(
    BLOCK_COUNTS, "digits"
)


def test_they_are_prepared_with_the_scaling_of_the_data_they_are_meant_for(tmp_path):
    for name in GENERATED:
        entry, real = find(name), find(MEANT_FOR[name])
        assert (entry.scaling, entry.image_shape) == (real.scaling, real.image_shape)
    prepare("strokes", {"n_train": 6, "n_test": 3}, tmp_path)
    made = load(tmp_path)
    pixels, labels = draw("strokes", 6)
    np.testing.assert_array_equal(made.x_train, scale(pixels, find("digits").scaling, None))
    np.testing.assert_array_equal(made.y_train, labels)
    assert made.image_shape == (1, 8, 8) and len(made.x_test) == 3


@pytest.mark.parametrize("name", ["strokes", "leaves"])
def test_labels_are_positions_in_the_selected_classes(name):
    """Means over the images of a class, drawn in two orders, are those of the same class."""
    pair = find(name).classes[0], find(name).classes[-1]
    means = []
    for order in (pair, pair[::-1]):
        pixels, labels = draw(name, 2 * BLOCK, classes=order)
        means.append({order[k]: pixels[labels == k].mean(0) for k in range(2)})
    one, two = means
    same = max(np.abs(one[each] - two[each]).max() for each in pair)
    assert same < np.abs(one[pair[0]] - two[pair[1]]).max() / 2


@pytest.mark.parametrize("name", BLOCK_COUNTS)
def test_classes_can_be_told_apart(name):
    """Five nearest neighbours, far above chance: labels belong to their images."""
    x, y = draw(name, 12 * BLOCK)
    wanted, labels = draw(name, BLOCK, part="test")
    votes = y[np.argsort(cdist(wanted, x), axis=1)[:, :5]]
    predicted = [np.bincount(row).argmax() for row in votes]
    assert (predicted == labels).mean() > 0.4


def test_the_number_of_generated_records_must_be_given(tmp_path):
    with pytest.raises(InputError, match="n_train: found null"):
        prepare("strokes", {"n_test": 4}, tmp_path)


def test_inverted_letters_exchange_ink_and_paper():
    labels = np.arange(36)
    letters, inverted = (
        find(name).drawn.draw(generator(6), labels) for name in ("letters", "inverted-letters")
    )
    np.testing.assert_array_equal(inverted, 16 - letters)
