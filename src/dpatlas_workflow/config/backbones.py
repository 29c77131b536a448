"""Public backbones: their settings, and which of them may serve which private records."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from dpatlas.base import networks
from dpatlas.base.fields import Model, Once, Seed, optional, setting
from dpatlas.base.networks import FROM_FILES, IMPORTED
from dpatlas.base.specs import Spec
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas_workflow import pretraining
from dpatlas_workflow.config.own import check_backbone
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.types import Classes, DataSet, ImageShape, NetworkOptions, Path

KEY = "pretrain"
# Data sets to pre-train on, and publishers of weights.
SOURCES = (*(name for name, entry in DATA_SETS.items() if entry.pretraining), *IMPORTED)
if TYPE_CHECKING:
    Network = str
    Source = str
else:
    Network, Source = Literal[networks.BACKBONES], Literal[SOURCES]
# Keys that the block sets for all backbones, and that a backbone may set for itself.
SIZES = ("n_train", "n_test")
TRAINING = ("epochs", "batch", "lr", "weight_decay", "label_smoothing")
# Keys of an imported network, and further ones if its weights are read from a given file.
OF_IMPORTED = ("source", "model", "options", "image_shape")
OF_FILE = ("file", "sha256")
# Optional keys of a backbone that is trained here, in its spec where they are given.
OF_TRAINED = ("declared_public", "augmentation")

TrainImages = Annotated[int, setting("Public images to train on.", ge=1, le=10_000_000)]
TestImages = Annotated[
    int,
    setting("Public images, apart from those, to measure the accuracy on.", ge=1, le=1_000_000),
]


class Backbone(Model):
    """A backbone; one that is trained may override the numbers that the block sets for all."""

    source: Source = setting(
        "Images to train on; imagenet and moco stand for published weights, which are imported."
    )
    file: Path = setting(
        "Of moco, the checkpoint on this machine; a relative name also lies in data.root or its "
        "folder weights. Takes no part in ids.",
        default=None,
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-fA-F]{8,64}$")] | None = setting(
        "First digits of that file's sha256, 8 or more, in quotes; null to take any file and "
        "record its own.",
        default=None,
    )
    classes: Classes = optional()
    declared_public: str = setting(
        "Why a set that is not generated counts as public.", min_length=10, default=None
    )
    image_shape: ImageShape = setting(
        "Channels, height and width of the records that an imported backbone will see.",
        default=None,
    )
    model: Network = setting("Network, by the name under which it is built.")
    options: NetworkOptions
    n_train: TrainImages = optional()
    n_test: TestImages = optional()
    epochs: pretraining.Epochs = optional()
    batch: pretraining.ImageBatch = optional()
    lr: pretraining.LargestRate = optional()
    weight_decay: pretraining.WeightDecay = optional()
    label_smoothing: pretraining.LabelSmoothing = optional()
    augmentation: pretraining.Moved = setting(
        "Shifts and flips in training; none where not given.", default=None
    )


class Backbones(Model):
    """Public backbones, trained once on generated or declared public images, or imported."""

    enabled: bool = setting(
        "Whether backbones are made; papers that take their features need them."
    )
    seed: Seed = setting(
        "Base of the seeds of all backbones, which are the same for every base seed of the runs."
    )
    n_train: TrainImages
    n_test: TestImages
    epochs: pretraining.Epochs
    batch: pretraining.ImageBatch
    lr: pretraining.LargestRate
    weight_decay: pretraining.WeightDecay
    label_smoothing: pretraining.LabelSmoothing
    train: Once[str] = setting("Backbones to train or import, by name.", min_length=1)
    backbones: dict[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,30}$")], Backbone] = setting(
        "Backbones by name, used or not; each that is trained may set the numbers above for itself."
    )

    @model_validator(mode="after")
    def _are_defined(self) -> "Backbones":
        check_named("train", self.train, f"{KEY}.backbones", list(self.backbones))
        for name in self.train:
            backbone = self.backbones[name]
            _check(f"backbones.{name}", backbone)
            backbone.options.check(f"backbones.{name}.", backbone.model)
            n, batch = backbone.n_train or self.n_train, backbone.batch or self.batch
            if backbone.source not in IMPORTED and batch > n:
                raise InputError(f"backbones.{name}.batch", batch, f"at most n_train = {n}")
        return self


def check_named(place: str, named: list[str], source: str, known: list[str]) -> None:
    """InputError, naming the entry of `place`, for a name that is not among those of `source`."""
    for i, name in enumerate(named):
        if name not in known:
            allowed = f"one of {source}: {', '.join(known)}"
            raise InputError(f"{place}.{i}", repr(name), allowed)


def backbone_spec(config: General, name: str) -> Spec:
    """The spec of the training or import of one of the backbones in `pretrain.train`."""
    block: Backbones = config.pretrain
    backbone = block.backbones[name]
    if backbone.source in IMPORTED:
        # The path of a file takes no part in the spec: ids are the same on every machine.
        fields = backbone.plain(*OF_IMPORTED)
        if backbone.sha256:
            fields["sha256"] = backbone.sha256.lower()
        return Spec.of({"key": KEY, "kind": "imported", **fields}, name)
    explicit = backbone.plain()
    settings = {**block.plain(*SIZES, *TRAINING), **explicit}
    data = {"name": backbone.source, **{size: settings[size] for size in SIZES}, "n_add": 0}
    fields = {
        "key": KEY,
        "kind": "backbone",
        "seed": block.seed,
        "data": data | {name: explicit[name] for name in ("classes",) if name in explicit},
        **{name: settings[name] for name in ("model", "options", *TRAINING)},
        **{name: explicit[name] for name in OF_TRAINED if name in explicit},
    }
    return Spec.of(fields, name)


def check_private(
    config: General, place: str, name: str, data: DataSet, features: str | None = None
) -> None:
    """InputError, naming the config key `place`, for a backbone that cannot serve private records.

    It has to be trained, and on none of the private records: where both may be the same images, on
    other classes.
    """
    block: Backbones = config.pretrain
    if not block.enabled:
        raise InputError("pretrain.enabled", "false", f"true: {place} takes backbone {name}")
    if name not in block.train:
        known = ", ".join(block.train)
        raise InputError(f"{place}.backbone", repr(name), f"one of pretrain.train: {known}")
    backbone = block.backbones[name]
    if data.definition:
        check_backbone(place, name, backbone.source, backbone.image_shape, data)
    if backbone.source in FROM_FILES and features == "softmax":
        found = f"softmax of {name}, whose weights have no layer for classes"
        raise InputError(f"{place}.features", found, "penultimate")
    if not {backbone.source, data.name} <= DATA_SETS.keys():
        return
    if not DATA_SETS[backbone.source].shares_images(DATA_SETS[data.name]):
        return
    if shared := [each for each in data.classes if each in (backbone.classes or data.classes)]:
        found = f"{name}, trained on {', '.join(map(str, shared))} of {backbone.source}"
        allowed = "one that was trained on none of the private classes"
        raise InputError(f"{place}.backbone", found, allowed)


def weights_file(config: General, spec: Spec) -> str:
    """The file that the config names for an imported backbone; empty if its address is known."""
    block: Backbones = config.pretrain
    return block.backbones[spec.slug].file or ""


def _check(place: str, backbone: Backbone) -> None:
    explicit: dict[str, Any] = backbone.plain()
    source, model = backbone.source, backbone.model

    def refuse(key: str, allowed: str) -> InputError:
        return InputError(f"{place}.{key}", explicit.get(key, "nothing"), allowed)

    if source not in IMPORTED:
        for publisher, models in IMPORTED.items():
            if model in models:
                raise refuse("source", f"{publisher} for {model}")
        for key in ("image_shape", *OF_FILE):
            if key in explicit:
                what = "reads no weights" if key in OF_FILE else "takes its images' shape"
                raise refuse(key, f"nothing: a backbone that is trained here {what}")
        return
    settings = OF_IMPORTED + (OF_FILE if source in FROM_FILES else ())
    for key in explicit:
        if key not in settings:
            raise refuse(key, f"{', '.join(settings)}: weights of {source} are not trained here")
    if model not in IMPORTED[source]:
        raise refuse("model", ", ".join(IMPORTED[source]))
    if "image_shape" not in explicit:
        raise refuse("image_shape", "channels, height and width of the records that it will see")
    if source in FROM_FILES and "file" not in explicit:
        raise refuse("file", f"path of a checkpoint of {source}: no address of it is known here")
