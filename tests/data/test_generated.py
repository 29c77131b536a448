import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dpatlas.core.seeds import generator
from dpatlas.data.generated import BLOCK, curves, fonts, records, scribbles, strokes
from dpatlas.data.generated.curves import distances
from dpatlas.data.generated.ink import PIXEL, block_counts
from dpatlas.data.generated.warps import BITMAP, WIDTH, Waves, place
from dpatlas.data.prepare import prepare, scale
from dpatlas.data.prepared import load
from dpatlas.data.registry import DATA_SETS, find
from dpatlas.errors import InputError

GENERATED = [name for name, entry in DATA_SETS.items() if entry.drawn]
BLOCK_COUNTS = [name for name in GENERATED if find(name).image_shape == (1, 8, 8)]


def draw(name, count, part="train", selection=0, classes=None):
    entry = find(name)
    return records(entry, classes or entry.classes, count, part=part, selection=selection)


@pytest.mark.parametrize("name", BLOCK_COUNTS)
def test_images_are_block_counts_of_every_class(name):
    pixels, labels = draw(name, 2 * BLOCK)
    assert pixels.shape == (2 * BLOCK, 64) and pixels.dtype == np.uint8
    assert pixels.min() == 0 and pixels.max() == 16
    assert set(labels) == set(range(len(find(name).classes)))
    # No image is blank or full.
    assert (np.ptp(pixels, axis=1) >= 8).all()


@pytest.mark.parametrize("name", GENERATED)
def test_a_part_that_grows_extends_itself(name):
    few, many = draw(name, 5), draw(name, BLOCK + 3)
    for short, long in zip(few, many, strict=True):
        np.testing.assert_array_equal(short, long[:5])


@pytest.mark.parametrize("name", ["strokes", "leaves-grey", "leaves-8", "styles-8", "styles"])
@pytest.mark.parametrize("other", [{"part": "test"}, {"selection": 1}])
def test_parts_and_selections_share_no_image(name, other):
    one, two = draw(name, 100)[0], draw(name, 100, **other)[0]
    assert cdist(one.astype(float), two.astype(float), "cityblock").min() > 0


MEANT_FOR = {"leaves": "cifar10", "leaves-grey": "pneumonia", "styles": "cifar10"} | dict.fromkeys(
    BLOCK_COUNTS, "digits"
)


@pytest.mark.parametrize("name", GENERATED)
def test_they_are_prepared_with_the_scaling_of_the_data_they_are_meant_for(name, tmp_path):
    entry, real = find(name), find(MEANT_FOR[name])
    assert (entry.scaling, entry.image_shape) == (real.scaling, real.image_shape)
    prepare(name, {"n_train": 6, "n_test": 3}, tmp_path)
    found = load(tmp_path)
    pixels, labels = draw(name, 6)
    np.testing.assert_array_equal(found.x_train, scale(pixels, real.scaling, None))
    np.testing.assert_array_equal(found.y_train, labels)
    assert found.image_shape == real.image_shape and len(found.x_test) == 3


def test_labels_are_uniform():
    counts = np.bincount(draw("strokes", 20 * BLOCK)[1])
    expected = 2 * BLOCK
    # Chi-squared with 9 degrees of freedom: below 30 but for 4 seeds in 10,000.
    assert ((counts - expected) ** 2 / expected).sum() < 30


@pytest.mark.parametrize("name", ["strokes", "fonts", "digits-and-letters"])
def test_labels_are_positions_in_the_selected_classes(name):
    """Means over the images of a class, drawn in two orders, are those of the same class."""
    means = {}
    for order in (("1", "0"), ("0", "1")):
        pixels, labels = draw(name, 2 * BLOCK, classes=order)
        means[order] = {order[k]: pixels[labels == k].mean(0) for k in range(2)}
    one, two = means.values()
    for digit in "01":
        assert np.abs(one[digit] - two[digit]).max() < 4 < np.abs(one["0"] - two["1"]).max()


@pytest.mark.parametrize("name", BLOCK_COUNTS)
def test_classes_can_be_told_apart(name):
    """Five nearest neighbours, far above chance: labels belong to their images."""
    x, y = draw(name, 12 * BLOCK)
    wanted, labels = draw(name, BLOCK, part="test")
    votes = y[np.argsort(cdist(wanted, x), axis=1)[:, :5]]
    predicted = [np.bincount(row).argmax() for row in votes]
    assert (predicted == labels).mean() > 0.4


