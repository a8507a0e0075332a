"""Names runs and configurations in a few words, by the settings that vary."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.record.point_config import flat_settings

AXES = ("scheme", "workers", "batch_size", "seed")  # that name a run of no study
_SCHEMES = {
    "sync_allreduce": "allreduce",
    "sync_parameter_server": "sync",
    "async_parameter_server": "async",
}
_SHORT = {"workers": "x", "batch_size": "batch ", "seed": "s"}  # before their values


def label(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """Join the values of the settings `names`, scheme and workers first: `async x16 period 8`.

    A text stands alone, and a missing value is left out.
    """
    first = [name for name in ("scheme", "workers") if name in names]
    found = [(name, values.get(name)) for name in dict.fromkeys([*first, *names])]
    return " ".join(
        _SCHEMES.get(value, value)
        if isinstance(value, str)
        else _SHORT.get(name, f"{name.rpartition('.')[2]} ") + _text(value)
        for name, value in found
        if not (value is None or value != value)  # which NaN is
    )


def run_label(config: Mapping[str, Any], axes: Sequence[str] = AXES) -> str:
    """Name a point by its values of `axes` (dotted names), and by its seed, which comes last.

    For example `async x16 tuned s3`. For a trial of a hyperparameter search, the tried values
    replace `training.rate`.
    """
    values, trial = {**flat_settings(config), **config.get("names", {})}, config.get("trial")
    names = [name for name in axes if name != "seed"]
    if trial:
        tried = (f"{name} {trial[name]:.3g}" for name in ("lr", "momentum") if trial.get(name))
        values["training.rate"] = " ".join(["tuning", *tried])
        names = [*(name for name in names if name != "training.rate"), "training.rate"]
    return label(values, [*names, "seed"])


def _text(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
