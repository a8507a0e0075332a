# pyright: basic
"""Name of a run in words, by the axes of its study: `gossip 16 workers tuned seed 3`."""

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT_AXES = ("scheme", "workers", "batch_size", "seed")  # of a run of no study
_WORDS = {  # of settings that a name alone does not make clear
    "scheme": "{}",
    "workers": "{} workers",
    "batch_size": "batch {}",
    "training.rate": "{}",
    "cluster.slow_workers": "slow {}",
}


def run_label(config: Mapping[str, Any], axes: Sequence[str] = DEFAULT_AXES) -> str:
    """Return the values of `axes`, dotted names, in a point's settings; the seed comes last.

    A setting that is null is left out.

    A run of a tuning has what its trial tries in place of its rate.
    """
    named = [name for name in axes if name not in ("seed", "training.rate")]
    parts = [_part(config, name) for name in named if _value(config, name) is not None]
    trial = config.get("trial")
    if trial:
        parts += ["tuning", *_tried(trial)]
    elif "training.rate" in axes:
        parts.append(_part(config, "training.rate"))
    return " ".join([*parts, f"seed {config['seed']}"])


def _part(config: Mapping[str, Any], name: str) -> str:
    form = _WORDS.get(name, name.rpartition(".")[2].replace("_", " ") + " {}")
    value = _value(config, name)
    return "1 worker" if (name, value) == ("workers", 1) else form.format(value)


def _value(config: Mapping[str, Any], name: str) -> Any:
    if name in config.get("names", {}):
        return config["names"][name]
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _tried(trial: Mapping[str, Any]) -> list[str]:
    return [f"{name} {trial[name]:.3g}" for name in ("lr", "momentum") if trial.get(name)]
