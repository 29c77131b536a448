"""The whole config: general keys, and a block for every paper and check that has a folder."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, create_model, model_validator

from dpatlas.base.fields import Model, Once, Seed, setting
from dpatlas.base.own_data import definition
from dpatlas.data.sources import MIRROR
from dpatlas.errors import InputError
from dpatlas_workflow.config.sizes import INPUTS
from dpatlas_workflow.config.types import OWN_NAME, Classes, ImageShape, Path
from dpatlas_workflow.registry import all_blocks

OwnName = Annotated[str, Field(pattern=OWN_NAME)]


class OwnSet(Model):
    """A user's own data set."""

    path: Path = setting(
        "Folder of images or .npz file, relative to the working folder. Takes no part in ids."
    )
    classes: Classes
    image_shape: ImageShape = setting(
        "Channels, height and width; 1 channel makes colour images grey."
    )
    scaling: Literal["unit", "centred"] = setting(
        "Map of bytes u to numbers by public constants: u / 255 or (2u - 255) / 255."
    )
    resize: bool = setting(
        "Whether central squares are resized to image_shape (bicubic); false by default.",
        default=None,
    )
    _definition: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def definition(self) -> dict[str, Any]:
        """All settings but the path, in the form of specs."""
        return self._definition

    @model_validator(mode="after")
    def _is_possible(self) -> "OwnSet":
        self._definition = definition("", self.plain_without("path"))
        return self


class DataSources(Model):
    """Where data sets come from."""

    root: Annotated[str, Field(min_length=1)] | None = setting(
        "Folder with archives or accepted local copies, read only."
    )
    download: bool = setting("Whether data that are not under data.root may be downloaded.")
    mirrors: Once[Annotated[str, Field(pattern=MIRROR)]] = setting(
        "Base addresses, tried before the official address of a file."
    )
    offline: bool = setting("Whether nothing may be fetched; what is missing is listed.")
    own: dict[OwnName, OwnSet] = setting("Your own data sets, to be named as private ones.")

    @model_validator(mode="after")
    def _have_unused_names(self) -> "DataSources":
        for name in self.own:
            if name in INPUTS:
                found = "the name of a data set that the project knows"
                raise InputError(f"own.{name}", found, "another name")
        return self


class General(Model):
    """Keys that concern all blocks."""

    tier: str = setting(
        "Name of the run and of its folder under results.",
        pattern="^[a-z0-9][a-z0-9_-]{0,39}$",
    )
    verdicts: bool = setting(
        "Whether verdicts are meant; false where the settings only exercise the rules."
    )
    seed: Seed = setting(
        "Base of the named seeds; another value repeats the study for the same backbones and "
        "settings."
    )
    noise_source: Literal["keyed", "os"] = setting(
        "keyed derives noise from (spec, run, step, use); os cannot be repeated."
    )
    device: Literal["cpu", "cuda", "auto"] = setting(
        "Where training jobs run; auto takes a GPU if there is one."
    )
    precision: Literal["float32", "tf32"] = setting(
        "Precision of products in passes on a GPU; norms, sums, KL terms and certificates are "
        "float32 or float64 in any case."
    )
    partial: bool = setting(
        "Whether only what is there is shown, and nothing trained; false by default.",
        default=None,
    )
    data: DataSources
    _more_runs: Mapping[str, int] = PrivateAttr(default_factory=dict)

    @property
    def more_runs(self) -> Mapping[str, int]:
        """Runs by condition, where a tier has been given more of them than its config asks for."""
        return self._more_runs

    def with_more_runs(self, runs: Mapping[str, int]) -> Self:
        """The same config with these `more_runs`, which take no part in `plain`."""
        config = self.model_copy()
        config._more_runs = dict(runs)
        return config

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any:
            """The blocks that papers and checks add."""

    @model_validator(mode="after")
    def _precision_of_the_device(self) -> "General":
        if self.device == "cpu" and self.precision != "float32":
            found = f"{self.precision} with device cpu"
            raise InputError("precision", found, "float32, or device cuda or auto")
        return self


@functools.cache
def config_model() -> type[General]:
    """The model of a config, with the `SETTINGS` of every block under its key."""
    blocks: dict[str, Any] = {
        key: block.load("settings").SETTINGS for key, block in all_blocks().items()
    }
    return create_model("Config", __base__=General, __doc__="A run of dp-atlas.", **blocks)
