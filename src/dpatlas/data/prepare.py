"""From a named data set to a prepared one: `python -m dpatlas.data.prepare --options '<JSON>' ...`.

Scaling uses public constants and each record by itself, so preparing costs no privacy.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.guard import integer, real
from dpatlas.base.seeds import permutation, seed
from dpatlas.data import generated, own
from dpatlas.data.bounded import readable
from dpatlas.data.definitions import DataSet, scale
from dpatlas.data.download import fetch
from dpatlas.data.prepared import HELD_OUT, save
from dpatlas.data.registry import find, reader
from dpatlas.data.sources import CACHE as CACHE
from dpatlas.data.sources import Images, Source, folders_to_search
from dpatlas.errors import ArgumentParser, InputError, run_command

NUMBERS = {
    "n_train": integer(ge=1),
    "n_add": integer(ge=0),
    "n_test": integer(ge=0),
    "n_validation": integer(ge=0),
    "norm": real(gt=0),
    "selection": integer(ge=0),
}


@dataclass(frozen=True)
class Options:
    """The options of a prepared set; a null in a config stands for the default.

    classes: two or more; the label is the position in this list. Of sets that are
        `whole_by_default` null stands for all.
    n_train, n_add: private and add-one records; None takes all that the other parts leave. A
        generated set is endless: there n_train must be given, and n_add is 0 by default.
    n_test, n_validation: held-out records, in no other part.
    norm: every record is scaled to this Euclidean norm; None leaves them as they are.
    selection: key of the permutation that chooses the records, or of all draws of a generated set;
        larger n extend smaller ones.
    """

    classes: tuple[str, ...]
    n_train: int | None = None
    n_add: int | None = None
    n_test: int = 0
    n_validation: int = 0
    norm: float | None = None
    selection: int = 0

    @classmethod
    def of(cls, raw: Mapping[str, Any], data_set: DataSet) -> "Options":
        """Check `raw` options, as they come from a config; InputError names the first bad key."""
        unknown = sorted(set(raw) - {"classes", *NUMBERS})
        if unknown:
            raise InputError("data options", unknown[0], f"classes, {', '.join(NUMBERS)}")
        classes = raw.get("classes")
        if classes is None and data_set.whole_by_default:
            classes = data_set.classes
        values: dict[str, Any] = {"classes": _classes(classes, data_set)}
        for key, domain in NUMBERS.items():
            value = raw.get(key)
            if value is not None:
                domain.check(key, value if np.isscalar(value) else str(value))
                values[key] = float(value) if domain.kind == "real" else value
        if data_set.kind == "generated":
            if "n_train" not in values:
                raise InputError("n_train", "null", f"a number: {data_set.name} has no end")
            values.setdefault("n_add", 0)
        return cls(**values)


def prepare(
    name: str,
    options: Mapping[str, Any],
    out_folder: Path | str,
    *,
    data_root: Path | str | None = None,
    allow_download: bool = False,
    download_folder: Path | str = CACHE,
    mirrors: Sequence[str] = (),
    own_path: str | None = None,
) -> dict[str, Any]:
    """Prepare data set `name` into `out_folder` and return its manifest.

    options: see `Options`; and `own`, the definition of a user's own set, which lies at `own_path`.
    Local copies of published sets are looked for in `data_root`, then in `download_folder`.
    Private and validation records come from the training split, add-one and test records from the
    test split; a set without a test split gives all four. The parts are disjoint. Equal options and
    images give equal bytes. The parts of a generated set are independent draws.

    Raises InputError for bad options, missing or damaged sources; RunError if a download fails.
    """
    raw = dict(options)
    definition = raw.pop("own", None)
    data_set = find(name) if definition is None else own.define(name, definition)
    checked = Options.of(raw, data_set)
    if data_set.kind == "generated":
        source, images = Source("generated"), _generate(data_set, checked)
        parts = images.splits
    elif isinstance(data_set, own.OwnDataSet):
        source = _locate_own(data_set, own_path)
        with readable(source.path):
            images = own.read(source, data_set, checked.classes)
        parts = _select(images, data_set, checked)
    else:
        source = _locate(data_set, data_root, allow_download, Path(download_folder), mirrors)
        with readable(source.path):
            images = reader(name).read(source, data_set, checked.classes)
        _check_counts(images, source, data_set, checked.classes)
        parts = _select(images, data_set, checked)
    arrays = {}
    for part, (pixels, labels) in parts.items():
        arrays[f"x_{part}"] = scale(pixels, data_set.scaling, checked.norm)
        arrays[f"y_{part}"] = labels
    description = {
        "name": name,
        "what": data_set.what,
        "licence": data_set.licence,
        "options": asdict(checked),
        "source": {
            "kind": source.kind,
            "file": source.path.name if source.path else None,
            "checksum": images.checksum,
        },
        "classes": list(checked.classes),
        "image_shape": list(data_set.image_shape),
        "counts": {
            part: dict(zip(checked.classes, _per_class(labels, checked.classes), strict=True))
            for part, (_, labels) in parts.items()
        },
        "preprocessing": {**asdict(data_set.scaling), "norm": checked.norm},
    }
    return save(out_folder, arrays, description)


def main(arguments: Sequence[str]) -> None:
    """The command: one prepared set."""
    parser = ArgumentParser(
        prog="dpatlas.data.prepare", description=(prepare.__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--options", required=True, help="JSON: `name` and what Options holds")
    parser.add_argument("--output", required=True, type=Path, help="folder for the prepared set")
    parser.add_argument("--data-root", type=Path, help="folder with local copies, only read")
    parser.add_argument("--allow-download", action="store_true", help="fetch what is missing")
    parser.add_argument("--download-folder", type=Path, default=CACHE, help="where downloads go")
    parser.add_argument("--mirror", action="append", default=[], help="base address; repeatable")
    parser.add_argument("--own-path", help="folder or .npz file of a set that `own` defines")
    parsed = parser.parse_args(arguments)
    try:
        options = json.loads(parsed.options)
    except ValueError:
        options = None
    if not isinstance(options, dict) or "name" not in options:
        raise InputError("--options", repr(parsed.options[:80]), "a JSON object with `name`")
    manifest = prepare(
        str(options.pop("name")),
        options,
        parsed.output,
        data_root=parsed.data_root,
        allow_download=parsed.allow_download,
        download_folder=parsed.download_folder,
        mirrors=parsed.mirror,
        own_path=parsed.own_path,
    )
    counts = ", ".join(f"{sum(part.values())} {name}" for name, part in manifest["counts"].items())
    print(f"{manifest['name']}: {counts}, from {manifest['source']['kind']}, {parsed.output}")


def _classes(selection: Any, data_set: DataSet) -> tuple[str, ...]:
    allowed = "two or more different ones of " + ", ".join(data_set.classes)
    if not isinstance(selection, list | tuple):
        raise InputError("classes", repr(selection), allowed)
    if not selection:
        raise InputError("classes", "an empty class selection", allowed)
    names = tuple(str(name) for name in selection)
    if len(set(names)) < max(2, len(names)) or not set(names) <= set(data_set.classes):
        raise InputError("classes", list(selection), allowed)
    return names


def _locate(
    data_set: DataSet,
    data_root: Path | str | None,
    allow_download: bool,
    download_folder: Path,
    mirrors: Sequence[str],
) -> Source:
    files = reader(data_set.name)
    with readable():
        folders = folders_to_search(data_root, download_folder)
        source = files.locate(data_set, folders)
    if source is None and allow_download and data_set.files:
        print(f"{data_set.name}: downloading to {download_folder}", file=sys.stderr)
        for file in data_set.files:
            fetch(file, download_folder, mirrors)
        source = files.locate(data_set, folders)
    if source is None:
        # Of a copy of several files, some may be there.
        lacking = files.lacking(data_set, folders) if hasattr(files, "lacking") else ""
        addresses = ", ".join(file.address for file in data_set.files)
        official = f"official, {data_set.version}: {addresses}"
        of = data_set.half[0] if data_set.half else data_set.name
        raise InputError(
            "data.root",
            f"no copy of {of} in {' or '.join(map(str, folders))}",
            f"a folder that holds, itself or in {of}/, {', or '.join(data_set.accepts)}"
            + (f" ({official}); or permission to download" if data_set.files else "")
            + (f" ({data_set.by_hand})" if data_set.by_hand else "")
            + (f"; {lacking}" if lacking else ""),
        )
    return source


def _locate_own(data_set: own.OwnDataSet, path: str | None) -> Source:
    source = own.locate(path) if path else None
    if source is None:
        found = f"{path!r}, no folder and no .npz file" if path else "nothing"
        where = f"data.own.{data_set.name}.path"
        raise InputError(where, found, "a readable folder or .npz file")
    return source


def _generate(data_set: DataSet, options: Options) -> Images:
    """Every part of a generated set that has any records, and the two that a set always has."""
    counts = {part: getattr(options, f"n_{part}") or 0 for part in ("train", "add", *HELD_OUT)}
    counts = {part: count for part, count in counts.items() if count or part not in HELD_OUT}
    return generated.read(data_set, options.classes, counts, options.selection)


def _per_class(labels: np.ndarray, classes: Sequence[str]) -> list[int]:
    return np.bincount(labels, minlength=len(classes)).tolist()


def _check_counts(
    images: Images, source: Source, data_set: DataSet, classes: Sequence[str]
) -> None:
    for split, expected in data_set.counts.items():
        per_class = _per_class(images.splits[split][1], classes)
        for name, found in zip(classes, per_class, strict=True):
            count = expected[data_set.classes.index(name)]
            if found != count:
                what = f"{found} {split} images of class {name}"
                raise InputError(source.where, what, f"{count} of them")


def _select(
    images: Images, data_set: DataSet, options: Options
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The records of every part that has any: part -> (pixels, labels)."""
    training = _Deck(images, "train", data_set, options)
    testing = _Deck(images, "test", data_set, options) if "test" in images.splits else training
    # Held-out records first: "all that there are" of the other parts must leave them alone.
    held_out = {"test": testing.last("n_test"), "validation": training.last("n_validation")}
    return {
        "train": training.first("n_train"),
        "add": testing.first("n_add"),
        **{part: held_out[part] for part in HELD_OUT if len(held_out[part][1])},
    }


