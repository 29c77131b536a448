"""Specs and records of kl_privacy, a module for each kind; here the fields of several kinds."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.facts import DataFields
from dpatlas.base.fields import NoiseSource, Once, setting
from dpatlas.base.records import SpecFields

Init = Literal["lecun", "he", "ntk", "xavier"]
Depth = Annotated[int, setting("Depth L, the number of weight matrices.", ge=2, le=1000)]
Depths = Annotated[Once[Depth], setting("Depths L, numbers of weight matrices.", min_length=1)]
Width = Annotated[int, setting("Hidden width m.", ge=1, le=100_000)]
Widths = Annotated[Once[Width], setting("Hidden widths m.", min_length=1)]
Steps = Annotated[int, setting("A number of full-batch steps.", ge=2, le=1_000_000)]
# Position of a record among the training records and, after them, those to add, as prepared.
Position = Annotated[int, Field(ge=0)]


class KlSpec(SpecFields):
    """Fields of every spec of the paper."""

    key: Literal["kl_privacy"]
    seed: int
    noise_source: NoiseSource
    data: DataFields
