"""Checks the target that a study asks for: the accuracy to which the time is measured."""

import math
from collections.abc import Mapping
from typing import Any, cast

from paceline.errors import SettingError

_METRICS = ("top1",)  # of validation
_DISTANCES = ("value", "below_baseline")


def asked_target(target: Any) -> Mapping[str, Any] | None:
    """Return {metric, value} or {metric, below_baseline}, shares; None leaves it to the analysis.

    Raises SettingError for other settings, another metric, or a number that is no share.
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
    return {"metric": values["metric"], name: _share(name, values[name])}


def _share(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value < 1:
        raise SettingError(f"target.{name}", f"a share between 0 and 1 is needed, not {value!r}")
    return float(value)
