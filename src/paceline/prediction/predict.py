"""Predicts the throughput of a point (one run's settings) by the virtual clock, without training.

Schemes, messages and modelled times are the same as in a run that trains on a modelled cluster;
only gradients are not computed.
"""

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from paceline.clock.reports import images_per_second
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.simulation import Simulation
from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.evidence import FACTOR, STEP_FACTOR
from paceline.prediction.network_by_size import with_network
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.run.budget import declared_shape, split_step_of
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.settings import in_bytes_per_second
from paceline.timing.chip import RateOfSize
from paceline.timing.step_times import StepRate
from paceline.timing.workload import OWN, AbstractWorkload, SizedNetwork

MOST_SENDERS = 2  # of whole gradients to one receiver at once, up to which the model is confirmed
_LEAST_BANDWIDTH = 125_000  # bytes/s, 1 Mb/s: no cluster trains over less


@dataclass(frozen=True)
class TimedRun:
    """Rate and shares of a run without training.

    `computing`, `exchanging`, `waiting`: shares of the workers' time, which add up to 1. Workers
    wait for other workers, for servers and for links. `staleness`: number of pushes to the first
    server by their staleness [updates]. `busiest`: the link or server that was busy the longest,
    and the share of the run during which it was busy.
    """

    images_per_second: float
    computing: float
    exchanging: float
    waiting: float
    staleness: Counter[int]
    busiest: tuple[str, float]

    @property
    def mean_staleness(self) -> float:
        pushes = sum(self.staleness.values())
        return sum(stale * number for stale, number in self.staleness.items()) / pushes


class StepFrom(StrEnum):
    """Source of the time of a step, in words for tables and notes."""

    FLOPS = "from FLOPs, utilisation assumed"
    PUBLISHED = "from published images/s"
    MEASURED = "as measured by paceline calibrate, whatever the model"
    SET = "as cluster.step_seconds says"


@dataclass(frozen=True)
class Prediction:
    """Prediction for one point.

    `swept`: settings by which the point differs from the others. `steps`: of each worker.
    """

    point: Point
    run: TimedRun
    swept: Mapping[str, str]
    steps: int

    @property
    def cluster(self) -> VirtualCluster:
        assert isinstance(self.point.cluster, VirtualCluster)
        return self.point.cluster

    @property
    def lacks(self) -> str:
        """Which part the model lacks for the point, in words; "" if none is known.

        Many senders at once to one server cost more than the bytes that they send, as FireCaffe's
        Figure 5 and logs of TensorFlow show; synchronous ones of ours do not from 300 KB on.
        Asynchronous pushes come one by one: with 1 to 8 workers, all 48 published rates are within
        the factor.
        """
        point, profile, rate = self.point, self.cluster.profile, self.rate
        scheme = point.scheme
        senders = point.workers if scheme.collective == "parameter_server" else 0
        if scheme.servers and not _is_asynchronous(point):
            senders = len(Counts(scheme, point.workers).pushing)
        each = senders / max(1, scheme.servers)
        link = profile.node_link if profile.one_machine else profile.link
        if point.workers > 1 and math.isinf(link.bandwidth):
            return "messages take no time on this cluster"
        launching = rate.launching if isinstance(rate, RateOfSize) else 0.0
        if point.sharding.shards > 1 and rate and rate.seconds(point.batch_size) <= launching:
            return "each process of a split worker launches all kernels, which takes this step"
        if each > MOST_SENDERS and not profile.one_machine:
            return (
                f"each server gets {each:.3g} whole gradients in a step of all workers, more than "
                f"the {MOST_SENDERS} that were checked; published servers were slower"
            )
        return ""

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Interval of 90 % for the images/s; None for a point for which the model lacks a part.

        The numbers by which the factor was found are of runs that mostly compute. Where bytes bind,
        published runs were slower than the links that their sources name: the lower end has all
        that the profile assumes at its slowest. Raises SettingError for a range that cannot be.
        """
        if self.lacks:
            return None
        rate = slowest = self.run.images_per_second
        factor = FACTOR * (STEP_FACTOR if self.step_from is StepFrom.FLOPS else 1)
        slow = Point.of(at_slowest(self.point))
        if self.point.workers > 1 and slow.config.key != self.point.config.key:
            slowest = timed_run(slow, self.steps, sized_workload(slow)).images_per_second
        return min(rate, slowest) / factor, rate * factor

    @property
    def step_from(self) -> StepFrom:
        if self.cluster.assumes_rate_of(self.point.workload):
            return StepFrom.FLOPS
        if self.rate is not None:
            return StepFrom.PUBLISHED
        return StepFrom.SET if self.cluster.step_seconds is not None else StepFrom.MEASURED

    @property
    def extrapolated(self) -> bool:
        """True if the batch size is outside of those that were measured or published."""
        return not self.cluster.covers(self.point.workload, self.point.batch_size)

    @property
    def rate(self) -> StepRate | None:
        """Rate of the accelerators; None if cluster.step_seconds sets the time of a step."""
        return self.cluster.rate_of(self.point.workload)

    @property
    def rows(self) -> list[str]:
        """Ids of the published numbers to which the rate and the cluster's profile were fitted."""
        return [*(self.rate.rows if self.rate else ()), *self.cluster.fitted_to]


