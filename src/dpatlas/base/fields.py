"""Fields of the config and of specs: the base of their classes, and the types that many share.

A field is declared once, with its type, range and sentence. A class of fields that a spec takes
over from the config stands with its kind of job, in a block's `records/KIND.py`; the block's
`settings.py` takes it from there. Sentences take no part in code digests: editing one re-runs
nothing.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    WrapValidator,
)

T = TypeVar("T")


class Model(BaseModel):
    """Fields: unknown ones are refused, 5.0 and true are no integers, NaN is no number.

    A check of several fields is a validator that raises InputError, with `where` relative to the
    class. A field whose name is a keyword of Python has an alias: `lam: float = Field(alias=...)`.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        defer_build=True,
    )

    def plain(self, *names: str) -> dict[str, Any]:
        """The keys that were given, or those of `names` among them, as JSON values."""
        # Not `model_dump`: it builds a serialiser for every model, which takes a tenth of a second.
        return {
            field.alias or name: _plain(getattr(self, name))
            for name, field in type(self).model_fields.items()
            if name in self.model_fields_set and (not names or name in names)
        }

    def whole(self, *but: str) -> dict[str, Any]:
        """All keys as JSON values, also those that were not given, without `but`."""
        names = [name for name in type(self).model_fields if name not in but]
        return {name: _plain(getattr(self, name)) for name in names}

    def part(self, fields: type["Model"]) -> dict[str, Any]:
        """The keys that were given and that the class `fields` has, as JSON values."""
        return self.plain(*fields.model_fields)

    def plain_without(self, *names: str) -> dict[str, Any]:
        """The keys that were given, but for `names`."""
        return {name: value for name, value in self.plain().items() if name not in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.plain()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def setting(sentence: str, **limits: Any) -> Any:
    """A key of the config: its sentence, its range, and `default=None` where it is optional."""
    return Field(description=sentence, **limits)


def optional() -> Any:
    """An optional key, None where it is left out; its type brings the sentence."""
    return Field(default=None)


def _once(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("an entry twice")
    return values


def _as_written(value: Any, check: Any) -> Any:
    check(value)
    return value


def _class_name(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("neither a whole number nor text")
    return value


Once = Annotated[list[T], AfterValidator(_once), Field(json_schema_extra={"uniqueItems": True})]
# What YAML reads as no text, unless it is in quotes.
BOOLEANS = ("true", "false")
# A number that stays an integer where it is written as one: 1 and 1.0 are two specs.
AsWritten = WrapValidator(_as_written)
AsItIs = PlainSerializer(lambda value: value)
ClassName = Annotated[
    int | str, PlainValidator(_class_name), WithJsonSchema({"type": ["integer", "string"]})
]

# Numbers and names that fields of several classes have; a field's own sentence says what it is.
Number = int | float
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NoiseSource = Literal["keyed", "os"]
Seed = Annotated[int, Field(ge=0, le=9_223_372_036_854_775_807)]
Share = Annotated[float, setting("A number between 0 and 1.", ge=1e-100, lt=1)]
Bounded = Annotated[float, Field(ge=1e-30, le=1e30)]
PositiveList = Annotated[Once[Bounded], setting("Numbers above 0.", min_length=1)]
CountList = Annotated[
    Once[Annotated[int, Field(ge=1, le=1_000_000)]],
    setting("Whole numbers above 0.", min_length=1),
]

# Private training.
Epsilon = Annotated[float, setting("The epsilon that the noise is calibrated to.", gt=0)]
Delta = Annotated[
    float,
    setting(
        "The delta of the guarantee; well below one over the number of records.", ge=1e-100, lt=1
    ),
]
Batch = Annotated[int, setting("Expected size of a Poisson batch.", ge=1, le=1_000_000)]
Updates = Annotated[int, setting("Private updates of a run.", ge=1, le=1_000_000)]
MaxGradNorm = Annotated[
    float, setting("Clip bound C of every record's gradient.", ge=1e-30, le=1e30)
]
Rate = Annotated[float, setting("A step size.", ge=1e-30, le=1e30)]
Optimizer = Annotated[Literal["sgd", "adam"], setting("Optimiser of the privatised gradient.")]
Momentum = Annotated[float, setting("Momentum of sgd; 0 with adam.", ge=0, lt=1)]
Relation = Annotated[
    Literal["add_remove", "replace_one"], setting("Which data sets are neighbours.")
]
Accountant = Annotated[
    Literal["auto", "pld", "rdp"], setting("Accountant; auto takes the tightest that applies.")
]
SettingsTried = Annotated[
    int,
    setting(
        "How many settings were compared on the held-out validation records before this one was "
        "chosen.",
        ge=1,
        le=1_000_000,
    ),
]
TuningRuns = Annotated[
    int, setting("Runs of a setting whose mean validation accuracy is compared.", ge=1, le=1000)
]
