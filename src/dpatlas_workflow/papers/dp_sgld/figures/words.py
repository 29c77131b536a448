"""How tables and figures of dp_sgld name what a regression sees."""

from collections.abc import Mapping

FEATURES = {"penultimate": "features", "softmax": "softmax outputs", "raw": "raw columns"}


def backbone_name(backbone: Mapping[str, str] | None) -> str | None:
    """The name in the config of the backbone behind a record; None for raw columns."""
    return None if backbone is None else backbone["id"].rpartition("-")[0]


def in_words(features: str, backbone: str | None) -> str:
    """What the regression sees of a record."""
    return f"{FEATURES[features]} of {backbone}" if backbone else FEATURES[features]
