"""`styles`, `styles-8`: what untrained generators draw; a class is one generator.

A generator starts from a small map, doubles it until it has the image's size, and at every size
scales the channels by the image's latent numbers (its style), convolves, adds noise and bends the
sum: the outline of StyleGAN (Karras et al., 2019), here with weights that are never trained, as
Baradad et al. (2021) learn from. Public by construction: random numbers.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpatlas.base.seeds import generator, seed
from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import COLOUR_SCALING, LEVELS_OF_DIGITS, generated_set
from dpatlas.data.generated.ink import SIDE, SquareImages, blurred, stretched

# As many as there are letters.
CLASSES = tuple(f"style{number:02}" for number in range(36))

CHANNELS, FIRST_SIDE, LATENT = 12, 4, 6
# Standard deviations: of the first map about that of its class, of a channel's scale about 1, of a
# channel's weight of the noise, of its shift.
WANDER, STYLED, NOISE, SHIFT = 1.0, 0.6, 0.15, 0.3
SLOPE = 0.2

# Of a colour image: weights of a channel's own colour beside the grey, grey levels of the mean, of
# its deviation, and how far a channel's mean lies from it.
CHROMA = 0.5
MEAN_LEVEL = (90.0, 165.0)
DEVIATION = (30.0, 65.0)
TINT = 20.0


class Generator:
    """The random network of one class.

    It maps latent numbers (LATENT, images) and noise, a (side, side, images) at each of `sides`, to
    (channels, side, side, images), of no particular scale.
    """

    def __init__(self, channels: int, side: int, number: int):
        draws = generator(seed("data", use="styles", channels=channels, side=side, number=number))

        def normals(*shape: int, deviation: float = 1.0) -> np.ndarray:
            return np.float32(deviation) * draws.standard_normal(shape, dtype=np.float32)

        of_latent = LATENT**-0.5
        first = (CHANNELS, FIRST_SIDE, FIRST_SIDE)
        self.start = normals(*first)
        self.wander = normals(*first, LATENT, deviation=WANDER * of_latent)
        self.layers = [
            {
                "style": normals(CHANNELS, LATENT, deviation=STYLED * of_latent),
                "kernel": normals(CHANNELS, CHANNELS * 9),
                "noise": normals(CHANNELS, 1, 1, 1, deviation=NOISE),
                "shift": normals(CHANNELS, 1, 1, 1, deviation=SHIFT),
            }
            for _ in sides(side)
        ]
        grey = normals(1, CHANNELS)
        self.shown = grey if channels == 1 else grey + normals(channels, CHANNELS, deviation=CHROMA)

    def draw(self, latent: np.ndarray, noise: Sequence[np.ndarray]) -> np.ndarray:
        """One image for each column of `latent`."""
        maps = self.start[..., None] + self.wander @ latent
        for number, layer in enumerate(self.layers):
            if number:
                # Twice the side: every number four times, then a blur.
                maps = blurred(maps.repeat(2, 1).repeat(2, 2))
            maps = maps * (1 + layer["style"] @ latent)[:, None, None]
            # The scale of the kernel goes with that of the maps, below.
            maps = scaled(convolved(layer["kernel"], maps))
            maps += layer["noise"] * noise[number] + layer["shift"]
            maps = scaled(np.maximum(maps, np.float32(SLOPE) * maps))
        return np.tensordot(self.shown, maps, 1)


@dataclass(frozen=True)
class Styles(SquareImages):
    """A source of images of `side` x `side` pixels, in grey or, with three channels, in colour."""

    def draw(self, draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        """Images (images, channels side side) uint8 of the classes `labels`."""
        images = len(labels)
        latent = draws.standard_normal((LATENT, images), dtype=np.float32)
        noise = [
            draws.standard_normal((side, side, images), dtype=np.float32)
            for side in sides(self.side)
        ]
        shown = np.empty((*self.image_shape, images), np.float32)
        for number in np.unique(labels):
            members = np.flatnonzero(labels == number)
            of_class = _generator(self.channels, self.side, int(number))
            shown[..., members] = of_class.draw(
                latent[:, members], [each[..., members] for each in noise]
            )
        pixels = shown if self.channels == 1 else coloured(draws, shown)
        pixels = np.ascontiguousarray(pixels.reshape(-1, images).T)
        return stretched(pixels) if self.channels == 1 else pixels


COLOUR = Styles(channels=3, side=32)
GREY = Styles(channels=1, side=SIDE)


def sides(side: int) -> list[int]:
    """Sides of the maps, from FIRST_SIDE to `side`, a power of two times it."""
    return [FIRST_SIDE << level for level in range((side // FIRST_SIDE).bit_length())]


def convolved(kernel: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """3 x 3 convolution of maps (into, side, side, images) by kernel (out, into 9), edges held."""
    into, side, _, images = maps.shape
    padded = np.pad(maps, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="edge")
    shifts = [padded[:, y : y + side, x : x + side] for y in range(3) for x in range(3)]
    patches = np.stack(shifts, axis=1).reshape(into * 9, -1)
    return (kernel @ patches).reshape(-1, side, side, images)


def scaled(maps: np.ndarray) -> np.ndarray:
    """Maps whose mean square is 1, image by image."""
    return maps / np.sqrt(np.square(maps).mean((0, 1, 2)))


def coloured(draws: np.random.Generator, shown: np.ndarray) -> np.ndarray:
    """Grey levels uint8; a channel's mean and the contrast are the image's and no class's."""
    channels, images = shown.shape[0], shown.shape[-1]
    level = draws.uniform(*MEAN_LEVEL, images) + TINT * draws.standard_normal((channels, images))
    deviation = draws.uniform(*DEVIATION, (images,)).astype(np.float32)
    centred = shown - shown.mean((1, 2), keepdims=True)
    pixels = deviation * scaled(centred) + level.astype(np.float32)[:, None, None]
    return np.rint(np.clip(pixels, 0, 255)).astype(np.uint8)


_generator = functools.cache(Generator)


SETS = (
    generated_set(
        "styles",
        "what 36 untrained generators draw",
        Drawn(CLASSES, COLOUR.draw, image_shape=COLOUR.image_shape),
        "32 x 32 pixels in colour",
        COLOUR_SCALING,
        only_public=True,
    ),
    generated_set(
        "styles-8",
        "what 36 untrained generators draw",
        Drawn(CLASSES, GREY.draw, image_shape=GREY.image_shape),
        LEVELS_OF_DIGITS,
        only_public=True,
    ),
)