def predict(config: PointConfig, steps: int, swept: Mapping[str, str] | None = None) -> Prediction:
    """Predict the throughput of a point from `steps` virtual steps of every worker.

    `swept`: as in Prediction. Raises SettingError for a cluster that is not modelled, or one step.
    """
    if steps < 2:
        raise SettingError("steps", f"{steps} are too few for a rate")
    config = with_network(config)
    point = Point.of(config)
    workload = sized_workload(point)
    run = timed_run(point, steps, workload)
    return Prediction(point, run, swept or {}, steps)


def at_slowest(point: Point) -> PointConfig:
    """Return the configuration of a point with all that its profile assumes at its slowest, and
    with one server for asynchronous pushes, since no published number shows that more are faster.

    A bandwidth that the user chose, outside of the range, is divided as the greatest one would be.
    Raises SettingError for an unknown setting, and for a range whose start is above its end.
    """
    values = copy.deepcopy(dict(point.config.values["cluster"]))
    assert isinstance(point.cluster, VirtualCluster)
    for setting, (low, high) in point.cluster.assumed.items():
        if low > high:
            raise SettingError("cluster.assumed", f"{setting}: {low:g} is above {high:g}")
        group: Any = values
        *parents, leaf = setting.split(".")
        for parent in parents:
            group = group.get(parent) if isinstance(group, dict) else None
        if not isinstance(group, dict) or leaf not in group:
            raise SettingError("cluster.assumed", f"there is no cluster.{setting}")
        chosen = in_bytes_per_second(group[leaf])  # None: a link without a limit
        if chosen is None:
            continue
        inside = low <= chosen <= high
        if leaf.endswith("bandwidth"):  # a lower one is slower
            group[leaf] = low if inside else chosen * low / high
        elif inside:  # a longer time is slower
            group[leaf] = high
    scheme: Any = point.config.values["scheme"]
    if point.scheme.servers > 1 and _is_asynchronous(point):
        scheme = {**scheme, "servers": 1}
    return point.config.replaced(cluster=values, scheme=scheme)


def _is_asynchronous(point: Point) -> bool:
    """Return True if workers push when they are ready, so that pushes come one by one."""
    return Counts(point.scheme, point.workers).expected_staleness > 0


def check_links(config: PointConfig) -> None:
    """Raise SettingError for a modelled link below 1 Mb/s, which is a number without its unit."""
    cluster: Any = config.values["cluster"]
    for name in ("link", "node_link", "allreduce_link"):
        rate = (cluster.get(name) or {}).get("bandwidth")
        if isinstance(rate, int | float) and rate < _LEAST_BANDWIDTH:
            message = f"{rate:g} is {rate:g} bytes/s, less than 1 Mb/s; give a unit, as in 100Gb/s"
            raise SettingError(f"cluster.{name}.bandwidth", message)


