"""Types of the fields of a record, with the range of each number, and the check against them."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

Unit = Literal["images/s", "s", "share", "nats", "updates", "images", "bytes", "", "text"]

_POSITIVE = Field(ge=0, le=2**63)
# numbers with a unit, which also gives the digits on a page; "" is that of a count
Rate = Annotated[float, "images/s", Field(ge=1e-9, le=1e15)]  # of any cluster
Seconds = Annotated[float, "s", Field(ge=0, le=1e12)]
Share = Annotated[float, "share", Field(ge=0, le=1)]
Nats = Annotated[float, "nats", Field(allow_inf_nan=False)]
Updates = Annotated[float, "updates", _POSITIVE]
Images = Annotated[float, "images", _POSITIVE]
Bytes = Annotated[float, "bytes", _POSITIVE]
Plain = Annotated[float, "", _POSITIVE]
Text = Annotated[str, "text"]
Lines = Annotated[list[dict[str, Any]], "text"]

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Whole = Annotated[int, Field(ge=1)]
Word = Annotated[str, Field(min_length=1)]


@cache
def types_of(schema: type[Any]) -> Mapping[str, TypeAdapter[Any]]:
    """Return what checks the values of each field of a class; each of them may be None."""
    hints = get_type_hints(schema, include_extras=True)
    return {name: TypeAdapter(hint) for name, hint in hints.items()}


def numbers_in(schema: type[Any]) -> frozenset[str]:
    """Return the names of the fields that are numbers."""
    hints = get_type_hints(schema).items()
    return frozenset(name for name, hint in hints if {int, float} & {hint, *get_args(hint)})


def fault_of_fields(schema: type[Any], values: Mapping[str, Any]) -> str | None:
    """Return the first field whose value does not have its type, with the problem, or None.

    A missing value counts as None; values of other names may be anything.
    """
    for name, kind in types_of(schema).items():
        try:
            kind.validate_python(values.get(name), strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join([name, *map(str, first["loc"])])
            return f"{place}: {first['msg']}, not {first['input']!r:.40}"
    return None
