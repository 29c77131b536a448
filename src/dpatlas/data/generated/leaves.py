"""`leaves`, `leaves-grey`: dead leaves; a class is the law that the leaves of an image follow.

Dead leaves (Lee, Mumford and Huang, 2001): shapes of power-law size fall on one another at random
places, each with tones and a texture of its own. The law says which tone, direction and texture
most leaves of an image have: what the first layers of any visual system measure. Public by
construction: random numbers, and six outlines that have a formula.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from dpatlas.data.generated.surfaces import (
    SHAPES,
    TEXTURES,
    TILE_CELLS,
    TILES,
    Surfaces,
    photograph,
    render,
)

# What the tones of an image mostly differ in: a direction in (red, green, blue), or for grey images
# how the levels lie about their mean: few far below it, as many on both sides, few far above it.
COLOUR_TONES = {"light-dark": (1, 1, 1), "red-green": (1, -1, 0), "blue-yellow": (-0.5, -0.5, 1)}
GREY_TONES = ("dark-spotted", "even", "light-spotted")
# Directions of the long axes, from the vertical: in units of 45 degrees.
DIRECTIONS = ("upright", "falling", "lying", "rising")
CLASSES_OF = len(GREY_TONES), len(DIRECTIONS), len(TEXTURES)
# The share of the leaves that have their image's direction and texture; the others have any.
LAWFUL = 0.75

# Layers from the bottom: the ground, and the leaves.
LAYERS = 41
# Pixels. Radii have the density r^-3 between an image's own least and the greatest.
LEAST_RADIUS = (2.0, 6.0)
GREATEST_RADIUS = 18.0
GROUND_RADIUS = 40.0
# Pixels: how far a leaf's centre may lie outside.
MARGIN = 4.0
# Ratio of a shape's two diameters.
SQUEEZE = (0.4, 0.8)
# Radians about the direction of a class, at most.
SWAY = 0.3
# Periods of the tiles, in pixels; of a ramp in radii of its leaf.
PERIODS = {
    "flat": (1.0, 1.0),
    "ramp": (4.0, 8.0),
    "stripes": (3.0, 8.0),
    "checks": (4.0, 9.0),
    "spots": (3.5, 7.0),
    "noise": (16.0, 40.0),
}

# Grey levels: an image's mean, and its chroma in each of the two directions; deviations of leaves
# from it, and half differences of a leaf's two tones, in the direction of the class and in others.
LEVEL = (70.0, 185.0)
CHROMA_DEVIATION = 20.0
LEAF_DEVIATION = (40.0, 14.0)
HALF_CONTRAST = (10.0, 45.0)
OTHER_CONTRAST = 6.0

# Images rendered at a time: their arrays fit into the cache.
CHUNK = 32


@dataclass(frozen=True)
class Leaves:
    """A source of images of `side` x `side` pixels, in grey or, with three channels, in colour."""

    channels: int
    side: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.side, self.side

    @property
    def classes(self) -> tuple[str, ...]:
        """Every tone with every direction and every texture."""
        tones = COLOUR_TONES if self.channels == 3 else GREY_TONES
        return tuple(map(" ".join, itertools.product(tones, DIRECTIONS, TEXTURES)))

    def draw(self, draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        """Images (images, channels side side) uint8 whose leaves follow the laws `labels`."""
        surfaces = self._surfaces(draws, labels)
        images = len(labels)
        pixels = np.empty((self.channels, self.side, self.side, images), np.float32)
        for start in range(0, images, CHUNK):
            chosen = slice(start, start + CHUNK)
            pixels[..., chosen] = render(surfaces.images(chosen), self.side)
        pixels = photograph(draws, pixels)
        return np.ascontiguousarray(pixels.reshape(-1, images).T)

    def _surfaces(self, draws: np.random.Generator, labels: np.ndarray) -> Surfaces:
        size = LAYERS, len(labels)
        tone, direction, texture = np.unravel_index(labels, CLASSES_OF)
        shapes = draws.integers(len(SHAPES), size=size)
        shapes[0] = SHAPES.index("disc")
        tiles = _tiles(draws, size, texture)
        x, y, radius = self._places(draws, size)
        low, high = np.array([PERIODS[tile] for tile in TILES]).T
        period = low[tiles] + (high - low)[tiles] * draws.random(size)
        period *= np.where(tiles == TILES.index("ramp"), radius, 1)
        # Whole periods keep what is looked up in a tile from being negative.
        phase = TILE_CELLS + draws.random((2, *size))
        squeeze = draws.uniform(*SQUEEZE, size)
        turn = _mostly(draws, size, direction, len(DIRECTIONS)) * (np.pi / len(DIRECTIONS))
        turn += draws.uniform(-SWAY, SWAY, size)
        numbers = x, y, radius, period, squeeze, turn, turn, phase
        tones = (_colour_tones if self.channels == 3 else _grey_tones)(draws, size, tone)
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
        least = draws.uniform(*LEAST_RADIUS, size[1])
        # The inverse of r^-3's distribution function.
        radius = (least**-2 - draws.random(size) * (least**-2 - GREATEST_RADIUS**-2)) ** -0.5
        centre[:, 0], radius[0] = self.side / 2, GROUND_RADIUS
        return *centre, radius


COLOUR = Leaves(channels=3, side=32)
GREY = Leaves(channels=1, side=28)


def _mostly(
    draws: np.random.Generator, size: tuple[int, int], lawful: np.ndarray, kinds: int
) -> np.ndarray:
    """Kinds (layers, images): most of an image's are its `lawful` one (images,), the rest any."""
    return np.where(draws.random(size) < LAWFUL, lawful, draws.integers(kinds, size=size))


