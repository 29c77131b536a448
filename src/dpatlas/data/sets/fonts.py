"""`fonts`, `letters`, `inverted-letters`: glyphs of the fonts that matplotlib ships.

A glyph is kept as a signed distance field, warped like a drawn stroke and made thicker or thinner
by a shift of the threshold. Public by construction: outlines of free fonts and random numbers.
"""

import functools
from pathlib import Path

import numpy as np

from dpatlas.data.definitions import Draw, Drawn
from dpatlas.data.generated import generated_set
from dpatlas.data.generated.ink import LEVELS, PIXEL, block_counts
from dpatlas.data.generated.warps import ASPECT, BITMAP, Placement, Waves, place

FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "cmr10",
    "cmb10",
    "cmss10",
    "cmtt10",
)
DIGITS = tuple("0123456789")
# Capitals, and the small letters that are no small copies of them; q is left out, at 8 x 8 it is a
# g. No digit is among them, although O and I come close in some fonts.
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnrt")

# Pixels: deviation of the threshold shift, and limits that keep hairlines from vanishing and bold
# glyphs from filling in: the least shift, and half the width of the widest stem after it.
SHIFT_DEVIATION = 1.6
LEAST_SHIFT = -0.4
HALF_WIDTH = (1.7, 3.0)
# The field's grid: its extent around the glyph's box [0, 1] x [0, 1], and cells per unit.
LOW = (-0.75, -0.2)
HIGH = (1.75, 1.2)
CELLS = (54, 80)
OUTLINE_POINTS = 64


class Glyphs:
    """Signed distance fields of some characters in all fonts.

    fields (characters x fonts, rows, columns) float32: distance from the outline in units of the
    glyph's height, positive inside. outlines (characters x fonts, OUTLINE_POINTS, 2). half_widths
    (characters x fonts,): of the widest stem, in pixels.
    """

    def __init__(self, characters: tuple[str, ...]):
        fields, outlines = zip(
            *(_field(font, character) for character in characters for font in FONTS), strict=True
        )
        self.fields, self.outlines = np.stack(fields), np.stack(outlines)
        self.half_widths = self.fields.max((1, 2)) * np.float32(BITMAP)

    def draw(self, draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        """Images (images, 64) uint8 from 0 to 16 of the characters `labels`, in any font."""
        images = len(labels)
        fonts = (draws.random(images, dtype=np.float32) * len(FONTS)).astype(np.int64)
        which = labels * len(FONTS) + fonts
        x, y = np.ascontiguousarray(self.outlines[which].transpose(2, 1, 0))
        waves = Waves.draw(draws, images)
        dx, dy = waves.displacement(x, y)
        shift = self._shift(draws, which)
        placement = place(draws, x + dx, y + dy, shift, unslant=0)
        depth = self.depth(which, waves, placement)
        depth += shift
        return block_counts(draws, depth)

    def depth(self, which: np.ndarray, waves: Waves, placement: Placement) -> np.ndarray:
        """(32, 32, images): distance from the warped and placed outlines in pixels, inside > 0."""
        x, y = placement.to_shape(PIXEL[None, :, None], PIXEL[:, None, None])
        # The warp is smooth and small, so minus the warp undoes it.
        dx, dy = waves.displacement(x, y)
        return self._lookup(which, x - dx, y - dy) * np.sqrt(placement.area / np.float32(ASPECT))

    def _shift(self, draws: np.random.Generator, which: np.ndarray) -> np.ndarray:
        """By how many pixels each image's outline moves outwards, (images,)."""
        shift = np.float32(SHIFT_DEVIATION) * draws.standard_normal(len(which), dtype=np.float32)
        thin, wide = (np.float32(width) - self.half_widths[which] for width in HALF_WIDTH)
        return np.clip(shift, np.maximum(thin, np.float32(LEAST_SHIFT)), np.maximum(wide, 0))

    def _lookup(self, which: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The fields `which` at points (..., images), in the nearest cell."""
        _, rows, columns = self.fields.shape
        column = np.clip((x - np.float32(LOW[0])) * CELLS[0], 0, columns - 1).astype(np.int32)
        row = np.clip((y - np.float32(LOW[1])) * CELLS[1], 0, rows - 1).astype(np.int32)
        return self.fields.ravel()[(which.astype(np.int32) * rows + row) * columns + column]


def drawer(characters: tuple[str, ...]) -> Draw:
    """The function that draws images of `characters`; their fields are made on its first call."""

    def draw(draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        return _glyphs(characters).draw(draws, labels)

    return draw


_glyphs = functools.cache(Glyphs)


def _field(font: str, character: str) -> tuple[np.ndarray, np.ndarray]:
    """A glyph's field, and points on its outline in shape coordinates."""
    from scipy.ndimage import distance_transform_edt

    polygons = _outline(font, character)
    every = np.concatenate(polygons)
    low, high = every.min(0), every.max(0)
    # Units of the shape: the glyph's height, and that times ASPECT along x, its middle at 0.5.
    unit = (high[1] - low[1]) * np.array([ASPECT, 1.0])
    origin = (low + high) / 2 - unit / 2
    polygons = [(polygon - origin) / unit for polygon in polygons]
    inside = _filled(polygons)
    sampling = (1 / CELLS[1], ASPECT / CELLS[0])
    field = distance_transform_edt(inside, sampling) - distance_transform_edt(~inside, sampling)
    points = np.concatenate(polygons)
    positions = np.linspace(0, len(points) - 1, OUTLINE_POINTS).round().astype(int)
    return field.astype(np.float32), points[positions].astype(np.float32)


def _outline(font: str, character: str) -> list[np.ndarray]:
    """Closed polygons (points, 2), y downwards."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    path = Path(get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    text = TextPath((0, 0), character, size=100, prop=FontProperties(fname=path))
    return [np.asarray(polygon) * [1, -1] for polygon in text.to_polygons()]


def _filled(polygons: list[np.ndarray]) -> np.ndarray:
    """(rows, columns) bool: cells inside, by the even-odd rule."""
    from PIL import Image, ImageDraw

    columns, rows = (round((HIGH[i] - LOW[i]) * CELLS[i]) for i in range(2))
    inside = np.zeros((rows, columns), bool)
    for polygon in polygons:
        mask = Image.new("1", (columns, rows))
        corners = (polygon - LOW) * CELLS - 0.5
        ImageDraw.Draw(mask).polygon([tuple(corner) for corner in corners.tolist()], fill=1)
        inside ^= np.asarray(mask)
    return inside


DRAW_DIGITS, DRAW_LETTERS = drawer(DIGITS), drawer(LETTERS)
SETS = (
    generated_set("fonts", "digits in 16 free fonts", Drawn(DIGITS, DRAW_DIGITS)),
    generated_set("letters", "36 letters in 16 free fonts", Drawn(LETTERS, DRAW_LETTERS)),
    generated_set(
        "inverted-letters",
        "36 letters in 16 free fonts, paper on ink",
        Drawn(LETTERS, lambda draws, labels: LEVELS - DRAW_LETTERS(draws, labels)),
        only_public=True,
    ),
)