def test_generated_sets_are_prepared_like_the_digits(tmp_path):
    options = {"n_train": 300, "n_test": 40, "n_validation": 20}
    for folder in ("one", "two"):
        prepare("strokes", options, tmp_path / folder)
    found = load(tmp_path / "one")
    assert found.x_train.shape == (300, 64) and found.x_test.shape == (40, 64)
    assert len(found.x_validation) == 20 and len(found.x_add) == 0
    assert (16 * found.x_train == np.rint(16 * found.x_train)).all() and found.x_train.max() == 1
    assert found.manifest["source"]["kind"] == "generated" and found.classes == strokes.CLASSES
    np.testing.assert_array_equal(found.x_train, draw("strokes", 300)[0] / np.float32(16))
    for name in ("arrays.npz", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_number_of_generated_records_must_be_given(tmp_path):
    with pytest.raises(InputError, match="n_train: found null"):
        prepare("strokes", {"n_test": 4}, tmp_path)


def test_distances_are_those_to_the_nearest_point():
    u, v = np.random.default_rng(0).uniform(0, 32, (2, 7, 5)).astype(np.float32)
    centres = np.stack(np.meshgrid(PIXEL, PIXEL), -1).reshape(-1, 2)
    for image, found in enumerate(np.moveaxis(distances(u, v), 2, 0)):
        expected = cdist(centres, np.stack([u[:, image], v[:, image]], 1)).min(1)
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-5)


@pytest.mark.parametrize("smooth", [True, False])
def test_strokes_pass_through_their_control_points(smooth):
    controls = np.array([[0, 0], [0.6, 0.1], [0.2, 0.8], [1, 1]])
    inner = (curves._catmull_rom if smooth else curves._polyline)(4)
    np.testing.assert_allclose((inner @ controls)[:: curves.FINE], controls, atol=1e-12)
    np.testing.assert_allclose(inner.sum(1), 1)


def shapes(images=50):
    x, y = np.random.default_rng(1).random((2, 30, images), dtype=np.float32)
    return x, y, np.full(images, 2, np.float32)


@pytest.mark.parametrize("unslant", [0, 0.5])
def test_shapes_fill_the_height_and_keep_to_the_width(unslant):
    x, y, margin = shapes()
    u, v = place(generator(3), x, y, margin, unslant).to_pixels(x, y)
    np.testing.assert_allclose(np.ptp(v, axis=0), BITMAP - 4, rtol=1e-4)
    assert (np.ptp(u, axis=0) <= WIDTH[1] - 4 + 1e-3).all()
    assert np.abs((u.min(0) + u.max(0)) / 2 - BITMAP / 2).max() < 4


def test_minus_the_warp_undoes_it_to_a_pixel():
    """What glyphs rest on: the warp is looked up where it ends, not where it starts."""
    x, y, _ = shapes()
    waves = Waves.draw(generator(5), 50)
    dx, dy = waves.displacement(x, y)
    back_x, back_y = waves.displacement(x + dx, y + dy)
    off = np.hypot(dx - back_x, dy - back_y) * BITMAP
    assert np.quantile(off, 0.9) < 1 < np.quantile(np.hypot(dx, dy) * BITMAP, 0.9)


def test_ink_is_counted_in_blocks():
    depth = np.full((BITMAP, BITMAP, 2), -50, np.float32)
    depth[:, :6] = 50
    counts = block_counts(generator(0), depth).reshape(2, 8, 8)
    np.testing.assert_array_equal(counts, np.broadcast_to([16, 8, 0, 0, 0, 0, 0, 0], (2, 8, 8)))


def test_fields_are_signed_distances_in_units_of_the_height():
    ring, _ = fonts._field("DejaVuSans", "0")
    row = np.sign(ring[len(ring) // 2])
    # Out, the left stem, the hole, the right stem, out.
    assert [row[0], *row[1:][np.diff(row) != 0]] == [-1, 1, -1, 1, -1]
    bar, _ = fonts._field("DejaVuSans", "I")
    middle = bar[len(bar) // 2]
    step = np.diff(middle[bar.shape[1] // 2 + 6 :])
    np.testing.assert_allclose(step, -fonts.ASPECT / fonts.CELLS[0], rtol=1e-4)


def test_outlines_lie_where_the_depth_changes_sign():
    """Points warped and placed forwards, against the field that is looked up backwards."""
    glyphs, images = fonts._glyphs(fonts.DIGITS), 100
    which = np.arange(images)
    x, y = np.moveaxis(glyphs.outlines[which], 2, 0).transpose(0, 2, 1)
    waves, margin = Waves.draw(generator(7), images), np.zeros(images, np.float32)
    dx, dy = waves.displacement(x, y)
    placement = place(generator(8), x + dx, y + dy, margin, unslant=0)
    u, v = (each.astype(int).clip(0, 31) for each in placement.to_pixels(x + dx, y + dy))
    depth = glyphs.depth(which, waves, placement)[v, u, which]
    assert np.abs(depth).mean() < 0.6


def test_inverted_letters_exchange_ink_and_paper():
    labels = np.arange(36)
    letters, inverted = (
        find(name).drawn.draw(generator(6), labels) for name in ("letters", "inverted-letters")
    )
    np.testing.assert_array_equal(inverted, 16 - letters)


def test_scribbles_are_different_shapes():
    skeletons = [tuple(scribbles._skeleton(number)) for number in range(len(scribbles.CLASSES))]
    assert len(set(skeletons)) == len(scribbles.CLASSES)
