"""Surfaces that cover one another: outlines and tiles by formula, light, blur and grain.

Numbers of a surface are for a block of images at once, the images last, so that every operation
runs over whole rows.
"""

import functools
from typing import NamedTuple

import numpy as np

from dpatlas.base.seeds import generator, seed
from dpatlas.data.generated.ink import blurred

SHAPES = ("disc", "bar", "triangle", "ring", "square", "star")
# The tiles that a surface of each texture may be covered with.
TEXTURES = {
    "plain": ("flat", "ramp"),
    "patterned": ("stripes", "checks", "spots"),
    "noisy": ("noise",),
}
TILES = tuple(tile for tiles in TEXTURES.values() for tile in tiles)

# Light that falls from one side, weight of a 3 x 3 blur, deviation of the grain: at most.
SHADE = 0.3
BLUR = 0.6
GRAIN = 6.0

# Cells of a shape's table, which reaches so many radii to every side, and of a tile.
SHAPE_CELLS, REACH = 128, 1.25
TILE_CELLS = 64


class Surfaces(NamedTuple):
    """What falls on each image, from the bottom up: arrays (..., LAYERS, images) float32.

    shape, tile: positions in SHAPES and TILES, int32. x, y, radius, period: pixels. squeeze: ratio
    of the diameters. turn, texture_turn: radians. phase (2, ...): in periods. tones (2, channels,
    ...): the grey levels where the tile is 0 and where it is 1.
    """

    shape: np.ndarray
    tile: np.ndarray
    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    period: np.ndarray
    squeeze: np.ndarray
    turn: np.ndarray
    texture_turn: np.ndarray
    phase: np.ndarray
    tones: np.ndarray

    def layer(self, number: int) -> "Surfaces":
        """One layer: arrays (..., images)."""
        return Surfaces(*(each[..., number, :] for each in self))

    def images(self, part: slice) -> "Surfaces":
        """The surfaces of some of the images."""
        return Surfaces(*(each[..., part] for each in self))


def render(surfaces: Surfaces, side: int) -> np.ndarray:
    """(channels, side, side, images) float32: every layer over those below it, edges smoothed."""
    pixel = np.arange(side, dtype=np.float32) + np.float32(0.5)
    depths, tiles = _depths(), _tile_values()
    channels, layers, images = surfaces.tones.shape[1:]
    shown = np.zeros((channels, side, side, images), np.float32)
    for layer in range(layers):
        of = surfaces.layer(layer)
        x, y = pixel[:, None] - of.x, pixel[:, None] - of.y
        cells = np.float32(SHAPE_CELLS / 2 / REACH) / np.stack([of.radius * of.squeeze, of.radius])
        cell = _grid(x, y, of.turn, cells, np.float32(SHAPE_CELLS / 2))
        np.clip(cell, 0, SHAPE_CELLS - 1, out=cell)
        cover = _look_up(depths, of.shape, cell.astype(np.int32))
        cover *= of.radius
        cover += np.float32(0.5)
        np.clip(cover, 0, 1, out=cover)
        cells = np.broadcast_to(TILE_CELLS / of.period, (2, images))
        cell = _grid(x, y, of.texture_turn, cells, TILE_CELLS * of.phase[:, None])
        value = _look_up(tiles, of.tile, cell.astype(np.int32) & (TILE_CELLS - 1))
        for channel, (low, high) in enumerate(of.tones.swapaxes(0, 1)):
            change = value * (high - low)
            change += low
            change -= shown[channel]
            change *= cover
            shown[channel] += change
    return shown


def _grid(
    x: np.ndarray,
    y: np.ndarray,
    angle: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray | np.float32,
) -> np.ndarray:
    """(2, rows, columns, images): turned by `angle` and scaled, what lies at columns x and rows y.

    x, y (side, images); scale (2, images).
    """
    cos, sin = np.cos(angle), np.sin(angle)
    along = np.stack([cos * x, -sin * x]) * scale[:, None]
    down = np.stack([sin * y, cos * y]) * scale[:, None] + offset
    return along[:, None] + down[:, :, None]


