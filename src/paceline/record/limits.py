"""Limits of settings beyond their types: values that would run, fail late, or mean nothing."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from paceline.errors import SettingError

_NAME = re.compile(r"\w[\w .-]{0,99}")  # also of a folder
_MOST_SEED = 2**32 - 1  # of numpy
_MOST_SECONDS = 2_000_000  # of a wait: 23 days; the milliseconds of sockets are of 32 bits
_MOST_THREADS = 1024


class _Limit(NamedTuple):
    """Limit of one setting: whether a value is within, and what is needed if it is not."""

    setting: str
    within: Callable[[Any], bool]
    needed: str


def _number(low: float, high: float, *, whole: bool = False) -> Callable[[Any], bool]:
    """Test whether a value is a number from `low` to `high`; text and others are for the types."""

    def within(value: Any) -> bool:
        if whole and isinstance(value, str):
            return False
        return not isinstance(value, int | float) or low <= value <= high

    return within


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value))


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_address(value: Any) -> bool:
    return value != ""


def _builds(value: Any) -> bool:
    return isinstance(value, Mapping) and "_target_" in value


def _may_build(value: Any) -> bool:
    return value is None or _builds(value)


_LIMITS = (
    _Limit(
        "study",
        _is_name,
        "a name of at most 100 letters, digits, spaces, dots and dashes is needed",
    ),
    _Limit("question", _is_text, "text is needed"),
    _Limit(
        "seed", _number(0, _MOST_SEED, whole=True), f"a number from 0 to {_MOST_SEED} is needed"
    ),
    _Limit("data.split_seed", _number(0, _MOST_SEED, whole=True), "a number from 0 is needed"),
    _Limit("data.augmentation", _may_build, "a file of conf/data/augmentation or null is needed"),
    _Limit(
        "model.optimizer",
        _builds,
        "a file of conf/model/optimizer is needed",
    ),
    _Limit("training.momentum", _number(0, 0.999999), "a share below 1 is needed"),
    _Limit(
        "cluster.timeout_seconds",
        _number(0.1, _MOST_SECONDS),
        f"0.1 to {_MOST_SECONDS} seconds are needed",
    ),
    _Limit(
        "cluster.threads_per_worker",
        _number(1, _MOST_THREADS),
        f"1 to {_MOST_THREADS} threads are needed",
    ),
    _Limit(
        "cluster.step_jitter",
        _number(0, 5),
        "the sigma of a logarithm, from 0 to 5, is needed: 0.3 is a jitter of 30 %",
    ),
    _Limit(
        "measurement.mlflow.tracking_uri",
        _is_address,
        "the address of a store is needed, or null to go without MLflow",
    ),
)


def check_limits(values: Mapping[str, Any]) -> None:
    """Raise SettingError for the first setting whose value can mean nothing.

    `values`: settings as composed; a setting that is not there has no limit.
    """
    for setting, within, needed in _LIMITS:
        found, value = _lookup(values, setting)
        if found and not within(value):
            raise SettingError(setting, f"{needed}, not {value!r}")
    _check_password(values)
    _check_pairs(values)


def _check_password(values: Mapping[str, Any]) -> None:
    """Raise SettingError, which does not repeat it, for a password that records would tell."""
    setting = "measurement.mlflow.tracking_uri"
    address = _lookup(values, setting)[1]
    if isinstance(address, str) and urlsplit(address).password:
        message = "a password would stand in all records; MLflow reads MLFLOW_TRACKING_USERNAME "
        message += "and MLFLOW_TRACKING_PASSWORD, and PostgreSQL ~/.pgpass"
        raise SettingError(setting, message)


def _check_pairs(values: Mapping[str, Any]) -> None:
    """Raise SettingError for a setting that is more than the one which it is a part of."""
    for part, whole, what in (
        ("cluster.slow_workers", "workers", "of the workers"),
        ("training.warmup_epochs", "training.epochs", "of the epochs"),
    ):
        own, most = _lookup(values, part)[1], _lookup(values, whole)[1]
        if part == "training.warmup_epochs" and _lookup(values, "training.samples")[1] is not None:
            continue  # a budget in images overrides epochs
        if isinstance(own, int | float) and isinstance(most, int | float) and own > most:
            raise SettingError(part, f"{own} {what} cannot be, of which there are {most}")


def _lookup(values: Mapping[str, Any], setting: str) -> tuple[bool, Any]:
    """Return whether there is such a setting, and its value."""
    value: Any = values
    for part in setting.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = cast("Mapping[str, Any]", value)[part]
    return True, value
