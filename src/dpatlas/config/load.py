"""Configs: read, merged over the default tier, and validated."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from dpatlas.config.model import M, check_shape, validated
from dpatlas.config.root import General, OwnSet, config_model
from dpatlas.core.files import keys_once
from dpatlas.core.folders import PACKAGED
from dpatlas.core.guard import one_of
from dpatlas.errors import InputError
from dpatlas.registry import all_blocks

# Numbers that YAML 1.1 does not read as they look: 010 is 8, 1:30 is 90.
MISREAD = re.compile(r"[-+]?0[0-7_]+|.*:.*")
DEFAULT = Path("config.yaml")
TIERS = Path("workflow/tiers")
CUSTOM_TIER = "custom"


# libyaml's reader where there is one: the other takes ten times as long.
class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A reader of YAML for which 1e-5 is a number and 010, which YAML takes for 8, is an error."""

    def number(self, node: yaml.ScalarNode) -> int | float:
        """An int or a float."""
        value = getattr(self, f"construct_yaml_{node.tag.rpartition(':')[2]}")(node)
        if MISREAD.fullmatch(node.value):
            found = f"{node.value} in line {node.start_mark.line + 1}, which YAML reads as {value}"
            raise InputError(self.path, found, "a number without a leading zero or a colon")
        return value


for _kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", Loader.number)
# YAML 1.1 wants a point before an exponent, and a sign in it.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    [*"-+.0123456789"],
)


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


def read_yaml(path: Path | str) -> dict[str, Any]:
    """One YAML file that holds a block of keys; a `.json` file is read as JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        if Path(path).suffix == ".json":
            value = json.loads(text, object_pairs_hook=keys_once(str(path)))
        else:
            value = _parsed(str(path), text)
    except InputError:
        raise
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a readable file") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML's own constructors raise what they like: `!!bool x` a KeyError.
        raise InputError(str(path), f"not YAML: {error}", "a YAML file") from None
    if not isinstance(value, dict):
        raise InputError(str(path), type(value).__name__, "a YAML file with keys")
    return value


def _parsed(path: str, text: str) -> Any:
    """The value of a YAML text; InputError for a key that a block has twice."""
    loader = Loader(text)
    loader.path = path
    try:
        root = loader.get_single_node()
        for block in _blocks(root):
            _refuse_twice(path, [key for key, _ in block.value])
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _blocks(root: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Every block of keys, once, though an alias may hold itself."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            yield node
        else:
            waiting += node.value


def _refuse_twice(path: str, keys: Sequence[yaml.Node]) -> None:
    lines: dict[str, int] = {}
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if key.value in lines:
                found = f"{key.value} in lines {lines[key.value]} and {line} of one block"
                raise InputError(path, found, "each key once")
            lines[key.value] = line


def read_checked(path: Path | str, model: type[M]) -> M:
    """One YAML file as a model; InputError for the first thing that it does not allow."""
    content = read_yaml(path)
    check_shape(content)
    return validated(model, content, place=f"{path}: ")


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
