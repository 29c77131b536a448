"""What a figure or table is to the workflow: a name, the runs behind it, a place in the paper."""

import functools
import re
from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import Model, Once, setting
from dpatlas.base.yaml_files import read_checked
from dpatlas_workflow.blocks import Block
from dpatlas_workflow.registry import all_blocks

FILE = "products.yaml"
Group = Annotated[str, Field(pattern="^[a-z0-9_]+$")]


class Product(Model):
    """A figure or table of a block.

    A module of its name, in the folder `figures` of its block, has the function of its name that
    makes it.
    """

    name: str = setting("Of its rule and files.", pattern="^[a-z][a-z0-9_]*$")
    kind: Literal["figure", "table"] = setting("A figure needs all its runs.")
    needs: Once[Group] = setting("Groups of specs, as its block's settings name them.")
    may_lack: Once[Group] = setting(
        "Those of a table without which it is shown too, if a run has a part only.", default=[]
    )
    place: str = setting("Where the paper shows what it reproduces.", min_length=1)
    caption: str = setting("What is shown, then what to see, in reStructuredText.", min_length=1)
    paper_shows: str = setting("What the paper has there, in our words.", min_length=1)

    @property
    def title(self) -> str:
        """The beginning of its caption, up to a bracket, a colon or the end of a sentence."""
        end = r"(?<=[a-z]) \(|[:;] |(?<!Fig)(?<!Figs)(?<!Prop)(?<!Sec)(?<!Thm)(?<!Thms)(?<!Eq)\. "
        return re.split(end, self.caption)[0]

    @property
    def folder(self) -> str:
        """Of its files, under the tier's."""
        return f"{self.kind}s"


class Products(Model):
    """A block's products.yaml."""

    products: list[Product] = setting("In the order of the page.", min_length=1)


def all_products() -> dict[str, tuple[Product, Block]]:
    """Every figure and table by name, with its block, which may be disabled."""
    return {
        product.name: (product, block)
        for block in all_blocks().values()
        for product in products_of(block)
    }


@functools.cache
def products_of(block: Block) -> list[Product]:
    """A block's figures and tables; InputError for the first wrong field of its file."""
    return read_checked(block.folder / FILE, Products).products
