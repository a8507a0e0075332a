"""Plans training steps within a bound on memory.

A plan has a batch size and, for each block of the network, an alternative: a way to compute the
block (memory layout, recomputation, precision). The procedure is that of Zou 2017 (doi
10.1007/978-3-319-69179-4_2): solve an integer programme for each batch size, and choose the batch
size with the most images per second. The module `race` then measures the plans whose predictions
are nearly equal.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import torch

from paceline.cluster.launcher import call_in_processes
from paceline.errors import SettingError
from paceline.prediction.measure_blocks import MeasuredBlocks, measure_blocks
from paceline.prediction.programme import Plan
from paceline.record.point import Point

_UNITS = {"": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *(|kB|MB|GB)")


@dataclass(frozen=True)
class Planned:
    """Plans of one batch size.

    `plan`: the fastest plan within the bound on memory, None if no plan is within it. `unbounded`:
    the fastest plan without a bound. `smallest`: the plan that needs the least memory.
    """

    measured: MeasuredBlocks
    plan: Plan | None
    unbounded: Plan
    smallest: Plan

    @property
    def batch_size(self) -> int:
        return self.measured.batch_size

    def cost(self, step_seconds: float) -> float:
        """Return the seconds for an image if a step takes `step_seconds`."""
        return step_seconds / self.batch_size

    @property
    def predicted(self) -> float:
        """Predicted cost of the fastest plan; inf without a plan."""
        return self.cost(self.plan.seconds if self.plan else math.inf)


def bytes_of(memory: str | None, device: str) -> float:
    """Return the number of bytes that a text such as 40MB or 2GB means.

    For None, return the free memory of this machine, or of its GPU if `device` is "cuda". Raises
    SettingError("memory") for a text that is no size.
    """
    if memory is None:
        return (
            torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available
        )
    found = _SIZE.fullmatch(memory)
    if not found or not float(found[1]):
        raise SettingError("memory", f"a size is needed, as 40MB or 2GB, not {memory!r}")
    return float(found[1]) * _UNITS[found[2]]


def plan_batches(points: Sequence[Point], memory: float, rounds: int) -> list[Planned]:
    """Measure and plan the batch size of each point, each in a process of its own.

    Raises SettingError("memory") if no batch size has a plan within `memory` [bytes], the
    SettingErrors of `check`, and ProcessFailure if a process fails.
    """
    for point in points:
        check(point)
    planned = [_planned(point, memory, rounds) for point in points]
    if not any(each.plan for each in planned):
        least = min(planned, key=lambda each: each.smallest.fullest.bytes)
        needed = least.smallest.fullest
        raise SettingError(
            "memory",
            f"{memory / 1e6:,.2f} MB are too little; the least needed is "
            f"{needed.bytes / 1e6:,.2f} MB, at batch size {least.batch_size}, in {needed.name}",
        )
    return planned


def check(point: Point) -> None:
    """Raise SettingError for a point whose steps cannot be planned here."""
    if point.kind not in ("measured", "paced"):
        raise SettingError("cluster", "blocks are measured on this machine; choose cluster=local")
    if point.training.precision != "32-true":
        raise SettingError("training.precision", "a plan chooses it by block; leave it at 32-true")
    if point.sharding.shards > 1:
        raise SettingError(
            "model.shards", "a plan is of a worker that is one process; leave it at 1"
        )
    if "image_shape" not in point.config.values["data"]:
        name = point.config.names["data"]
        raise SettingError("data.image_shape", f"{name} declares none, which a plan needs")


def best(planned: Sequence[Planned]) -> Planned:
    """Return the batch size whose best plan has the smallest predicted cost."""
    return min(planned, key=lambda each: each.predicted)


def _planned(point: Point, memory: float, rounds: int) -> Planned:
    (measured,) = call_in_processes(measure_blocks, point, rounds)
    programme = measured.programme
    if not programme.blocks:
        raise SettingError("model", "it has no block that is called once, with one tensor")
    (unbounded,) = programme.fastest(math.inf, 1)
    plan = next(iter(programme.fastest(memory, 1)), None)
    return Planned(measured, plan, unbounded, programme.smallest())
