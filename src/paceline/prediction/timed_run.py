"""Runs the virtual clock without gradients: the rules, the messages and the times of a run."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from paceline.clock.run_spec import RunSpec, VectorSpec
from paceline.clock.segment import plain_segment
from paceline.clock.virtual.clock import VirtualClock
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.cluster.virtual import VirtualCluster
from paceline.data.shuffle import DataTraffic
from paceline.errors import SettingError
from paceline.record.observed import images_per_second
from paceline.record.point import Point
from paceline.run.modelled_step import declared_shape, split_step_of
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import OWN, AbstractWorkload


@dataclass(frozen=True)
class TimedRun:
    """Times of a run without training. All seconds are virtual.

    `computing`, `exchanging`, `waiting`: shares of the workers' time; waiting is for other workers,
    and in front of a server or a link. `staleness`: number of pushes to the first server by their
    staleness [updates]. `busiest`: the link or server that was busy for the longest time, and for
    which share of the run.
    """

    images_per_second: float
    seconds: float
    computing: float
    exchanging: float
    waiting: float
    staleness: Counter[int]
    busiest: tuple[str, float]

    @property
    def mean_staleness(self) -> float:
        pushes = sum(self.staleness.values())
        return sum(stale * number for stale, number in self.staleness.items()) / pushes


def timed_run(point: Point, steps: int, workload: AbstractWorkload | None = None) -> TimedRun:
    """Run `steps` steps of every worker of a point.

    `workload`: whose messages are sent; None for that of the point. Raises SettingError for a
    cluster that is not modelled, and for too few steps.
    """
    clock = point_clock(point, steps, workload=workload)
    ends = [np.array(worker.step_ends) for worker in clock.workers]
    rate = images_per_second(ends, point.batch_size, point.measurement.warmup_fraction)
    if rate is None:
        raise SettingError("steps", f"{steps} are too few for a rate")
    total = sum(float(end[-1]) for end in ends if len(end))
    communicating = sum(worker.seconds_communicating for worker in clock.workers)
    waiting = min(communicating, sum(worker.seconds_waiting for worker in clock.workers))
    busy, seconds = clock.busy_seconds(), clock.kernel.now
    name = max(busy, key=lambda each: busy[each]) if any(busy.values()) else "nothing"
    return TimedRun(
        images_per_second=rate,
        seconds=seconds,
        computing=1 - communicating / total,
        exchanging=(communicating - waiting) / total,
        waiting=waiting / total,
        staleness=Counter(
            staleness for server in clock.report().servers[:1] for _, staleness in server.applied
        ),
        busiest=(name, busy.get(name, 0.0) / seconds),
    )


def point_clock(
    point: Point,
    steps: int,
    snapshot_samples: Sequence[int] = (),
    workload: AbstractWorkload | None = None,
) -> VirtualClock:
    """Return the clock of a point at the end of `steps` steps of every worker.

    `snapshot_samples`: see `timed_clock`; `workload`: see `timed_run`. Raises SettingError for a
    cluster that is not modelled.
    """
    cluster = point.cluster
    if not isinstance(cluster, VirtualCluster):
        name = point.config.names["cluster"]
        raise SettingError("cluster", f"{name} is not modelled; choose a profile, as cluster=titan")
    step_times = cluster.step_times(point.batch_size, point.seed, point.workload.name)
    assert step_times is not None
    run = RunSpec(
        num_workers=point.workers,
        batch_size=point.batch_size,
        snapshot_samples=snapshot_samples,
        workload=workload or sized_workload(point),
        traffic=_traffic(point),
        split_step=split_step_of(point, point.model.build, lambda: declared_shape(point)),
    )
    return timed_clock(point.scheme, run, cluster.profile, step_times, steps)


def sized_workload(point: Point) -> AbstractWorkload:
    """Return the workload of a run without training: its own, or one with the model's bytes."""
    if point.workload.name != OWN:
        return point.workload
    model = point.model.build()
    size = 8 if point.training.precision == "64-true" else 4  # bytes of a weight on the wire
    statistics = sum(each.numel() for each in model.buffers() if each.is_floating_point())
    tensors = [weight.numel() for weight in model.parameters()]
    return point.workload.of_size(size * sum(tensors), size * statistics, tensors)


def _traffic(point: Point) -> DataTraffic | None:
    """Return how data move in a run of the point; None if each worker has its own."""
    if point.placement.meeting is None:
        return None
    from paceline.run.open_data import open_data  # Lightning takes seconds
    from paceline.run.training_process import reading_of

    return open_data(point.data.build(), reading_of(point)).traffic


def timed_clock(
    scheme: AbstractScheme,
    run: RunSpec,
    profile: ClusterProfile,
    step_times: StepTimes,
    steps: int,
) -> VirtualClock:
    """Return the clock at the end of `steps` steps of every worker, with one weight per server.

    Of the run, the number of steps and the seed are those of the other arguments; a batch_size is
    only needed for snapshots. Raises SettingError for more servers than pushes.
    """
    weights = torch.zeros(max(1, scheme.servers))
    accounting = Accounting(scheme, run.num_workers)
    batches = accounting.batches_per_round
    num_steps = math.ceil(steps * run.num_workers / batches) * batches
    accounting.check_servers(num_steps)
    size = run.batch_size or 1
    parts = ClockParts(
        scheme,
        replace(run, batch_size=size, num_steps=num_steps, seed=step_times.seed),
        profile=profile,
        step_times=step_times,
        weights=weights,
        statistics=torch.zeros(0),
    )
    clock = VirtualClock(parts, VectorSpec([plain_segment(len(weights))]), weights)
    while (worker := clock.next_worker()) is not None:
        gradient = clock.pool.take()
        gradient.vector.zero_()
        clock.finish_step(worker, gradient)
    clock.end()
    return clock
