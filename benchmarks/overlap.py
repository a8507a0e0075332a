"""Pushes that leave by layer, during backward, against whole ones: real processes on nodes of
their own, paced, over shaped links of 1 Gbit/s. What the virtual clock predicts stands beside it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.config import point_of
from benchmarks.row import row
from paceline.clock.run_spec import RunSpec
from paceline.cluster.supervisor import Task
from paceline.prediction.predict import timed_clock
from paceline.prediction.predict_points import UNEVENNESS
from paceline.record.point import Point
from paceline.run.run_point import PROCESS
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes

# workload, workers, servers, seconds of a step: nin has 30.4 MB, googlenet 53.5 MB, which take
# 0.24 s and 0.43 s of a link.
CASES = (("nin", 1, 1, 0.4), ("nin", 2, 1, 0.4), ("nin", 2, 2, 0.4), ("googlenet", 2, 1, 0.8))
SCHEME = "async_parameter_server"
STEPS, TURNS = 12, 3


def rows() -> Iterator[dict[str, Any]]:
    for case in CASES:
        yield from _compared(*case)


def _compared(
    workload: str, workers: int, servers: int, step_seconds: float
) -> Iterator[dict[str, Any]]:
    early, whole = (
        _point(workload, workers, servers, step_seconds, overlap) for overlap in ("true", "false")
    )
    found = [(_measured(early), _measured(whole)) for _ in range(TURNS)]
    ours, theirs = (median(each) for each in zip(*found, strict=True))
    measured = ours / theirs
    name = f"step of {workers} x {SCHEME}, {servers} servers, {workload} at {step_seconds} s"
    yield row(f"{name}: overlap / whole", ours, theirs, "s", measured, "< 1", measured < 1)
    ours, theirs = _predicted(early, step_seconds), _predicted(whole, step_seconds)
    predicted = ours / theirs
    yield row("  predicted", ours, theirs, "s", predicted, "shown", True)
    ratio = measured / predicted
    holds = 0.95 <= ratio <= 1.05
    yield row("  measured / predicted", measured, predicted, "", ratio, "0.95 to 1.05", holds)


def _point(workload: str, workers: int, servers: int, step_seconds: float, overlap: str) -> Point:
    return point_of(
        f"scheme={SCHEME}",
        f"scheme.servers={servers}",
        f"scheme.overlap={overlap}",
        "cluster=shaped_nodes",
        "cluster.accelerator=cpu",
        f"cluster.step_seconds={step_seconds}",
        f"workload={workload}",
        "model=small_cnn",
        "data=synthetic",
        "data.num_validation=100",
        "data.num_test=100",
        f"workers={workers}",
        "batch_size=8",
        f"training.samples={8 * workers * STEPS}",
        "measurement.evaluations=1",
    )


def _measured(point: Point) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        task = Task(PROCESS, (point, path), *point.num_processes, path / "log")
        returned = point.cluster.run(task)[: point.workers]
    return _seconds([each.real_step_ends for each in returned])


def _predicted(point: Point, step_seconds: float) -> float:
    link = Link(0.0, point.cluster.link.bandwidth, UNEVENNESS)  # type: ignore[attr-defined]
    clock = timed_clock(
        point.scheme,
        RunSpec(point.workers, workload=point.workload),
        profile=ClusterProfile(link, link, 1, 0.0, float("inf")),
        step_times=StepTimes(step_seconds=step_seconds),
        steps=STEPS,
    )
    return _seconds([np.array(worker.step_ends) for worker in clock.workers])


def _seconds(ends: list[np.ndarray]) -> float:
    """Return the median of a worker's steps from its third on, without its last, beside which the
    first to be done evaluates; the mean over workers.
    """
    return float(np.mean([np.median(np.diff(each)[1:-1]) for each in ends]))
