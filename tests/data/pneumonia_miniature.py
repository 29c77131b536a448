"""The chest X-rays in their two published formats, a few images, and a registry for them."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import copies
import numpy as np
from cifar10_miniature import jpeg_bytes as jpeg_bytes

from dpatlas.data.prepared import Prepared
from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.pneumonia import (
    PNEUMONIA,
    PNEUMONIA_224_CLEANED,
    PNEUMONIA_CAUSES,
    PNEUMONIA_CAUSES_CLEANED,
)

PER_CLASS = {"train": (4, 7), "test": (2, 4)}
PER_CAUSE = {"train": (4, 4, 3), "test": (2, 3, 1)}
# Of the list of labels: all but one training image.
TOTALS = {"train": 10, "test": 6}
VALIDATION = 3
TWO = {"classes": ["normal", "pneumonia"]}
THREE = {"classes": ["normal", "bacteria", "virus"]}
FORMS = ("write_archive", "write_npz")
LEVELS = {"normal": 40, "bacteria": 120, "virus": 200}
# Width and height of the images, one after the other: no two sides need be alike.
SIZES = ((61, 40), (40, 61), (28, 28), (90, 33))


def zip_bytes(members, compression=zipfile.ZIP_DEFLATED) -> bytes:
    """An archive; a member is (name or ZipInfo, bytes)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def npy_bytes(array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=True)
    return stream.getvalue()


class Miniature:
    """X-rays as flat images: `LEVELS` of the cause plus the image's number in its split."""

    def __init__(self, patch):
        for entry, counts in ((PNEUMONIA, PER_CLASS), (PNEUMONIA_CAUSES, PER_CAUSE)):
            patch.setitem(DATA_SETS, entry.name, replace(entry, counts=counts))
        for entry in (PNEUMONIA_CAUSES_CLEANED, PNEUMONIA_224_CLEANED):
            patch.setitem(DATA_SETS, entry.name, replace(entry, totals=TOTALS))
        self.levels = {"train": [], "test": []}
        for split, counts in PER_CAUSE.items():
            causes = np.repeat(list(LEVELS), counts)
            self.levels[split] = [LEVELS[cause] + i for i, cause in enumerate(causes)]

    def images(self) -> dict[str, bytes]:
        """The members of the archive that are images: name -> JPEG."""
        found = {}
        for split, levels in self.levels.items():
            for number, level in enumerate(levels):
                cause = [each for each in LEVELS if level >= LEVELS[each]][-1]
                name = {
                    "normal": f"NORMAL/NORMAL2-IM-{number:04d}-0001",
                    "bacteria": f"PNEUMONIA/person{number}_bacteria_{number + 1}",
                    "virus": f"PNEUMONIA/VIRUS-{number}-0001",
                }[cause]
                width, height = SIZES[number % len(SIZES)]
                # One image in three is in colour, as some published ones are.
                shape = (height, width, 3) if number % 3 == 2 else (height, width)
                pixels = np.full(shape, level, np.uint8)
                found[f"chest_xray/{split}/{name}.jpeg"] = jpeg_bytes(pixels)
        return found

    def write_archive(self, folder: Path, images=None, extras=()) -> Path:
        """`ChestXRay2017.zip`, with the folders and leftovers that such archives have."""
        junk = [
            ("chest_xray/", b""),
            ("chest_xray/train/NORMAL/", b""),
            ("chest_xray/.DS_Store", b"no image"),
            ("chest_xray/train/NORMAL/.DS_Store", b"no image"),
            ("__MACOSX/chest_xray/train/NORMAL/._NORMAL2-IM-0000-0001.jpeg", b"no image"),
            ("chest_xray/train/PNEUMONIA/._person1_bacteria_1.jpeg", b"no image"),
        ]
        members = [*junk, *extras, *(self.images() if images is None else images).items()]
        path = folder / "ChestXRay2017.zip"
        path.write_bytes(zip_bytes(members))
        return path

    def write_unpacked(self, folder: Path, images=None) -> Path:
        """The folder `chest_xray`, with a leftover that is no image."""
        for name, content in (self.images() if images is None else images).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        (folder / "chest_xray/train/NORMAL/.DS_Store").write_bytes(b"no image")
        return folder / "chest_xray"

    def labels(self) -> list[tuple[str, str]]:
        """The list of labels, in no order: all images but a virus of the training split."""
        rows = []
        for name in self.images():
            cause = next((cause for cause in LEVELS if cause in name.lower()), None)
            rows.append((name, cause))
        left_out = next(row for row in rows if row[1] == "virus" and "/train/" in row[0])
        return [row for row in reversed(rows) if row != left_out]

    def write_labels(self, folder: Path, rows=None, header="file,label") -> Path:
        """`chest_xray_labels.csv`, to lie beside a copy."""
        path = folder / "chest_xray_labels.csv"
        rows = self.labels() if rows is None else rows
        path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
        return path

    def arrays(self) -> dict[str, np.ndarray]:
        """The six arrays of PneumoniaMNIST."""
        found = {}
        random = np.random.default_rng(11)
        for split, levels in self.levels.items():
            order = random.permutation(levels).astype(np.uint8)
            parts = {"test": order}
            if split == "train":
                parts = {"train": order[:-VALIDATION], "val": order[-VALIDATION:]}
            for part, values in parts.items():
                found[f"{part}_images"] = np.tile(values[:, None, None], (1, 28, 28))
                found[f"{part}_labels"] = (values >= LEVELS["bacteria"]).astype(np.uint8)[:, None]
        return found

    def write_npz(self, folder: Path, **replaced) -> Path:
        """`pneumoniamnist.npz`; arrays or ready bytes may be replaced, None leaves one out."""
        members = [
            (f"{name}.npy", value if isinstance(value, bytes) else npy_bytes(value))
            for name, value in (self.arrays() | replaced).items()
            if value is not None
        ]
        path = folder / "pneumoniamnist.npz"
        path.write_bytes(zip_bytes(members))
        return path


def prepared(root, out, options=TWO, name="pneumonia") -> Prepared:
    return copies.prepared(name, root, out, options)


def refusal(root, out, options=TWO, name="pneumonia") -> str:
    return copies.refusal(name, root, out, options)