def _tiles(draws: np.random.Generator, size: tuple[int, int], texture: np.ndarray) -> np.ndarray:
    """Positions in TILES (layers, images); most of an image's are of its `texture` (images,)."""
    textures = _mostly(draws, size, texture, len(TEXTURES))
    count = np.array([len(tiles) for tiles in TEXTURES.values()])
    first = np.cumsum(count) - count
    return first[textures] + (count[textures] * draws.random(size)).astype(np.int64)


def _grey_tones(draws: np.random.Generator, size: tuple[int, int], tone: np.ndarray) -> np.ndarray:
    """Grey levels (2, 1, layers, images) of images whose tone is `tone` (images,)."""
    half = draws.uniform(*HALF_CONTRAST, size) * draws.choice([-1, 1], size)
    skew = draws.standard_exponential(size) - 1
    even = draws.standard_normal(size)
    leaf = LEAF_DEVIATION[0] * np.choose(tone, [-skew, even, skew])
    level = draws.uniform(*LEVEL, size[1]) + leaf
    return np.stack([level - half, level + half])[:, None]


def _colour_tones(
    draws: np.random.Generator, size: tuple[int, int], tone: np.ndarray
) -> np.ndarray:
    """Grey levels (2, 3, layers, images) of images whose tone is `tone` (images,)."""
    axes = np.array(list(COLOUR_TONES.values()))
    own = (np.arange(len(axes))[:, None] == tone)[:, None]
    leaf = np.where(own, *LEAF_DEVIATION) * draws.standard_normal((len(axes), *size))
    contrast = draws.uniform(*HALF_CONTRAST, size) * draws.choice([-1, 1], size)
    half = np.where(own, contrast, OTHER_CONTRAST * draws.standard_normal((len(axes), *size)))
    mean = CHROMA_DEVIATION * draws.standard_normal((len(axes), 1, size[1]))
    mean[0] = draws.uniform(*LEVEL, size[1])
    tones = np.stack([mean + leaf - half, mean + leaf + half])
    return np.einsum("ac,talm->tclm", axes, tones)
