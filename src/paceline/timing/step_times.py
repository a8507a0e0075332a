"""How long each step of an emulated accelerator takes: the same draws on either clock."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import Any

import numpy as np

from paceline.errors import SettingError
from paceline.random_bits import random_bits


@dataclass(frozen=True)
class StepTimes:
    """`jitter`: sigma of a log-normal factor of mean 1. The first `slow_workers` are slow always,
    any worker is slow in a step with `straggler_probability`; the factors multiply.
    """

    step_seconds: float = 1.0
    jitter: float = 0.0
    slow_workers: int = 0
    slow_factor: float = 1.0
    straggler_probability: float = 0.0
    straggler_factor: float = 1.0
    seed: int = 0

    def seconds(self, worker: int, step: int) -> float:
        """Of the worker's step, counted from 0; depends on (seed, worker, step) alone."""
        seconds = self.step_seconds
        if worker < self.slow_workers:
            seconds *= self.slow_factor
        if self.straggler_probability and (
            self._uniform(worker, step, "straggler") < self.straggler_probability
        ):
            seconds *= self.straggler_factor
        if self.jitter:
            normal = NormalDist().inv_cdf(self._uniform(worker, step, "jitter"))
            seconds *= math.exp(self.jitter * normal - self.jitter**2 / 2)
        return seconds

    def _uniform(self, worker: int, step: int, purpose: str) -> float:
        """Inside (0, 1)."""
        bits = random_bits(np.array([step]), purpose, self.seed, worker)
        return (int(bits[0] >> np.uint64(12)) + 0.5) / 2**52


def step_times(config: dict[str, Any]) -> StepTimes | None:
    """By a point's whole configuration; None where its steps take as long as they take.

    Raises SettingError for the first of the settings that makes no sense.
    """
    cluster = config["cluster"]
    for name in ("slow_factor", "straggler_factor"):
        _number(cluster, name, above=0)
    for name in ("step_jitter", "straggler_probability"):
        _number(cluster, name)
    if cluster["straggler_probability"] > 1:
        raise _refusal("straggler_probability", "at most 1", cluster["straggler_probability"])
    slow = cluster["slow_workers"]
    if isinstance(slow, bool) or not isinstance(slow, int) or slow < 0:
        raise _refusal("slow_workers", "a whole number of at least 0", slow)
    if cluster["step_seconds"] is None:
        return None
    return StepTimes(
        step_seconds=_step_seconds(cluster["step_seconds"], config["batch_size"]),
        jitter=cluster["step_jitter"],
        slow_workers=slow,
        slow_factor=cluster["slow_factor"],
        straggler_probability=cluster["straggler_probability"],
        straggler_factor=cluster["straggler_factor"],
        seed=config["seed"],
    )


def _step_seconds(setting: Any, batch_size: int) -> float:
    """Between the batch sizes of a mapping: linear; beyond them: in proportion to the nearest."""
    if not isinstance(setting, Mapping):
        if not _positive(setting):
            raise _refusal("step_seconds", "a number above 0, or {batch_size: seconds}", setting)
        return float(setting)
    whole = all(isinstance(size, int) and _positive(size) for size in setting)
    if not setting or not whole or not all(map(_positive, setting.values())):
        raise _refusal("step_seconds", "{batch_size: seconds} above 0", dict(setting))
    sizes = sorted(setting)
    if not sizes[0] <= batch_size <= sizes[-1]:
        nearest = sizes[0] if batch_size < sizes[0] else sizes[-1]
        return setting[nearest] * batch_size / nearest
    return float(np.interp(batch_size, sizes, [setting[size] for size in sizes]))


def _number(cluster: Mapping[str, Any], name: str, *, above: float | None = None) -> None:
    value = cluster[name]
    if _positive(value) or (above is None and _is_number(value) and value == 0):
        return
    raise _refusal(name, "a number above 0" if above == 0 else "a number of at least 0", value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _refusal(name: str, needed: str, value: Any) -> SettingError:
    return SettingError(f"cluster.{name}", f"{needed} is needed, not {value!r}")
