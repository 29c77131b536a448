"""Which jobs of dp_sgld train on features of a frozen backbone."""

from collections.abc import Mapping
from typing import Any


def takes_features(fields: Mapping[str, Any]) -> bool:
    """Whether the job trains on a frozen backbone's features, and reads no image."""
    return fields.get("features") in ("penultimate", "softmax")
