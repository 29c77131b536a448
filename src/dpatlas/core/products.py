"""What a figure or table is to the workflow: a name, the runs behind it, a place in the paper."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal


@dataclass(frozen=True)
class Product:
    """A figure or table. needs: groups of specs, as its block's settings name them.

    may_lack: those of a table without which it is shown too, if a run has a part only. place: where
    the paper shows what it reproduces. caption: what is shown, then what to see, in
    reStructuredText. paper_shows: what the paper has there, in our words. A module of its name, in
    the folder `figures` of its block, has the function of its name that makes it.
    """

    name: str
    kind: Literal["figure", "table"]
    needs: tuple[str, ...]
    place: str
    caption: str
    paper_shows: str
    may_lack: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The beginning of its caption, up to a bracket, a colon or the end of a sentence."""
        end = r"(?<=[a-z]) \(|[:;] |(?<!Fig)(?<!Figs)(?<!Prop)(?<!Sec)(?<!Thm)(?<!Thms)(?<!Eq)\. "
        return re.split(end, self.caption)[0]

    @property
    def folder(self) -> str:
        """Of its files, under the tier's."""
        return f"{self.kind}s"


figure = partial(Product, kind="figure")
table = partial(Product, kind="table")