def timed_run(point: Point, steps: int, workload: AbstractWorkload | None = None) -> TimedRun:
    """Run `steps` steps of every worker of a point on the virtual clock, without training.

    `workload`: network whose sizes the messages have, by default the point's own. Raises
    SettingError for a cluster that is not modelled, and for too few steps.
    """
    num_steps = whole_rounds(point.scheme, point.workers, steps)
    run = simulate_point(point, num_steps, workload=workload).completed()
    ends = [np.array(worker.step_ends) for worker in run.workers]
    rate = images_per_second(ends, point.batch_size, point.measurement.warmup_fraction)
    if rate is None:
        raise SettingError("steps", f"{steps} are too few for a rate")
    total = sum(float(end[-1]) for end in ends if len(end))
    communicating = sum(worker.seconds_communicating for worker in run.workers)
    waiting = min(communicating, sum(worker.seconds_waiting for worker in run.workers))
    busy, seconds = run.busy_seconds(), run.kernel.now
    name = max(busy, key=lambda each: busy[each]) if any(busy.values()) else "nothing"
    servers = run.report().servers
    return TimedRun(
        images_per_second=rate,
        computing=1 - communicating / total,
        exchanging=(communicating - waiting) / total,
        waiting=waiting / total,
        staleness=Counter(stale for server in servers[:1] for _, stale in server.applied),
        busiest=(name, busy.get(name, 0.0) / seconds),
    )


def simulate_point(
    point: Point,
    num_steps: int,
    snapshot_samples: Sequence[int] = (),
    workload: AbstractWorkload | None = None,
) -> Simulation:
    """Return a point's run of `num_steps` steps of all workers, to be read to its end.

    `snapshot_samples`: as in RunSpec. `workload`: as in `timed_run`. Raises SettingError for a
    cluster that is not modelled, and for more servers than pushes.
    """
    cluster = point.cluster
    if not isinstance(cluster, VirtualCluster):
        name = point.config.names["cluster"]
        raise SettingError("cluster", f"{name} is not modelled; choose a profile, as cluster=titan")
    step_times = cluster.step_times(point.batch_size, point.seed, point.workload)
    assert step_times is not None
    traffic = None
    if point.placement.shuffle_every is not None:
        from paceline.run.open_data import open_data  # Lightning takes seconds
        from paceline.run.placed_data import reading_of

        traffic = open_data(point.data.build(), reading_of(point)).traffic
    run = RunSpec(
        num_workers=point.workers,
        batch_size=point.batch_size,
        num_steps=num_steps,
        snapshot_samples=snapshot_samples,
        seed=point.seed,
        workload=workload or sized_workload(point),
        traffic=traffic,
        split_step=split_step_of(point, point.model.build, lambda: declared_shape(point)),
    )
    Counts(point.scheme, point.workers).check_servers(num_steps)
    return Simulation(point.scheme, run, cluster.profile, step_times)


def whole_rounds(scheme: AbstractScheme, workers: int, steps: int) -> int:
    """Return the steps of all workers in whole rounds with at least `steps` of each worker."""
    batches = Counts(scheme, workers).batches_per_round
    return math.ceil(steps * workers / batches) * batches


def sized_workload(point: Point) -> AbstractWorkload:
    """Return the point's workload; sizes that it does not give are those of the model."""
    workload = point.workload
    of_model = isinstance(workload, SizedNetwork) and not workload.tensors
    if workload.name != OWN and not of_model:
        return workload
    model = point.model.build()
    size = 8 if point.training.precision == "64-true" else 4  # bytes of a weight on the wire
    statistics = sum(each.numel() for each in model.buffers() if each.is_floating_point())
    tensors = [weight.numel() for weight in model.parameters()]
    if isinstance(workload, SizedNetwork):
        return replace(workload, tensors=tensors)
    return workload.of_size(size * sum(tensors), size * statistics, tensors)
