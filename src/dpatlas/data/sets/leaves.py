"""`leaves`, `leaves-grey`: an object before dead leaves; its tone, texture and shape are its class.
`leaves-8`: the same at 8 x 8, where a class is a tone and a shape.

Dead leaves (Lee, Mumford and Huang, 2001): shapes of power-law size fall on one another at random
places, each with tones and a texture of its own. The last to fall, large and near the middle, is
the object. Public by construction: random numbers, and six outlines that have a formula.
"""

from dataclasses import dataclass

import numpy as np

from dpatlas.data.definitions import DataSet, Drawn, Scaling
from dpatlas.data.generated import (
    COLOUR_SCALING,
    DIGITS_SCALING,
    GREY_SCALING,
    LEVELS_OF_DIGITS,
    generated_set,
)
from dpatlas.data.generated.ink import SIDE, SquareImages, stretched
from dpatlas.data.generated.surfaces import (
    SHAPES,
    TEXTURES,
    TILE_CELLS,
    TILES,
    Surfaces,
    photograph,
    render,
)

OBJECT_SHAPES = SHAPES[:4]
HUES = ("red", "green", "blue")
LEVELS = ("dark", "medium", "light")

# Layers from the bottom: the ground, the leaves, the object.
LEAVES = 40
LAYERS = LEAVES + 2
# Pixels. Radii of leaves have the density r^-3 between an image's own least and the greatest.
LEAST_RADIUS = (2.0, 6.0)
GREATEST_RADIUS = 18.0
OBJECT_RADIUS = (7.0, 12.0)
GROUND_RADIUS = 40.0
# Pixels: how far a leaf's centre may lie outside, and the object's from the middle.
MARGIN = 4.0
OFF_CENTRE = 4.5
# Least ratio of a shape's two diameters.
SQUEEZE = 0.7
# Shares of the textures among leaves.
LEAF_TEXTURES = (0.5, 0.25, 0.25)
# Periods of the tiles, in pixels; of a ramp in radii of its leaf.
PERIODS = {
    "flat": (1.0, 1.0),
    "ramp": (4.0, 8.0),
    "stripes": (3.0, 8.0),
    "checks": (4.0, 9.0),
    "spots": (3.5, 7.0),
    "noise": (16.0, 40.0),
}

# Grey levels: mean of an image, deviation of leaves about it, half the difference of two tones.
IMAGE_LEVEL = (60.0, 190.0)
LEVEL_DEVIATION = 45.0
HALF_CONTRAST = (12.0, 55.0)
SATURATION = (20.0, 80.0)
# Radians: deviation of a leaf's hue from its image's, largest distance of an object's from its
# class's.
HUE_DEVIATION = 0.9
OBJECT_HUE = 0.8
OBJECT_LEVELS = np.array([[20.0, 80.0], [95.0, 160.0], [175.0, 235.0]])

# For 8 x 8 images, photographed at BLOCK pixels a block. Tones: positions in LEVELS. Pixels: radius
# and distance of the object from the middle. Radians: its largest turn. Contrast of the leaves: a
# share of that in larger images.
BLOCK = 2
BLOCK_TONES = (0, 2)
BLOCK_RADIUS = (5.0, 7.0)
BLOCK_OFF_CENTRE = 1.0
BLOCK_TURN = 0.4
BLOCK_CONTRAST = 0.7

# Images rendered at a time: their arrays fit into the cache.
CHUNK = 32


