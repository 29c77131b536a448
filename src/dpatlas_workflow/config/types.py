"""Keys that several blocks of the config share, each with its type, range and sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, model_validator

from dpatlas.base import networks
from dpatlas.base.fields import ClassName, Model, Once, optional, setting
from dpatlas.base.schema import shown
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas_workflow.config.sizes import check_records

# Names of a user's own data sets.
OWN_NAME = "^[a-z0-9][a-z0-9-]{0,30}$"
PRIVATE_SETS = tuple(name for name, entry in DATA_SETS.items() if not entry.only_public)

Classes = Annotated[
    Once[ClassName], setting("Classes to tell apart, by their names in the data set.", min_length=2)
]
Digit = Annotated[int, Field(ge=0, le=9)]
ImageShape = Annotated[
    list[Annotated[int, Field(ge=1, le=4096)]],
    setting("Channels, height and width.", min_length=3, max_length=3),
]
Path = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]

PublicBackbone = Annotated[str, setting("Name under pretrain.backbones.")]


class Repeated(Model):
    """A block of the config with runs that are computed in blocks."""

    runs: int = setting("Runs of every condition.", ge=1, le=1000)
    runs_per_job: int = setting(
        "Runs that one job computes, as a block with a record of its own; more runs are more "
        "blocks, and earlier records stay as they are.",
        ge=1,
        le=1000,
    )

    @model_validator(mode="after")
    def _in_whole_blocks(self) -> "Repeated":
        if self.runs > self.runs_per_job and self.runs % self.runs_per_job:
            allowed = f"at most runs_per_job = {self.runs_per_job}, or a multiple of it"
            raise InputError("runs", self.runs, allowed)
        return self


if TYPE_CHECKING:
    SmallNetwork = str
else:
    SmallNetwork = Annotated[
        Literal[networks.SMALL], setting("Network, by the name under which it is built.")
    ]
OfLayers = Annotated[
    list[Annotated[int, Field(ge=1, le=100_000)]],
    setting("One number per layer.", min_length=1, max_length=1000),
]
OfNetwork = Annotated[int, setting("An option of the network's builder.", ge=1, le=100_000)]


class NetworkOptions(Model):
    """Options of the network's builder, such as widths of the MLP or pool of the small CNNs."""

    widths: OfLayers = optional()
    channels: OfLayers = optional()
    strides: OfLayers = optional()
    affine: bool = setting("Whether norms have weights of their own.", default=None)
    pool: OfNetwork = optional()
    groups: OfNetwork = optional()
    narrower: OfNetwork = optional()
    patch: OfNetwork = optional()
    dim: OfNetwork = optional()
    depth: OfNetwork = optional()
    heads: OfNetwork = optional()
    mlp_ratio: OfNetwork = optional()
    side: OfNetwork = optional()
    symmetric: bool = setting("Whether grey levels go from -1 to 1.", default=None)
    inputs: OfNetwork = optional()

    def check(self, where: str, model: str) -> None:
        """InputError, naming the key below `where`, for an option that `model` does not take."""
        known = networks.NETWORKS[model].options if model in networks.NETWORKS else ()
        for name, value in self.plain().items():
            if name not in known:
                allowed = f"{', '.join(known) or 'none'} with model {model}"
                raise InputError(f"{where}options.{name}", value, allowed)


@dataclass(frozen=True)
class PrivateName:
    """Names of private data sets: those listed, and those of the user's own data sets."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return AfterValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The schema for editors, which do not know the names under `data.own`."""
        return {"anyOf": [{"enum": list(self.names)}, {**handler(schema), "pattern": OWN_NAME}]}

    def _check(self, value: str, info: ValidationInfo) -> str:
        allowed = (*self.names, *(info.context or {}).get("own", ()))
        if value not in allowed:
            raise InputError("", shown(value), f"one of {', '.join(allowed)}")
        return value


