"""Configs: read, merged over the default tier, and validated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpatlas.base.folders import PACKAGED
from dpatlas.base.guard import one_of
from dpatlas.base.schema import check_shape, validated
from dpatlas.base.yaml_files import read_yaml
from dpatlas.errors import InputError
from dpatlas_workflow.config.root import General, OwnSet, config_model
from dpatlas_workflow.registry import all_blocks

DEFAULT = Path("config.yaml")
TIERS = Path("workflow/tiers")
CUSTOM_TIER = "custom"


def project_root() -> Path:
    """The folder of config.yaml: the working folder if it has one, else the checkout's."""
    folder = _checkout()
    if folder is None:
        raise InputError(str(DEFAULT), "no such file", "a checkout of dp-atlas as working folder")
    return folder


def _checkout() -> Path | None:
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / DEFAULT).is_file() and (folder / TIERS).is_dir():
            return folder
    return None


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `change` laid over it, block by block; lists and values are replaced.

    A block that names another data set (`name`) replaces the old one whole: its other keys belong
    to that data set.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            other = "name" in value and value["name"] != old.get("name")
            merged[key] = dict(value) if other else merge(old, value)
        else:
            merged[key] = value
    return merged


def load_config(
    files: Sequence[Path | str] = (),
    changes: Mapping[str, Any] | None = None,
) -> General:
    """The validated config: config.yaml, then each of `files`, then `changes`.

    Whatever comes last has to name its own tier, else the tier is `custom`: a changed setting
    never writes over another tier's results.
    """
    return validate(read_config(files, changes))


def read_config(
    files: Sequence[Path | str] = (),
    changes: Mapping[str, Any] | None = None,
    root: Path | None = None,
) -> dict[str, Any]:
    """What `load_config` validates: the merged files, as they are written."""
    # The package installed from a wheel brings its own config.yaml.
    default = read_yaml((root or _checkout() or PACKAGED) / DEFAULT)
    config = merge(_of_blocks(default.get("tier")), default)
    layers = [read_yaml(path) for path in files]
    if changes:
        layers.append(dict(changes))
    for layer in layers:
        config = merge(merge(config, _of_blocks(layer.get("tier"))), layer)
    if layers and "tier" not in layers[-1]:
        config["tier"] = CUSTOM_TIER
    return config


def _of_blocks(tier: object) -> dict[str, Any]:
    """What blocks that bring settings of their own, `config.yaml` by tier, say of a tier."""
    files = {key: block.folder / DEFAULT for key, block in all_blocks().items()}
    brought = {key: read_yaml(file) for key, file in files.items() if file.is_file()}
    return {
        key: tiers[tier]
        for key, tiers in brought.items()
        if isinstance(tier, str) and tier in tiers
    }


def load_tier(name: str) -> General:
    """The config of a tier that ships with the project."""
    return validate(read_tier(name))


def read_tier(name: str) -> dict[str, Any]:
    """What `load_tier` validates: the merged files, as they are written."""
    root, known = project_root(), tiers()
    if name == known[0]:
        return read_config(root=root)
    one_of(*known).check("tier", name)
    return read_config([root / TIERS / f"{name}.yaml"], root=root)


def tiers() -> list[str]:
    """Names of the tiers that ship with the project, that of config.yaml first."""
    root = project_root()
    others = sorted(file.stem for file in (root / TIERS).glob("*.yaml"))
    return [str(read_yaml(root / DEFAULT).get("tier")), *others]


def validate(config: Mapping[str, Any]) -> General:
    """The config as a model; InputError for the first thing that the model does not allow.

    Where private data sets are named, those of `data.own` may be named too.
    """
    check_shape(config)
    return validated(config_model(), config, {"own": _definitions(config)})


def _definitions(config: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Definitions of the user's own data sets; None for one that is refused where it stands."""
    data = config.get("data")
    own = data.get("own") if isinstance(data, Mapping) else None
    found: dict[str, dict[str, Any] | None] = {}
    for name, given in own.items() if isinstance(own, Mapping) else ():
        try:
            found[name] = OwnSet.model_validate(given).definition
        except ValidationError:
            found[name] = None
    return found
