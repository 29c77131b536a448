"""The work of a job, counted from its spec alone."""

from dataclasses import replace

from dpatlas.config.atlas import Atlas
from dpatlas.config.features import FrozenFeatures
from dpatlas.config.sizes import inputs_of, records_of, size_of
from dpatlas.core.records import SpecFields
from dpatlas.cost.counting import NO_DATA, Backbone, JobCost, Size, Work
from dpatlas.cost.training import frozen_features
from dpatlas.registry import block_of


def cost_of(key: str, kind: str) -> JobCost:
    """The cost of a kind of a block's jobs; KeyError for an unknown kind."""
    return block_of(key).load("cost").KINDS[kind]


def work(fields: SpecFields, size: Size, backbone: Backbone | None = None) -> Work:
    """The work of a spec (an object of its kind's class) with this size of its data set.

    backbone: spec of its backbone, None without one. Raises KeyError for an unknown kind.
    """
    counted = cost_of(fields.key, fields.kind).work(fields, size, backbone)
    return replace(counted, counts={"starts": 1, **counted.counts})


def work_of(atlas: Atlas, spec_id: str) -> Work:
    """The work of one of the run's jobs."""
    fields = atlas.typed(spec_id)
    backbone, data = getattr(fields, "backbone", None), getattr(fields, "data", None)
    size = NO_DATA if data is None else Size(*size_of(data))
    return work(fields, size, backbone and atlas.typed(backbone))


def work_of_features(features: FrozenFeatures) -> Work:
    """The work of computing a backbone's features of a data set."""
    inputs, disk_bytes = inputs_of(features.data), 2**20 * features.disk_mb
    return frozen_features(features.network, inputs, records_of(features.data), disk_bytes)
