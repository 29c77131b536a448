"""What all specs of a run share."""

from collections.abc import Mapping
from typing import Any

from dpatlas.config.root import General
from dpatlas.core.specs import Spec


def run_spec(config: General, key: str, kind: str, fields: Mapping[str, Any], name: str) -> Spec:
    """The spec of one job of the block `key`, with the run's base seed and source of noise."""
    common = {
        "key": key,
        "kind": kind,
        "seed": config.seed,
        "noise_source": config.noise_source,
    }
    return Spec.of({**common, **fields}, name)
