import numpy as np
import pytest
from generated_draws import draw
from scipy import stats

from dpatlas.base.seeds import generator
from dpatlas.data.generated import BLOCK, surfaces
from dpatlas.data.generated.surfaces import SHAPES, TEXTURES
from dpatlas.data.sets import leaves
from dpatlas.data.sets.leaves import COLOUR, GREATEST_RADIUS, GREY, LAYERS

NAMES = {"leaves": COLOUR, "leaves-grey": GREY}
KINDS = len(leaves.HUES), len(TEXTURES), len(leaves.OBJECT_SHAPES)


@pytest.fixture(scope="module")
def drawn():
    """Images (n, channels, side, side) and the tone, texture and shape of their objects."""
    found = {}
    for name, source in NAMES.items():
        pixels, labels = draw(name, 4 * BLOCK)
        images = pixels.reshape(-1, *source.image_shape).astype(float)
        found[name] = images, *np.unravel_index(labels, KINDS)
    return found


def middle(images, half=3):
    """The pixels about the middle, where nearly every object is."""
    centre = images.shape[-1] // 2
    return images[..., centre - half : centre + half, centre - half : centre + half]


def test_images_do_not_depend_on_how_many_are_rendered_at_a_time(monkeypatch):
    labels = np.arange(36)
    whole = COLOUR.draw(generator(1), labels)
    monkeypatch.setattr(leaves, "CHUNK", 7)
    np.testing.assert_array_equal(whole, COLOUR.draw(generator(1), labels))


def test_hues_and_levels_are_those_of_the_objects(drawn):
    images, tone, _, shape = drawn["leaves"]
    solid = shape != leaves.OBJECT_SHAPES.index("ring")
    for hue in range(len(leaves.HUES)):
        red_green_blue = middle(images[solid & (tone == hue)]).mean((0, 2, 3))
        others = np.delete(red_green_blue, hue)
        assert red_green_blue[hue] > others.max() + 15
    images, tone, _, shape = drawn["leaves-grey"]
    solid = shape != leaves.OBJECT_SHAPES.index("ring")
    levels = [middle(images[solid & (tone == level)]).mean() for level in range(3)]
    assert (np.diff(levels) > 40).all()


@pytest.mark.parametrize("name", NAMES)
def test_textures_differ_in_their_steps_from_pixel_to_pixel(name, drawn):
    images, _, texture, shape = drawn[name]
    inner = middle(images)
    steps = np.abs(np.diff(inner, axis=-1)).mean((1, 2, 3))
    disc = shape == leaves.OBJECT_SHAPES.index("disc")
    plain, patterned, noisy = (steps[disc & (texture == each)].mean() for each in range(3))
    assert patterned > 1.5 * plain and noisy > 1.5 * plain


def test_shapes_are_those_of_the_objects(drawn):
    """Where light objects are lighter than dark ones, on average, is where a shape lies."""
    images, tone, _, shape = drawn["leaves-grey"]
    where = {
        name: (
            images[(shape == of) & (tone == 2)].mean(0)
            - images[(shape == of) & (tone == 0)].mean(0)
        )[0]
        for of, name in enumerate(leaves.OBJECT_SHAPES)
    }
    area = {name: difference.mean() for name, difference in where.items()}
    assert area["disc"] > 1.3 * max(area["bar"], area["triangle"])
    ring = where["ring"]
    assert middle(ring, 2).mean() < 0.9 * middle(ring, 8).mean()
    for name in ("disc", "bar", "triangle"):
        assert middle(where[name], 2).mean() > 1.3 * middle(where[name], 8).mean()


@pytest.mark.parametrize(("name", "tones"), [("leaves", 3), ("leaves-grey", 1)])
def test_the_brightness_of_an_image_tells_nothing_but_a_grey_objects_level(name, tones, drawn):
    images, tone, texture, shape = drawn[name]
    classes = np.ravel_multi_index((tone % tones, texture, shape), KINDS)
    brightness = images.mean((1, 2, 3))
    groups = [brightness[classes == each] for each in np.unique(classes)]
    assert len(groups) == 12 * tones
    assert stats.f_oneway(*groups).pvalue > 1e-3
    assert stats.kruskal(*groups).pvalue > 1e-3


def test_radii_have_a_power_law():
    size = LAYERS, 400
    _, _, radius = COLOUR._places(generator(2), size)
    images = radius[1:-1]
    # Above every image's least radius the density is r^-3, whatever that was.
    large = images[images > leaves.LEAST_RADIUS[1]]
    low, high = leaves.LEAST_RADIUS[1] ** -2, GREATEST_RADIUS**-2
    assert stats.kstest((low - large**-2) / (low - high), "uniform").pvalue > 1e-3
    assert images.min() >= leaves.LEAST_RADIUS[0] and images.max() <= GREATEST_RADIUS


def test_outlines_are_those_of_their_names():
    """Areas in units of the squared radius, by formula; overlaps of box and circle are none."""
    depths = surfaces._depths()
    cell = (2 * surfaces.REACH / surfaces.SHAPE_CELLS) ** 2
    area = dict(zip(SHAPES, (depths > 0).sum((1, 2)) * cell, strict=True))
    star = 5 * 1.15**2 * 0.45 * np.sin(np.pi / 5)
    expected = {
        "disc": np.pi * 0.9**2,
        "bar": 4 * 1.15 * 0.36,
        "triangle": 3 * np.sqrt(3) / 4 * 1.15**2,
        "ring": np.pi * (1.05**2 - 0.55**2),
        "square": 1.6**2,
        "star": star,
    }
    assert area == pytest.approx(expected, rel=0.03)
    # Steps of one cell change a depth by no more than the cell's side.
    assert np.abs(np.diff(depths, axis=2)).max() <= 1.001 * np.sqrt(cell)
