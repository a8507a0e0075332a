"""Finds settings of a point that are set and change nothing, because of another setting."""

from collections.abc import Iterator, Mapping
from typing import cast

from paceline.cluster.cluster import num_gpus
from paceline.record.point import Point

_FACTORS = (("slow_factor", "slow_workers"), ("straggler_factor", "straggler_probability"))


def without_effect(point: Point) -> list[str]:
    """Return a line for each such setting: its name, its value, and the cause.

    A line also says so if the time of a step is not known for the batch size.
    """
    lines = [f"{name}: {value} has no effect, since {cause}" for name, value, cause in _idle(point)]
    known = point.cluster.step_seconds
    if isinstance(known, Mapping):
        sizes = cast("Mapping[int, float]", known)
        if not min(sizes) <= point.batch_size <= max(sizes):
            message = f"no time is known for batch_size={point.batch_size}; "
            message += "that of the nearest size is taken in proportion"
            lines.append(f"cluster.step_seconds: {message}")
    return lines


def on_cpu(point: Point) -> str:
    """Return a line if a point is trained on the CPU although there are GPUs, else ""."""
    there = num_gpus() if point.cluster.accelerator == "auto" else 0
    if not there or point.device != "cpu":
        return ""
    each = point.cluster.workers_per_accelerator
    need = "a GPU each" if each == 1 else f"a GPU for each {each}"
    return (
        f"cluster.accelerator: auto is the CPU for {point.workers} workers, which need {need}; "
        f"this machine has {there}; cluster.workers_per_accelerator=N lets N share one"
    )


def _idle(point: Point) -> Iterator[tuple[str, object, str]]:
    """Yield the name, the value and the cause of each setting without effect."""
    cluster, training = point.cluster, point.training
    emulated = cluster.mean_step_seconds(point.batch_size, point.workload) is not None
    for name in () if emulated else ("step_jitter", "slow_workers", "straggler_probability"):
        if value := getattr(cluster, name):
            cause = "steps are not emulated: cluster.step_seconds is null"
            yield f"cluster.{name}", value, cause
    for name, needed in _FACTORS:
        factor, number = getattr(cluster, name), getattr(cluster, needed)
        if factor != 1 and not number:
            yield f"cluster.{name}", factor, f"cluster.{needed} is 0"
        if factor == 1 and number and emulated:
            yield f"cluster.{needed}", number, f"cluster.{name} is 1"
    if training.warmup_epochs and training.lr_rule == "none":
        yield "training.warmup_epochs", training.warmup_epochs, "training.lr_rule is none"
