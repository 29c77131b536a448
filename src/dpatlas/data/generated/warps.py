"""How a drawn shape comes to lie on the 32 x 32 bitmap: warped, turned, slanted, fitted.

A shape has its own coordinates, x to the right and y downwards, about [0, 1] each. All draws are
for a block of images at once and use its generator in a fixed order.
"""

from dataclasses import dataclass

import numpy as np

BITMAP = 32
# Width of a unit of x in units of y, before its own spread.
ASPECT = 0.68
ASPECT_DEVIATION = 0.22
ROTATION_DEVIATION = 0.10
SLANT_DEVIATION = 0.175
# Sine warps: how many, size of the displacement, cycles per unit at most.
WAVES = 2
WAVE_DEVIATION = 0.035
WAVE_FREQUENCY = 1.5
# Pixels: range of the greatest width, deviation of the centre.
WIDTH = (18.0, 26.0)
CENTRE_DEVIATION = 0.7


@dataclass(frozen=True)
class Waves:
    """A smooth displacement field of each image: p -> p + sum_w amplitude_w sin(phase_w(p)).

    amplitude, frequency (images, WAVES, 2); phase (images, WAVES).
    """

    amplitude: np.ndarray
    frequency: np.ndarray
    phase: np.ndarray

    @classmethod
    def draw(cls, draws: np.random.Generator, images: int) -> "Waves":
        """Fields of `images` images."""
        normals = draws.standard_normal((images, WAVES, 2), dtype=np.float32)
        uniforms = draws.random((images, WAVES, 3), dtype=np.float32)
        frequency = np.float32(2 * np.pi * WAVE_FREQUENCY) * (2 * uniforms[..., :2] - 1)
        phase = np.float32(2 * np.pi) * uniforms[..., 2]
        return cls(np.float32(WAVE_DEVIATION) * normals, frequency, phase)

    def displacement(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Displacement in x and y at points (..., images)."""
        dx, dy = np.zeros_like(x), np.zeros_like(y)
        for wave in range(WAVES):
            frequency = self.frequency[:, wave]
            sine = np.sin(frequency[:, 0] * x + frequency[:, 1] * y + self.phase[:, wave])
            dx += self.amplitude[:, wave, 0] * sine
            dy += self.amplitude[:, wave, 1] * sine
        return dx, dy


@dataclass(frozen=True)
class Placement:
    """The affine map of each image from (warped) shape coordinates to pixels.

    matrix (2, 2, images), offset (2, images): pixel = matrix shape + offset.
    """

    matrix: np.ndarray
    offset: np.ndarray

    def to_pixels(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of points (..., images)."""
        m, o = self.matrix, self.offset
        return m[0, 0] * x + m[0, 1] * y + o[0], m[1, 0] * x + m[1, 1] * y + o[1]

    def to_shape(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape coordinates of pixels (..., images): the inverse of `to_pixels`."""
        m, o = self.matrix, self.offset
        inverse = np.stack([m[1, 1], -m[0, 1], -m[1, 0], m[0, 0]]) / self.area
        x = inverse[0] * (u - o[0]) + inverse[1] * (v - o[1])
        return x, inverse[2] * (u - o[0]) + inverse[3] * (v - o[1])

    @property
    def area(self) -> np.ndarray:
        """Square pixels per unit area, (images,)."""
        m = self.matrix
        return m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]


def place(
    draws: np.random.Generator, x: np.ndarray, y: np.ndarray, margin: np.ndarray, unslant: float
) -> Placement:
    """Turn, slant and stretch each image's points, and fit them into the bitmap.

    x, y (points, images): the shape's extent. margin (images,): what the pen adds on every side, in
    pixels. unslant: the share of the points' own slant (the regression of x on y) that is taken
    out, as a preprocessing of scanned digits does. The height fills the bitmap; the width follows
    in proportion up to a drawn limit.
    """
    images = x.shape[1]
    normals = draws.standard_normal((5, images), dtype=np.float32)
    limit = draws.uniform(*WIDTH, (images,)).astype(np.float32)
    matrix = _shape_matrix(*normals[:3])
    turned = Placement(matrix, np.zeros((2, images), np.float32)).to_pixels(x, y)
    x, y = turned
    if unslant:
        centred = y - y.mean(0)
        slope = np.float32(unslant) * (x * centred).sum(0) / np.square(centred).sum(0)
        matrix[0] -= slope * matrix[1]
        x = x - slope * y
    height, width = np.ptp(y, axis=0), np.ptp(x, axis=0)
    scale_y = (BITMAP - 2 * margin) / height
    scale_x = np.minimum(scale_y, (limit - 2 * margin) / np.maximum(width, np.float32(1e-3)))
    matrix *= np.stack([scale_x, scale_y])[:, None]
    middle = np.stack([scale_x * (x.min(0) + width / 2), scale_y * (y.min(0) + height / 2)])
    centre = BITMAP / 2 + np.float32(CENTRE_DEVIATION) * normals[3:]
    return Placement(matrix, centre - middle)


def _shape_matrix(log_aspect: np.ndarray, angle: np.ndarray, slant: np.ndarray) -> np.ndarray:
    """(2, 2, images): stretch, then slant, then turn; standard normals of each."""
    aspect = np.float32(ASPECT) * np.exp(np.float32(ASPECT_DEVIATION) * log_aspect)
    angle = np.float32(ROTATION_DEVIATION) * angle
    slant = np.float32(SLANT_DEVIATION) * slant
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack(
        [
            np.stack([cos * aspect, cos * slant - sin]),
            np.stack([sin * aspect, sin * slant + cos]),
        ]
    )