def _look_up(tables: np.ndarray, which: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """tables (tables, cells, cells) of `which` (images,) at cell (2, rows, columns, images)."""
    column, row = cell
    row += which * np.int32(tables.shape[1])
    row *= np.int32(tables.shape[2])
    row += column
    return tables.ravel()[row]


def photograph(draws: np.random.Generator, shown: np.ndarray) -> np.ndarray:
    """Light from one side, a blur and grain: (channels, side, side, images) uint8."""
    side, images = shown.shape[2:]
    position = np.linspace(-1, 1, side, dtype=np.float32)[:, None]
    slope = draws.uniform(-SHADE, SHADE, (2, images)).astype(np.float32)
    shown = shown * (1 + (slope[0] * position)[:, None] + slope[1] * position)
    weight = draws.uniform(0, BLUR, (images,)).astype(np.float32)
    shown += weight * (blurred(shown) - shown)
    grain = draws.uniform(0, GRAIN, (images,)).astype(np.float32)
    shown += grain * draws.standard_normal(shown.shape, dtype=np.float32)
    return np.rint(np.clip(shown, 0, 255)).astype(np.uint8)


@functools.cache
def _depths() -> np.ndarray:
    """(SHAPES, SHAPE_CELLS, SHAPE_CELLS) float32: how far inside the outline, in radii."""
    cell = ((np.arange(SHAPE_CELLS) + 0.5) / SHAPE_CELLS * 2 - 1) * REACH
    x, y = np.meshgrid(cell, cell)
    length, angle = np.hypot(x, y), np.arctan2(x, y)
    depths = {
        "disc": 0.9 - length,
        "bar": np.minimum(1.15 - abs(x), 0.36 - abs(y)),
        "triangle": _regular(length, angle, corners=3, notch=0.5),
        "ring": 0.25 - abs(length - 0.8),
        "square": np.minimum(0.8 - abs(x), 0.8 - abs(y)),
        "star": _regular(length, angle, corners=5, notch=0.45),
    }
    return np.stack([depths[shape] for shape in SHAPES]).astype(np.float32)


def _regular(length: np.ndarray, angle: np.ndarray, corners: int, notch: float) -> np.ndarray:
    """How far inside a polygon or star of radius 1.15 with notches at `notch` times that."""
    wedge = np.pi / corners
    folded = abs((angle + wedge) % (2 * wedge) - wedge)
    x, y = length * np.cos(folded), length * np.sin(folded)
    # From the corner to the notch.
    along = np.array([notch * np.cos(wedge) - 1, notch * np.sin(wedge)])
    return ((x - 1.15) * along[1] - y * along[0]) / -np.hypot(*along)


@functools.cache
def _tile_values() -> np.ndarray:
    """(TILES, TILE_CELLS, TILE_CELLS) float32 from 0 to 1, each tile's edges meeting."""
    centres = (np.arange(TILE_CELLS) + 0.5) / TILE_CELLS
    x, y = np.meshgrid(centres, centres)
    wave_x, wave_y = np.sin(2 * np.pi * x), np.sin(2 * np.pi * y)
    values = {
        "flat": np.full_like(x, 0.5),
        "ramp": abs(2 * x - 1),
        "stripes": 0.5 + wave_x,
        "checks": 0.5 + 1.5 * wave_x * wave_y,
        "spots": 0.5 + 8 * (0.3 - np.hypot(x - 0.5, y - 0.5)),
        "noise": _noise(),
    }
    return np.stack([np.clip(values[tile], 0, 1) for tile in TILES]).astype(np.float32)


def _noise() -> np.ndarray:
    """A tile of Gaussian noise with a spectrum of 1 / f^2, of mean 0.5 and deviation 0.25."""
    draws = generator(seed("data", use="leaves", tile="noise"))
    frequency = np.fft.fftfreq(TILE_CELLS) * TILE_CELLS
    length = np.hypot(*np.meshgrid(frequency, frequency))
    spectrum = np.fft.fft2(draws.standard_normal((TILE_CELLS, TILE_CELLS)))
    spectrum[length > 0] /= length[length > 0]
    spectrum[0, 0] = 0
    noise = np.fft.ifft2(spectrum).real
    return 0.5 + 0.25 * noise / noise.std()
