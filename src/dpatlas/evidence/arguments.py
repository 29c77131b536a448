"""Types of the arguments that tests of claims take: claims.yaml is read by their signatures."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field, create_model

from dpatlas.core.fields import Model, Once, setting

T = TypeVar("T")
# Several of them, none twice.
Some = Annotated[Once[T], Field(min_length=1)]
Group = Annotated[str, setting("Which runs of the paper are read.", pattern="^[a-z_]+$")]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


@functools.cache
def arguments_of(test: Callable[..., Any]) -> type[Model]:
    """The arguments of a test as a strict model: its parameters behind the records, as annotated.

    One without a default is required. A class of `evidence.tests` is such a model itself.
    """
    if isinstance(test, type):
        return test
    _, *parameters = inspect.signature(test).parameters.values()
    fields: dict[str, Any] = {
        each.name: (each.annotation, ... if each.default is each.empty else each.default)
        for each in parameters
    }
    return create_model(test.__name__, __base__=Model, **fields)
