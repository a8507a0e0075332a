"""Setting of the mean duration of an emulated accelerator's step."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from paceline.settings import Positive, Whole
from paceline.timing.interpolated import interpolated


def _in_one_line(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Replace pydantic's errors, one for each possible form of the setting, by a single one."""
    try:
        return check(value)
    except ValidationError:
        needed = "a number above 0, or {batch_size: seconds} with numbers above 0, is needed"
        raise ValueError(needed) from None


# Seconds, or {images per worker and step: seconds}; None: steps are not emulated.
StepSeconds = Annotated[
    Positive | Annotated[dict[Whole, Positive], Field(min_length=1)] | None,
    WrapValidator(_in_one_line),
]


def seconds_of_step(step_seconds: float | Mapping[int, float], batch_size: int) -> float:
    """Return the mean duration of a step with `batch_size` images [seconds].

    It is linear between the batch sizes of a mapping, and beyond them proportional to the nearest.
    """
    if not isinstance(step_seconds, Mapping):
        return step_seconds
    nearest = min(max(batch_size, min(step_seconds)), max(step_seconds))
    if nearest != batch_size:
        return step_seconds[nearest] * batch_size / nearest
    return interpolated(step_seconds, batch_size)
