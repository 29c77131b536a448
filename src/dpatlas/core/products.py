"""What a figure or table is to the workflow: a name, the runs behind it, a place in the paper."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Product:
    """A figure or table. needs: groups of specs, as its block's settings name them.

    place: where the paper shows what it reproduces. A module of its name, in the folder `figures`
    of its block, has the function of its name that makes it.
    """

    name: str
    kind: Literal["figure", "table"]
    needs: tuple[str, ...]
    place: str

    @property
    def folder(self) -> str:
        """Of its files, under the tier's."""
        return f"{self.kind}s"


def figure(name: str, needs: tuple[str, ...], place: str) -> Product:
    """A figure, as in `Product`."""
    return Product(name, "figure", needs, place)


def table(name: str, needs: tuple[str, ...], place: str) -> Product:
    """A table, as in `Product`."""
    return Product(name, "table", needs, place)
