"""Dataclasses whose fields are settings, checked by their types when an object is built.

    @settings("scheme")
    class LocalSGD(AbstractScheme):
        period: Whole

`LocalSGD(period=0)` raises SettingError("scheme.period", ...), both in a user's own code and when
Hydra builds it from a file of conf/.

The key of a point (one run of a study) is the digest of its settings. The annotation of a field
says when the field is left out of the digest (UNKEYED: always; Neutral: if it has this value):

    checkpoint_seconds: Annotated[Positive | None, UNKEYED]
    poly_power: Annotated[Positive, Neutral(0.5)]
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from inspect import signature
from typing import Annotated, Any, NamedTuple, TypeVar, dataclass_transform

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from paceline.errors import SettingError

T = TypeVar("T")

# Strict: text and booleans are no numbers. Only Bandwidth may be infinite.
Whole = Annotated[int, Field(strict=True, ge=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]  # as of NumPy
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Below1 = Annotated[float, Field(strict=True, ge=0, lt=1)]  # such as a momentum
Flag = Annotated[bool, Field(strict=True)]
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(b|bit|B)/s")  # such as 100Gb/s or 12.5GB/s


def in_bytes_per_second(value: Any) -> Any:
    """Return a bandwidth in bytes/s, if it is text such as 100Gb/s or 12.5GB/s; else the value."""
    if not isinstance(value, str):
        return value
    found = _RATE.fullmatch(value.strip())
    if found is None:
        raise ValueError("bytes/s, or text such as 100Gb/s or 12.5GB/s, is needed")
    number, prefix, unit = found.groups()
    return float(number) * 1000.0 ** " kMGT".index(prefix or " ") / (1 if unit == "B" else 8)


Bandwidth = Annotated[
    float,
    Field(strict=True, gt=0),
    BeforeValidator(lambda value: math.inf if value is None else in_bytes_per_second(value)),
]  # bytes per second, or text such as 100Gb/s; None: no limit


class Unkeyed(NamedTuple):
    """Mark of a setting that does not change what a run computes.

    Such a setting is not part of the key.
    """


class Neutral(NamedTuple):
    """Value with which a setting has no effect and is not part of the key.

    A setting that is added to the project declares a Neutral value, so that the keys of earlier
    records stay valid.
    """

    value: Any


UNKEYED = Unkeyed()


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def settings(group: str) -> Callable[[type[T]], type[T]]:
    """Make the class a frozen dataclass whose constructor checks its arguments by their types.

    `group`: name of the settings' group, for example of a folder in conf/; SettingError puts it in
    front of the field's name.
    """

    def make(cls: type[T]) -> type[T]:
        config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
        checked: Any = dataclass(frozen=True, config=config)(cls)
        build, names = checked.__init__, [field.name for field in fields(checked)]

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                build(self, *args, **kwargs)
            except ValidationError as error:
                raise setting_error(error, group, names) from None

        checked.__init__ = __init__
        return checked

    return make


def checked_arguments(group: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the constructor of a class that is no dataclass check its arguments by their types.

    It raises the same errors as the classes of `settings`.
    """

    def make(build: Callable[..., None]) -> Callable[..., None]:
        check = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(build)
        names = list(signature(build).parameters)

        @wraps(build)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                check(self, *args, **kwargs)
            except ValidationError as error:
                raise setting_error(error, group, names) from None

        return __init__

    return make


def setting_error(error: ValidationError, group: str, names: Sequence[str]) -> SettingError:
    """Return a SettingError that reports the first of pydantic's errors.

    `group`: first part of the setting's name, or "" if it has none. `names`: names of the
    constructor's arguments in order, since pydantic reports a positional argument by its place.
    """
    first = error.errors(include_url=False)[0]
    place, *inner = first["loc"]
    path = [group, names[place] if isinstance(place, int) else place]
    path += [part for part in inner if isinstance(part, str)]  # a place in a list has no name
    setting = ".".join(part for part in path if part)
    if first["type"] in ("missing", "missing_argument"):
        return SettingError(setting, "a value is needed")
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return SettingError(setting, "there is no such setting")
    message = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return SettingError(setting, f"{message}, not {first['input']!r}")
