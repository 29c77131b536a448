"""Which jobs of dp_sgld train on features of a frozen backbone."""

from dpatlas.core.specs import Spec


def takes_features(spec: Spec) -> bool:
    """Whether the job trains on a frozen backbone's features, and reads no image."""
    return spec.fields.get("features") in ("penultimate", "softmax")