class DataSet(Model):
    """Records of a named data set, which may be one of the user's own data sets."""

    name: str = setting("Name of the data set.")
    classes: Classes
    n_train: int = setting("Training records.")
    _definition: dict[str, Any] | None = PrivateAttr(default=None)

    @property
    def definition(self) -> dict[str, Any] | None:
        """Classes, image_shape, scaling and resize of a user's own data set; else None."""
        return self._definition

    def fields(self) -> dict[str, Any]:
        """Fields of a spec: the keys that were given, and the definition `own` of an own set."""
        return self.plain() | ({"own": self._definition} if self._definition else {})

    @model_validator(mode="after")
    def _is_there(self, info: ValidationInfo) -> "DataSet":
        check_records("", self.plain())
        definition = (info.context or {}).get("own", {}).get(self.name)
        if definition:
            self._definition = definition
            _check_classes(self.classes, definition["classes"])
        return self


class DealtSet(DataSet):
    """A data set whose records every run may be dealt anew."""

    redeal: bool = setting(
        "Whether every run is dealt its records anew, or draws its own of a generated set; by "
        "default where the set has no test records of its own, for your own sets not.",
        default=None,
    )

    def fields(self) -> dict[str, Any]:
        """Fields of a spec whose runs all have the prepared parts."""
        return {name: value for name, value in super().fields().items() if name != "redeal"}

    def dealt(self) -> dict[str, Any]:
        """Fields of a spec that says whether its runs are dealt their records anew."""
        known = DATA_SETS.get(self.name)
        by_default = known is not None and "test" not in {**known.counts, **known.totals}
        return {**self.fields(), "redeal": by_default if self.redeal is None else self.redeal}


def class_names(name: str) -> Sequence[int | str]:
    """Classes of a data set as a config names them: digits are integers."""
    names = DATA_SETS[name].classes
    return [int(digit) for digit in names] if all(map(str.isdecimal, names)) else names


def _check_classes(classes: list[int | str], known: list[str]) -> None:
    for name in classes:
        if str(name) not in known:
            raise InputError("classes", repr(name), "two or more of " + ", ".join(known))
    if len({str(name) for name in classes}) < len(classes):
        raise InputError("classes", classes, "each class once")


class PrivateSplit(DealtSet):
    """A labelled data set, split into private, test and validation records."""

    name: Annotated[str, PrivateName(PRIVATE_SETS)] = setting(
        "Name of the data set, or of one of your own."
    )
    n_train: int = setting("Private training records.", ge=1, le=10_000_000)
    n_test: int = setting("Held-out records that the accuracy is reported on.", ge=1, le=1_000_000)
    n_validation: int = setting(
        "Held-out records that settings are chosen on; no finite epsilon holds for them.",
        ge=1,
        le=1_000_000,
    )
    selection: int = setting(
        "Number of a random split; another one splits the records anew.",
        ge=0,
        le=1_000_000,
        default=None,
    )

    @model_validator(mode="after")
    def _has_these_classes(self) -> "PrivateSplit":
        known = class_names(self.name) if self.name in DATA_SETS else self.classes
        for i, name in enumerate(self.classes):
            if name not in known:
                allowed = "one of " + ", ".join(map(str, known))
                raise InputError(f"classes.{i}", shown(name), allowed)
        return self


class DigitsSplit(DataSet):
    """Digits, split into private, test and validation records."""

    name: Literal["digits"] = setting("Name of the data set.")
    # Settings are never written to, so that a narrower list may stand for a list.
    classes: Once[Digit] = setting(  # type: ignore[assignment]
        "Digits to tell apart.", min_length=2, max_length=10
    )
    n_train: int = setting("Private training records.", ge=1, le=1797)
    n_test: int = setting("Held-out records that the accuracy is reported on.", ge=1, le=1797)
    n_validation: int = setting(
        "Held-out records for choosing settings, with no finite epsilon.",
        ge=0,
        le=1797,
    )
