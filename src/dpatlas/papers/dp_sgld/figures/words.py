"""How tables and figures of dp_sgld name what a regression sees."""

FEATURES = {"penultimate": "features", "softmax": "softmax outputs", "raw": "raw columns"}


def in_words(features: str, backbone: str | None) -> str:
    """What the regression sees of a record."""
    return f"{FEATURES[features]} of {backbone}" if backbone else FEATURES[features]
