"""Shapes drawn with a pen: skeletons of curves and polylines, and images of them.

A skeleton is a list of strokes, each a text such as `~ 50,0 8,45 50,100`: `~` a Catmull-Rom curve,
`-` a polyline, through control points in hundredths of the unit square.
"""

from collections.abc import Sequence

import numpy as np

from dpatlas.data.generated.ink import PIXEL, block_counts
from dpatlas.data.generated.warps import Waves, place

# Points along a skeleton, all strokes together.
POINTS = 96
JITTER_DEVIATION = 0.045
# Pixels. The lower end was raised once, after one look at handwritten digits.
PEN_RADIUS = (1.5, 3.0)
UNSLANT = 0.5
FINE = 64


class Skeletons:
    """Skeletons as linear maps from control points to points along the strokes.

    maps (skeletons, POINTS, controls), controls (skeletons, controls, 2): short ones are padded.
    """

    def __init__(self, skeletons: Sequence[Sequence[str]]):
        parsed = [[_parse(stroke) for stroke in strokes] for strokes in skeletons]
        most = max(sum(len(points) for _, points in strokes) for strokes in parsed)
        self.maps = np.zeros((len(parsed), POINTS, most), np.float32)
        self.controls = np.full((len(parsed), most, 2), 0.5, np.float32)
        for index, strokes in enumerate(parsed):
            points = np.concatenate([points for _, points in strokes])
            self.controls[index, : len(points)] = points
            self.maps[index, :, : len(points)] = _point_map(strokes)

    def draw(self, draws: np.random.Generator, which: np.ndarray) -> np.ndarray:
        """Images (images, 64) uint8 from 0 to 16 of the skeletons `which` (images,)."""
        controls = self.controls[which]
        normals = draws.standard_normal(controls.shape, dtype=np.float32)
        points = self.maps[which] @ (controls + np.float32(JITTER_DEVIATION) * normals)
        x, y = np.ascontiguousarray(points.transpose(2, 1, 0))
        dx, dy = Waves.draw(draws, len(which)).displacement(x, y)
        x, y = x + dx, y + dy
        radius = draws.uniform(*PEN_RADIUS, len(which)).astype(np.float32)
        u, v = place(draws, x, y, radius, UNSLANT).to_pixels(x, y)
        return block_counts(draws, radius - distances(u, v))


def distances(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(32, 32, images): from each pixel's centre to the nearest point; u, v (points, images)."""
    # With the images last every operation runs over whole rows, and a block stays in the cache.
    columns = np.square(PIXEL[:, None] - u[:, None])
    rows = np.square(PIXEL[:, None] - v[:, None])
    nearest = np.full((len(PIXEL), len(PIXEL), u.shape[1]), np.inf, np.float32)
    squared = np.empty_like(nearest)
    for column, row in zip(columns, rows, strict=True):
        np.add(row[:, None], column[None], out=squared)
        np.minimum(nearest, squared, out=nearest)
    return np.sqrt(nearest, out=nearest)


def _parse(stroke: str) -> tuple[bool, np.ndarray]:
    kind, *points = stroke.split()
    return kind == "~", np.array([point.split(",") for point in points], np.float64) / 100


def _point_map(strokes: Sequence[tuple[bool, np.ndarray]]) -> np.ndarray:
    """(POINTS, controls): points evenly spaced along all strokes of the undisturbed skeleton."""
    total = sum(len(points) for _, points in strokes)
    rows, ends, done = [], [0.0], 0
    for smooth, points in strokes:
        inner = _catmull_rom(len(points)) if smooth else _polyline(len(points))
        block = np.zeros((len(inner), total))
        block[:, done : done + len(points)] = inner
        steps = np.linalg.norm(np.diff(inner @ points, axis=0), axis=1)
        # A jump from one stroke to the next has no length of its own.
        ends += list(ends[-1] + np.concatenate([[0.0], np.cumsum(steps)]))
        rows.append(block)
        done += len(points)
    wanted = np.linspace(0, ends[-1], POINTS)
    nearest = np.abs(np.array(ends[1:])[:, None] - wanted).argmin(0)
    return np.concatenate(rows)[nearest].astype(np.float32)


def _polyline(controls: int) -> np.ndarray:
    """(fine points, controls): linear interpolation."""
    t = np.linspace(0, controls - 1, FINE * (controls - 1) + 1)
    return np.maximum(0, 1 - np.abs(t[:, None] - np.arange(controls)))


def _catmull_rom(controls: int) -> np.ndarray:
    """(fine points, controls): the uniform Catmull-Rom spline with repeated end points."""
    t = np.linspace(0, controls - 1, FINE * (controls - 1) + 1)
    segment = np.minimum(t.astype(int), controls - 2)
    s = (t - segment)[:, None]
    weights = np.concatenate(
        [
            -s + 2 * s**2 - s**3,
            2 - 5 * s**2 + 3 * s**3,
            s + 4 * s**2 - 3 * s**3,
            -(s**2) + s**3,
        ],
        axis=1,
    )
    matrix = np.zeros((len(t), controls))
    for offset in range(4):
        column = np.clip(segment + offset - 1, 0, controls - 1)
        np.add.at(matrix, (np.arange(len(t)), column), weights[:, offset] / 2)
    return matrix
