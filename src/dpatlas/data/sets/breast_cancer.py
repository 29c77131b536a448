"""Reader of the breast cancer records that scikit-learn ships, 30 columns of positive numbers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpatlas.data.definitions import DataSet, Scaling
from dpatlas.data.official import by_class
from dpatlas.data.prepared import content_sha256
from dpatlas.data.sources import Images, Source

BREAST_CANCER = DataSet(
    name="breast_cancer",
    what="569 breast masses, 30 columns of numbers computed from images of cell nuclei, each as a "
    "share of a public limit in steps of 1/255; shipped with scikit-learn",
    classes=("malignant", "benign"),
    # Not an image: the means of ten measures, then their standard errors, then their worst values.
    image_shape=(1, 5, 6),
    counts={"train": (212, 357)},
    scaling=Scaling(multiply=2, subtract=255, divide=255),
    licence="UCI Breast Cancer Wisconsin (Diagnostic) (Wolberg et al., 1993), CC BY 4.0",
)
SETS = (BREAST_CANCER,)


LEVELS = 255
# Round numbers above the maxima that the set's public description prints, column by column: ten
# measures of a nucleus, each as mean, standard error and worst of an image.
MEASURES = {
    "radius": (30, 3, 40),
    "texture": (40, 5, 50),
    "perimeter": (200, 25, 260),
    "area": (2600, 550, 4500),
    "smoothness": (0.2, 0.04, 0.25),
    "compactness": (0.4, 0.15, 1.1),
    "concavity": (0.5, 0.4, 1.3),
    "concave points": (0.25, 0.06, 0.3),
    "symmetry": (0.4, 0.08, 0.7),
    "fractal dimension": (0.1, 0.03, 0.25),
}
LIMITS = np.array(list(MEASURES.values())).T.ravel()


def locate(data_set: DataSet, folders: Sequence[Path]) -> Source:
    """The installed package; `folders` are not searched."""
    return Source("sklearn load_breast_cancer")


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The records of `classes` as grey levels; the checksum covers all 569 as published."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    targets = bunch.target.astype(np.uint8)
    checksum = content_sha256({"columns": bunch.data, "targets": targets})
    codes = [data_set.classes.index(name) for name in classes]
    split = by_class(levels(bunch.data), targets, codes)
    return Images({"train": split}, f"sha256:{checksum}")


def levels(columns: np.ndarray) -> np.ndarray:
    """Columns (n, 30) as shares of their `LIMITS`, in whole steps from 0 to `LEVELS`, uint8."""
    return np.rint(LEVELS * np.clip(columns / LIMITS, 0, 1)).astype(np.uint8)
