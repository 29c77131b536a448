"""Records as the classes of their kinds read them: settings, metrics and where they come from.

A kind of job has a module of its name in the folder `records` of its block, with its `Spec` (the
fields of its specs) and its `Metrics`. The job writes them; figures, claims, cost and page read
them by attribute.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from dpatlas.core import records
from dpatlas.core.facts import BackboneUsed, FeaturesUsed
from dpatlas.core.records import Metrics, SpecFields
from dpatlas.errors import InputError
from dpatlas.registry import block_of

S = TypeVar("S", bound=SpecFields)
M = TypeVar("M", bound=Metrics)


@dataclass(frozen=True)
class Record(Generic[S, M]):
    """A record of one kind. spec, metrics: of the classes of its kind.

    data: manifest of the data set it was made from; None if it names none. seeds, ledger, versions:
    as the job wrote them.
    """

    id: str
    key: str
    kind: str
    spec: S
    metrics: M
    spec_digest: str
    code_digest: str
    versions: Mapping[str, str]
    device: str
    data: Mapping[str, Any] | None
    seeds: Mapping[str, Any]
    ledger: Any


def read_record(path: Path | str) -> Record[Any, Any]:
    """Read a record; InputError if it is missing, torn, or of another shape than its kind's."""
    content = records.read_record(path)
    return parse_record(content, str(path))


def parse_record(content: Mapping[str, Any], where: str) -> Record[Any, Any]:
    """The record that `content` (JSON) holds; `where` names it in an InputError."""
    spec = parse_spec(content["spec"], f"{where}: spec")
    types = _types(spec.key, spec.kind, where)
    # Records of before metrics had versions are of the first.
    version = content.get("metrics_version", Metrics.VERSION)
    if version != types.Metrics.VERSION:
        allowed = f"{types.Metrics.VERSION}: run its job again"
        raise InputError(f"{where}: metrics_version", version, allowed)
    metrics = _checked(types.Metrics, content["metrics"], f"{where}: metrics")
    names = ("id", "spec_digest", "code_digest", "versions", "device", "data", "seeds", "ledger")
    others = {name: content[name] for name in names}
    return Record(key=spec.key, kind=spec.kind, spec=spec, metrics=metrics, **others)


def parse_spec(fields: Mapping[str, Any], where: str) -> Any:
    """The fields (JSON) of a spec as the class of its kind; `where` names it in an InputError."""
    try:
        key, kind = fields["key"], fields["kind"]
    except (KeyError, TypeError):
        raise InputError(where, "a spec without key and kind", "a record of this project") from None
    return _checked(_types(key, kind, where).Spec, fields, where)


def _types(key: str, kind: str, where: str) -> ModuleType:
    """The module with the classes of a kind."""
    block = block_of(key)
    if kind not in block.kinds:
        raise InputError(f"{where}: kind", repr(kind), f"one of {', '.join(block.kinds)}")
    return block.load(f"records.{kind}")


# What metrics of any kind may say of where their inputs came from. A backbone's record counts its
# features under the same name.
INPUTS = {"features": FeaturesUsed, "backbone": BackboneUsed}


def inputs_used(content: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """JSON of the features and of the backbone that a record (JSON) says it was made from."""
    metrics = content.get("metrics") or {}
    inputs = {name: metrics.get(name) for name in INPUTS}
    return {name: value if isinstance(value, dict) else None for name, value in inputs.items()}


def measured(content: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a record (JSON) without `inputs_used`."""
    inputs = inputs_used(content)
    return {k: v for k, v in content["metrics"].items() if inputs.get(k) is None}


def diverged_at(content: Mapping[str, Any]) -> list[int | None]:
    """By run of a record (JSON), or by row of runs, the step at which it diverged, or None.

    Empty for kinds whose runs cannot diverge.
    """
    metrics = content["metrics"]
    if "diverged" not in metrics:
        return [row["diverged"] for row in metrics.get("rows", []) if "diverged" in row]
    steps = metrics["diverged"]
    return steps if isinstance(steps, list) else [steps]


def _checked(model: type[Any], value: Any, where: str) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join([where, *map(str, first["loc"])])
        shown = repr(first["input"])[:60]
        raise InputError(path, shown, first["msg"]) from None
