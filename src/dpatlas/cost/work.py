"""How much work a job is, counted from its spec alone: the features of the cost model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpatlas.config.atlas import Atlas
from dpatlas.config.features import FrozenFeatures
from dpatlas.config.sizes import inputs_of, records_of, size_of
from dpatlas.cost.counting import NO_DATA, JobCost, Size, Work
from dpatlas.cost.training import frozen_features
from dpatlas.registry import block_of


def cost_of(key: str, kind: str) -> JobCost:
    """What the block says of the cost of a kind of its jobs; KeyError for a kind of none."""
    return block_of(key).load("cost").KINDS[kind]


def work(fields: Mapping[str, Any], size: Size) -> Work:
    """The work of the spec with these fields, with its backbone's in place of the backbone's id.

    KeyError for a kind that has no count.
    """
    own = cost_of(fields["key"], fields["kind"]).work(fields, size)
    return replace(own, counts={"starts": 1, **own.counts})


def work_of(atlas: Atlas, spec_id: str) -> Work:
    """The work of one of the run's jobs."""
    fields = atlas.specs[spec_id].fields
    if fields.get("backbone"):
        fields["backbone"] = atlas.specs[fields["backbone"]].fields
    size = Size(*size_of(fields["data"])) if "data" in fields else NO_DATA
    return work(fields, size)


def work_of_features(features: FrozenFeatures) -> Work:
    """The work of taking a backbone's features of a data set."""
    inputs, disk_bytes = inputs_of(features.data), 2**20 * features.disk_mb
    network = features.backbone.fields
    return frozen_features(network, inputs, records_of(features.data), disk_bytes)
