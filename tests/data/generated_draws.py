"""Records of a generated set, as preparing it would draw them."""

from dpatlas.data.generated import records
from dpatlas.data.registry import find


def draw(name, count, part="train", selection=0, classes=None):
    entry = find(name)
    return records(entry, classes or entry.classes, count, part=part, selection=selection)
