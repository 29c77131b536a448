"""Records as they are read: settings, facts, rows, and where they come from.

A kind of job has a module of its name in the folder `records` of its block, whose constant `RECORD`
says what its specs and records hold. The job writes them; figures and claims read settings by
attribute, and rows as columns (`dpatlas_workflow.rows`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from dpatlas.base import records
from dpatlas.base.records import (
    RecordShape,
    Row,
    RunsFields,
    SpecFields,
    check_alike,
    checked_fields,
)
from dpatlas.base.specs import FIRST_RUN, condition_id
from dpatlas.errors import InputError
from dpatlas_workflow.registry import block_of

S = TypeVar("S", bound=SpecFields)
MEASURED = ("facts", "tables")
# Where `noting` collects, within it.
_noted: ContextVar[set[str] | None] = ContextVar("noted", default=None)


@dataclass(frozen=True)
class Record(Generic[S]):
    """A record of one kind, or all blocks of runs of one condition (`joined`) as one.

    spec: of the class of its kind. facts: single values by name. tables: rows by the name of their
    table. These are of all blocks together. shape: of the records of its kind. data: manifest of
    the data set it was made from; None if it names none. seeds, ledger, versions: as the job wrote
    them. condition: the `condition_id`. blocks: ids of the blocks; the other fields are then those
    of the first one.
    """

    id: str
    key: str
    kind: str
    spec: S
    spec_digest: str
    code_digest: str
    versions: Mapping[str, str]
    device: str
    data: Mapping[str, Any] | None
    seeds: Mapping[str, Any]
    ledger: Any
    condition: str
    facts: Mapping[str, Any]
    tables: Mapping[str, list[Row]]
    shape: RecordShape
    blocks: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the records that this one was read from."""
        return self.blocks or (self.id,)

    def cut(self, runs: int) -> "Record[S]":
        """The first `runs` (1 or more) runs alone; itself if it has no more, or does not repeat."""
        if not isinstance(self.spec, RunsFields) or runs >= self.spec.runs:
            return self
        spec = self.spec.model_copy(update={"runs": runs})
        tables = {
            name: [row for row in rows if row.get("run", -1) < runs]
            for name, rows in self.tables.items()
        }
        return replace(self, spec=spec, tables=tables)

    def __getattribute__(self, name: str) -> Any:
        if name in MEASURED and (noted := _noted.get()) is not None:
            noted.add(self.ids[0])
        return super().__getattribute__(name)


@contextmanager
def noting() -> Iterator[set[str]]:
    """The set gets the id of every record of which facts or rows are read: of its first block."""
    noted: set[str] = set()
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def joined(records: Iterable[Record[Any]]) -> list[Record[Any]]:
    """Each condition's blocks of runs as one record, in order of their first appearance.

    A record of a kind without blocks stays as it is. Raises InputError for blocks that do not
    follow one another from run 0 on, or that contradict each other.
    """
    conditions: dict[str, list[Record[Any]]] = {}
    for record in records:
        conditions.setdefault(record.condition, []).append(record)
    return [_whole(blocks) for blocks in conditions.values()]


def _whole(blocks: Sequence[Record[Any]]) -> Record[Any]:
    if not isinstance(blocks[0].spec, RunsFields):
        return blocks[0]
    first, *others = blocks = sorted(blocks, key=lambda block: block.spec.first_run)
    runs = 0
    for block in blocks:
        if block.spec.first_run != runs:
            found = f"runs from {block.spec.first_run} on after {runs} runs"
            raise InputError(block.id, found, "the records of all runs from 0 on, each once")
        runs += block.spec.runs
    if not others:
        return first
    tables = dict(first.tables)
    try:
        for other in others:
            check_alike(first.facts, other.facts, "facts")
        for name, rows in first.tables.items():
            if "run" in first.shape.columns(name):
                tables[name] = [row for block in blocks for row in block.tables[name]]
            else:
                for other in others:
                    check_alike(rows, other.tables[name], name)
    except InputError as error:
        where = f"{first.condition}: metrics.{error.where}"
        raise InputError(where, error.found, error.allowed) from None
    return replace(
        first,
        id=first.condition,
        spec=first.spec.model_copy(update={"runs": runs}),
        tables=tables,
        blocks=tuple(block.id for block in blocks),
    )


def read_record(path: Path | str) -> Record[Any]:
    """Read a record; InputError if it is missing, torn, or of another shape than its kind's."""
    return parse_record(records.read_record(path), str(path))


def parse_record(content: Mapping[str, Any], where: str) -> Record[Any]:
    """The record that `content` (JSON) holds; `where` names it in an InputError."""
    spec = parse_spec(content["spec"], f"{where}: spec")
    shape = shape_of(spec.key, spec.kind, where)
    # Records of before metrics had versions are of the first.
    version = content.get("metrics_version", 1)
    metrics = content["metrics"]
    if version != shape.version:
        allowed = f"{shape.version}: run its job again"
        raise InputError(f"{where}: metrics_version", version, allowed)
    shape.check(metrics, f"{where}: metrics")
    names = ("id", "spec_digest", "code_digest", "versions", "device", "data", "seeds", "ledger")
    others = {name: content[name] for name in names}
    return Record(
        key=spec.key,
        kind=spec.kind,
        spec=spec,
        facts={name: metrics[name] for name in shape.facts.split()},
        tables={name: metrics[name] for name in shape.tables},
        shape=shape,
        condition=condition_of(content),
        **others,
    )


def condition_of(content: Mapping[str, Any]) -> str:
    """The `condition_id` of a record (JSON); the id of one without blocks."""
    if FIRST_RUN not in content["spec"]:
        return content["id"]
    slug = content["id"].removesuffix(f"-{content['spec_digest'][:8]}")
    return condition_id(slug, content["spec"])


def parse_spec(fields: Mapping[str, Any], where: str) -> Any:
    """The fields (JSON) of a spec as the class of its kind; `where` names it in an InputError."""
    try:
        key, kind = fields["key"], fields["kind"]
    except (KeyError, TypeError):
        raise InputError(where, "a spec without key and kind", "a record of this project") from None
    return checked_fields(shape_of(key, kind, where).spec, fields, f"{where}.")


def shape_of(key: str, kind: str, where: str = "") -> RecordShape:
    """What specs and records of a kind hold."""
    block = block_of(key)
    if kind not in block.kinds:
        raise InputError(f"{where}: kind", repr(kind), f"one of {', '.join(block.kinds)}")
    return block.load(f"records.{kind}").RECORD


# What metrics of any kind may say of where their inputs came from. A backbone's record counts its
# features under the same name.
INPUTS = ("features", "backbone")


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
    if "diverged" in metrics:
        steps = metrics["diverged"]
        return steps if isinstance(steps, list) else [steps]
    tables = (rows for rows in metrics.values() if isinstance(rows, list))
    rows = (row for rows in tables for row in rows if isinstance(row, dict))
    return [row["diverged"] for row in rows if "diverged" in row]
