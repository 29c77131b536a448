"""What the tiers that ship ask for, worked out once per process; nobody may change it."""

import functools

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_tier


@functools.cache
def atlas_of(tier):
    return Atlas(load_tier(tier))