@dataclass(frozen=True)
class Leaves(SquareImages):
    """A source of images of `side` x `side` pixels, in grey or, with three channels, in colour."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Every tone with every texture and every shape of an object."""
        tones = HUES if self.channels == 3 else LEVELS
        return tuple(
            f"{tone} {texture} {shape}"
            for tone in tones
            for texture in TEXTURES
            for shape in OBJECT_SHAPES
        )

    def draw(self, draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        """Images (images, channels side side) uint8 whose objects are of the classes `labels`."""
        kinds = np.unravel_index(labels, (len(HUES), len(TEXTURES), len(OBJECT_SHAPES)))
        return self.photographs(draws, self.surfaces(draws, *kinds))

    def photographs(self, draws: np.random.Generator, surfaces: Surfaces) -> np.ndarray:
        """Images (images, channels side side) uint8 of fallen leaves and objects."""
        images = surfaces.x.shape[1]
        pixels = np.empty((self.channels, self.side, self.side, images), np.float32)
        for start in range(0, images, CHUNK):
            chunk = slice(start, start + CHUNK)
            pixels[..., chunk] = render(surfaces.images(chunk), self.side)
        pixels = photograph(draws, pixels)
        return np.ascontiguousarray(pixels.reshape(-1, images).T)

    def surfaces(
        self, draws: np.random.Generator, tone: np.ndarray, texture: np.ndarray, shape: np.ndarray
    ) -> Surfaces:
        """Leaves and objects in the order in which they fall.

        tone, texture, shape: of the objects, as positions in the names above, (images,).
        """
        size = LAYERS, len(tone)
        shapes = draws.integers(len(SHAPES), size=size)
        shapes[0], shapes[-1] = SHAPES.index("disc"), shape
        x, y, radius = self._places(draws, size)
        tiles = _tiles(draws, size, texture)
        low, high = np.array([PERIODS[tile] for tile in TILES]).T
        period = low[tiles] + (high - low)[tiles] * draws.random(size)
        period *= np.where(tiles == TILES.index("ramp"), radius, 1)
        # Whole periods keep what is looked up in a tile from being negative.
        phase = TILE_CELLS + draws.random((2, *size))
        squeeze = draws.uniform(SQUEEZE, 1, size)
        turn, texture_turn = draws.uniform(0, 2 * np.pi, (2, *size))
        numbers = x, y, radius, period, squeeze, turn, texture_turn, phase
        tones = _tones(draws, size, self.channels, tone)
        return Surfaces(
            shapes.astype(np.int32),
            tiles.astype(np.int32),
            *(each.astype(np.float32) for each in (*numbers, tones)),
        )

    def _places(
        self, draws: np.random.Generator, size: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Centres x, y and radii (layers, images), in pixels."""
        centre = draws.uniform(-MARGIN, self.side + MARGIN, (2, *size))
        off_centre = draws.uniform(-OFF_CENTRE, OFF_CENTRE, (2, size[1]))
        centre[:, 0], centre[:, -1] = self.side / 2, self.side / 2 + off_centre
        # The inverse of r^-3's distribution function.
        most = draws.uniform(*LEAST_RADIUS, size[1]) ** -2
        radius = (most - draws.random(size) * (most - GREATEST_RADIUS**-2)) ** -0.5
        radius[0], radius[-1] = GROUND_RADIUS, draws.uniform(*OBJECT_RADIUS, size[1])
        return *centre, radius


COLOUR = Leaves(channels=3, side=32)
GREY = Leaves(channels=1, side=28)


class Blocks:
    """8 x 8 images: means over blocks of a photograph, stretched to 16 levels.

    Textures are lost in blocks and so are no part of a class. For a shape of few pixels to be seen,
    the object is large, nearly in the middle and nearly upright, and the leaves are paler.
    """

    image_shape = (1, SIDE, SIDE)
    classes = tuple(f"{LEVELS[tone]} {shape}" for tone in BLOCK_TONES for shape in SHAPES)
    scene = Leaves(channels=1, side=BLOCK * SIDE)

    def draw(self, draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        """Images (images, 64) uint8 from 0 to 16 whose objects are of the classes `labels`."""
        images = len(labels)
        tone, shape = np.divmod(labels, len(SHAPES))
        texture = draws.integers(len(TEXTURES), size=images)
        fallen = self.scene.surfaces(draws, np.array(BLOCK_TONES)[tone], texture, shape)
        off_centre = draws.uniform(-BLOCK_OFF_CENTRE, BLOCK_OFF_CENTRE, (2, images))
        fallen.x[-1], fallen.y[-1] = self.scene.side / 2 + off_centre
        fallen.radius[-1] = draws.uniform(*BLOCK_RADIUS, images)
        fallen.turn[-1] = draws.uniform(-BLOCK_TURN, BLOCK_TURN, images)
        leaves = fallen.tones[..., :-1, :]
        leaves += np.float32(1 - BLOCK_CONTRAST) * (leaves.mean((0, 2), keepdims=True) - leaves)
        pixels = self.scene.photographs(draws, fallen).reshape(images, SIDE, BLOCK, SIDE, BLOCK)
        return stretched(pixels.mean((2, 4)).reshape(images, -1))


BLOCKS = Blocks()


def _tiles(draws: np.random.Generator, size: tuple[int, int], texture: np.ndarray) -> np.ndarray:
    """Positions in TILES (layers, images); the object's is one of its `texture` (images,)."""
    textures = np.searchsorted(np.cumsum(LEAF_TEXTURES)[:-1], draws.random(size), side="right")
    textures[-1] = texture
    count = np.array([len(tiles) for tiles in TEXTURES.values()])
    first = np.cumsum(count) - count
    return first[textures] + (count[textures] * draws.random(size)).astype(np.int64)


def _tones(
    draws: np.random.Generator, size: tuple[int, int], channels: int, tone: np.ndarray
) -> np.ndarray:
    """Grey levels (2, channels, layers, images); the object's are of its `tone` (images,)."""
    images = size[1]
    level = draws.uniform(*IMAGE_LEVEL, images) + LEVEL_DEVIATION * draws.standard_normal(size)
    half = draws.uniform(*HALF_CONTRAST, size) * draws.choice([-1, 1], size)
    if channels == 1:
        low, high = OBJECT_LEVELS[tone].T
        level[-1] = low + (high - low) * draws.random(images)
        return np.stack([level - half, level + half])[:, None]
    hue = draws.uniform(0, 2 * np.pi, images) + HUE_DEVIATION * draws.standard_normal(size)
    hue[-1] = 2 * np.pi / len(HUES) * tone + draws.uniform(-OBJECT_HUE, OBJECT_HUE, images)
    of_channels = 2 * np.pi / len(HUES) * np.arange(channels)[:, None, None]
    chroma = draws.uniform(*SATURATION, size) * np.cos(hue - of_channels)
    # One of the two tones may be as good as grey.
    return np.stack([level - half + chroma, level + half + chroma * draws.random(size)])


DESIGNS = "later designs were compared with this one by accuracy on CIFAR-10, and dropped"


def _entry(name: str, source: Leaves | Blocks, kinds: int, form: str, scaling: Scaling) -> DataSet:
    return generated_set(
        name,
        f"an object before dead leaves, of {kinds} kinds",
        Drawn(source.classes, source.draw, DESIGNS, source.image_shape),
        form,
        scaling,
        only_public=True,
    )


SETS = (
    _entry("leaves", COLOUR, 36, "32 x 32 pixels in colour", COLOUR_SCALING),
    _entry("leaves-grey", GREY, 36, "28 x 28 grey pixels", GREY_SCALING),
    _entry("leaves-8", BLOCKS, 12, LEVELS_OF_DIGITS, DIGITS_SCALING),
)
