"""Specs: frozen descriptions of one job, from which its id, seeds and noise keys follow."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.errors import InputError

# The fields that say which runs of its condition a spec's job computes.
FIRST_RUN, RUNS = "first_run", "runs"


def condition_id(slug: str, fields: Mapping[str, Any]) -> str:
    """The name that all blocks of runs of one condition share; a spec without blocks has its id.

    It is the slug without the block, `-runFIRST`, and 8 hex digits of the digest of the fields
    without `first_run` and `runs`.
    """
    block = (FIRST_RUN, RUNS) if FIRST_RUN in fields else ()
    rest = {name: value for name, value in fields.items() if name not in block}
    name = slug.removesuffix(f"-run{fields.get(FIRST_RUN)}")
    return f"{name}-{sha256(canonical_json(rest))[:8]}"


@dataclass(frozen=True)
class Spec:
    """Everything that a job's numbers depend on, as canonical JSON.

    `text` holds an object with at least `key` (the paper) and `kind` (which of the paper's
    experiments). `slug` is for people: it names the files and takes no part in the digest.
    """

    text: str
    slug: str

    @classmethod
    def of(cls, fields: Mapping[str, Any], slug: str) -> "Spec":
        """Freeze `fields`; later changes to the mapping do not reach the spec."""
        return cls(canonical_json(fields), slug)

    @classmethod
    def parse(cls, text: str) -> "Spec":
        """Read back what `argument` wrote."""
        try:
            fields = json.loads(text)
            slug = fields.pop("slug")
            fields["key"], fields["kind"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                "--spec", repr(text[:80]), "the JSON of a spec, with slug, key and kind"
            ) from None
        return cls.of(fields, slug)

    @cached_property
    def argument(self) -> str:
        """The spec as one command-line argument."""
        return canonical_json({**self.fields, "slug": self.slug})

    @property
    def fields(self) -> dict[str, Any]:
        """A fresh copy of the fields."""
        return json.loads(self.text)

    @cached_property
    def key(self) -> str:
        """The paper's key."""
        return self.fields["key"]

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON: what seeds and noise keys are derived from."""
        return sha256(self.text)

    @property
    def id(self) -> str:
        """Slug and the first 8 hex digits of the digest: the name of the run's folder."""
        return f"{self.slug}-{self.digest[:8]}"

    @cached_property
    def condition(self) -> str:
        """The `condition_id`: what a block of runs is a part of."""
        return condition_id(self.slug, self.fields)


def distinct(specs: Iterable[Spec]) -> dict[str, Spec]:
    """Specs by id, each once, in order of first appearance.

    Raises InputError where two different specs share an id, so that no run can overwrite another.
    """
    by_id: dict[str, Spec] = {}
    for spec in specs:
        other = by_id.setdefault(spec.id, spec)
        if other.text != spec.text:
            raise InputError("specs", f"two different specs with id {spec.id}", "distinct ids")
    return by_id
