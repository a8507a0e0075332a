"""Checks the target that a study asks for: the accuracy or loss to which time is measured."""

import math
from collections.abc import Mapping
from typing import Any, cast

from paceline.errors import SettingError

_METRICS = ("top1", "top5", "loss")  # of validation
_DISTANCES = ("value", "below_baseline")


def asked_target(target: Any) -> Mapping[str, Any] | None:
    """Return {metric, value} or {metric, below_baseline}; None leaves it to the analysis.

    Raises SettingError for other settings, another metric, or a number that is no share, or for a
    loss not above 0.
    """
    if target is None:
        return None
    values = cast("Mapping[str, Any]", target if isinstance(target, Mapping) else {})
    names = set(values)
    if names not in [{"metric", name} for name in _DISTANCES]:
        message = f"null or metric and one of {', '.join(_DISTANCES)} is needed, not {target!r}"
        raise SettingError("target", message)
    if values["metric"] not in _METRICS:
        message = f"one of {', '.join(_METRICS)} is needed, not {values['metric']!r}"
        raise SettingError("target.metric", message)
    (name,) = names - {"metric"}
    metric = values["metric"]
    return {"metric": metric, name: _number(metric, name, values[name])}


def _number(metric: str, name: str, value: Any) -> float:
    most, what = (
        (math.inf, "a number above 0") if metric == "loss" else (1, "a share between 0 and 1")
    )
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value < most:
        raise SettingError(f"target.{name}", f"{what} is needed, not {value!r}")
    return float(value)