class _Deck:
    """One split in a keyed order, from both ends of which records are dealt to parts.

    A larger part contains the smaller one. It changes another part only where both are dealt from
    the same end of the same split: add-one records follow private ones, validation records follow
    test records.
    """

    def __init__(self, images: Images, split: str, data_set: DataSet, options: Options):
        self.pixels, self.labels = images.splits[split]
        axes = {"data_set": data_set.name, "selection": options.selection}
        self.rest = permutation(seed("data", use=split, **axes), len(self.labels))
        self.split, self.options = split, options
        self.dealt: list[str] = []

    def first(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Pixels and labels of the first `options.<key>` records that are left."""
        n = self._count(key)
        taken, self.rest = self.rest[:n], self.rest[n:]
        return self.pixels[taken], self.labels[taken]

    def last(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Pixels and labels of the last ones, from the end inwards."""
        left = len(self.rest) - self._count(key)
        taken, self.rest = self.rest[left:][::-1], self.rest[:left]
        return self.pixels[taken], self.labels[taken]

    def _count(self, key: str) -> int:
        """How many records `key` asks for; InputError if there are not that many."""
        wanted, available = getattr(self.options, key), len(self.rest)
        takers = " and ".join(self.dealt)
        if wanted is None and not available:
            zero = "" if key == "n_train" else "0, or "
            raise InputError(key, "null, with no records left", f"{zero}a smaller {takers}")
        count = available if wanted is None else wanted
        if count > available:
            what = f"the {self.split} records of {', '.join(self.options.classes)}"
            left = f" that {takers} leave" if takers else ""
            raise InputError(key, count, f"at most {available}, {what}{left}")
        if count:
            self.dealt.append(f"{key} = {count}")
        return count


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
