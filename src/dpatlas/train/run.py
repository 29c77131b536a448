"""Private training as settings say, from Python: data sets by name are prepared first."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.digest import code_digest
from dpatlas.base.facts import OwnSet, network_record
from dpatlas.base.files import check_writable, only_process, read_json, write_json
from dpatlas.base.progress import say
from dpatlas.base.records import SpecFields, read_record
from dpatlas.base.schema import check_shape, validated
from dpatlas.base.seeds import Noise
from dpatlas.base.specs import Spec
from dpatlas.data import own
from dpatlas.data.bounded import readable
from dpatlas.data.definitions import scale
from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import MANIFEST, Prepared, load
from dpatlas.data.registry import find, module_of
from dpatlas.errors import InputError
from dpatlas.jobs.job import Kind, execute, numerics, resolve_device
from dpatlas.train.inputs import Inputs
from dpatlas.train.settings import TrainSettings
from dpatlas.train.training import PACKAGES, Shown, TrainingBySettings


class OwnSpec(SpecFields):
    """A training by a settings file: the settings, and digests of files and records by name."""

    settings: dict[str, Any]
    files: dict[str, str]
    records: dict[str, str | None]

    @property
    def base_seed(self) -> int | None:
        """The seed of initial weights."""
        return self.settings["seed"]


# Means over the runs of what `dpatlas.train.inputs.class_scores` has beside the accuracy.
SCORES = ("majority", "balanced_accuracy", "auc")
ARMS_RAN = "arms without noise ran on {}: no epsilon covers what was chosen by them"
# Numbers of records in the parts of a named data set: private, to add, test and validation.
SPLITS: Mapping[str, Mapping[str, int]] = {
    "digits": {"n_train": 1200, "n_add": 0, "n_test": 297, "n_validation": 300},
    "cifar10": {"n_train": 45000, "n_add": 0, "n_test": 10000, "n_validation": 5000},
}
_shared = network_record(OwnSpec)
RECORD = replace(_shared, version=2, facts=" ".join([_shared.facts, *SCORES]))


def train(
    settings: TrainSettings | Mapping[str, Any],
    *,
    output: Path | str,
    base: Path | str = ".",
    name: str = "training",
    device: str = "cpu",
    resume: bool = False,
    progress: bool = True,
    private_loss: bool = False,
    data_root: Path | str | None = None,
    allow_download: bool = False,
    arms: bool = False,
) -> dict[str, Any]:
    """Train privately, save the model to OUTPUT/ID/model, and return OUTPUT/ID/record.json.

    settings: the keys of `TrainSettings`. base: the folder of the files in them. name: begins ID,
    which ends with a digest of settings, files and records. A killed training goes on when it is
    called again; `resume` refuses to start from the beginning. One that is finished is not trained
    again: its record is returned. private_loss: whether the progress shows the loss of
    training records, which carries no noise. data_root: folder with local copies of data sets that
    settings name; allow_download: whether missing ones are fetched. arms: train without privacy and
    with its parts one by one instead, and return OUTPUT/arms-ID.json, whose `arms` are the rows of
    `TrainingBySettings.arms`: no epsilon covers those without noise, and ledgers of later
    trainings on the same records in this folder say so.

    Raises InputError for settings, files and records that do not fit, before anything is trained.
    """
    if not isinstance(settings, TrainSettings):
        given = {key: value for key, value in settings.items() if value is not None}
        check_shape(given)
        settings = validated(TrainSettings, given)
    output, base, device = Path(output), Path(base), resolve_device(device)
    check_writable(output)
    if private_loss and settings.select:
        raise InputError("--show-private-loss", "select", "one of the two: it shows no progress")
    prepared = None
    if settings.images:
        prepared = _images_in(base / settings.data, settings.images)
    elif settings.is_prepared:
        sources = {"data_root": data_root, "allow_download": allow_download}
        prepared = _prepared_set(settings.data, base, output, **sources)
    with numerics(device):
        training = TrainingBySettings(Inputs(settings, base, prepared), SCORES)
    spec = Spec.of({"key": "train", "kind": "settings_file", **training.identity}, name)
    folder, mine = output / spec.id, training.inputs.digest
    if arms:
        with numerics(device):
            rows = training.arms(Noise(spec.digest, settings.noise_source), device)
        compared = {"arms": rows, "records": mine, "data": settings.data}
        write_json(output / f"arms-{spec.id}.json", compared)
        return compared
    same = {mine, spec.fields["records"]["data"]} - {None}
    ran = [read_json(path) for path in output.glob("arms-*.json")]
    found = {
        _earlier_use(same, settings.data, each.get("records"), each.get("data")) for each in ran
    }
    for each in sorted(filter(None, found)):
        training.reservations.append(said := ARMS_RAN.format(each))
        say(f"{spec.id}: {said}")
    with only_process(output, spec.id):
        earlier = list(_earlier_records(output))
        for record in earlier:
            if record["spec_digest"] == spec.digest:
                # With new noise it would be a second release of the same records.
                say(f"{record['id']}: trained before; its record follows, nothing is trained again")
                return record
        if (torn := folder / "record.json").exists():
            # A damaged record is refused: training again would be a second release.
            read_record(torn)
        for record in earlier:
            theirs = [record["spec"].get(key, {}).get("data") for key in ("records", "settings")]
            if which := _earlier_use(same, settings.data, *theirs):
                say(
                    f"{record['id']} in this folder was trained on {which} with other settings: "
                    "their epsilons add up (dpatlas epsilon adds ledgers)"
                )
        shown = Shown(folder, progress, private_loss)
        return execute(
            spec,
            Kind(partial(training.outcome, shown=shown), PACKAGES, RECORD),
            module=__name__,
            data=None,
            record=folder / "record.json",
            checkpoints=output / "checkpoints",
            device=device,
            resume=resume,
        )


def _earlier_use(
    same: Collection[str], name: str, digest: str | None, other: str | None
) -> str | None:
    """The records that an earlier run used too, by digest or perhaps by name; None if others."""
    if digest in same:
        return "these records"
    return f"{name} (perhaps these records)" if name == other else None


def _earlier_records(output: Path) -> Iterator[dict[str, Any]]:
    """The records of the trainings in this folder; files that are none are reported."""
    for path in sorted(output.glob("*/record.json")):
        try:
            yield read_record(path)
        except InputError as error:
            say(f"not counted among the trainings before: {error}")


def _prepared_set(data: str, base: Path, output: Path, **sources: Any) -> Prepared:
    """The data set that the settings name; one of `SPLITS` is prepared in `output` if need be.

    sources: `data_root` and `allow_download` of `dpatlas.data.prepare.prepare`.
    """
    from filelock import FileLock

    if data not in SPLITS:
        return load((base / data).parent)
    split = {"classes": list(find(data).classes), **SPLITS[data]}
    code = code_digest("dpatlas.data.prepare", module_of(data))
    folder = output / "data" / f"{data}-{sha256(canonical_json([split, code]))[:8]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Another training may be preparing the same set.
    with FileLock(f"{folder}.lock"):
        if not (folder / MANIFEST).is_file():
            prepare(data, split, folder, **sources)
    return load(folder)


def _images_in(folder: Path, images: OwnSet) -> Prepared:
    """The images of a folder, of train and test; InputError as `dpatlas.data.own.read` raises."""
    data_set, source = own.define("images", images.whole()), own.locate(str(folder))
    if source is None:
        raise InputError("data", f"{folder}: no folder", "one with a sub-folder for each class")
    with readable(source.path):
        found = own.read(source, data_set, data_set.classes)
    none = np.zeros((0, np.prod(data_set.image_shape)), np.uint8), np.zeros(0, np.int64)
    parts: dict[str, np.ndarray] = {}
    for part in ("train", "add", "test", "validation"):
        pixels, parts[f"y_{part}"] = found.splits.get(part, none)
        parts[f"x_{part}"] = scale(pixels, data_set.scaling, None)
    return Prepared(**parts, manifest=images.whole())
