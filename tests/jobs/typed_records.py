"""Records of any kind, from a spec's fields and metrics that a test makes up."""

from dpatlas.core.records import SCHEMA_VERSION
from dpatlas.core.specs import Spec
from dpatlas.records import Record
from dpatlas.registry import block_of


def record(fields, metrics, slug="small", ledger=None, data=None):
    """A record of the fields' block and kind; `metrics` of its class."""
    spec = Spec.of(fields, slug)
    model = block_of(spec.key).load(f"records.{fields['kind']}").Spec
    return Record(
        id=spec.id,
        key=spec.key,
        kind=fields["kind"],
        spec=model.model_validate(spec.fields),
        metrics=metrics,
        spec_digest=spec.digest,
        code_digest="0",
        versions={},
        device="cpu",
        data=data,
        seeds={},
        ledger={} if ledger is None else ledger,
    )


def content(record):
    """What record.json holds."""
    parts = {
        name: getattr(record, name).model_dump(mode="json", exclude_unset=True)
        for name in ("spec", "metrics")
    }
    whole = {**vars(record), **parts, "schema_version": SCHEMA_VERSION}
    del whole["kind"]
    return whole


def change(part, **values):
    """Set fields of a part of a record, which code cannot."""
    vars(part).update(values)
