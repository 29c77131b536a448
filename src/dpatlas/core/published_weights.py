"""Backbones that others trained and published, by the name of their publisher in a config."""

from dpatlas.core.networks import NETWORKS

_WEIGHTS = {name: network.weights for name, network in NETWORKS.items() if network.weights}
IMPORTED = {
    source: tuple(name for name, weights in _WEIGHTS.items() if weights.source == source)
    for source in dict.fromkeys(weights.source for weights in _WEIGHTS.values())
}
# Publishers of whose files no address is known: the config names a file.
FROM_FILES = tuple(
    source
    for source, names in IMPORTED.items()
    if not any(_WEIGHTS[name].address for name in names)
)
