import numpy as np
import pytest
from generated_draws import draw
from scipy import stats

from dpatlas.base.seeds import generator
from dpatlas.data.generated import BLOCK
from dpatlas.data.generated.surfaces import TEXTURES
from dpatlas.data.sets import leaves
from dpatlas.data.sets.leaves import COLOUR, GREY

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


@pytest.mark.parametrize(("name", "tones"), [("leaves", 3), ("leaves-grey", 1)])
def test_the_brightness_of_an_image_tells_nothing_but_a_grey_objects_level(name, tones, drawn):
    images, tone, texture, shape = drawn[name]
    classes = np.ravel_multi_index((tone % tones, texture, shape), KINDS)
    brightness = images.mean((1, 2, 3))
    groups = [brightness[classes == each] for each in np.unique(classes)]
    assert len(groups) == 12 * tones
    assert stats.f_oneway(*groups).pvalue > 1e-3
    assert stats.kruskal(*groups).pvalue > 1e-3
