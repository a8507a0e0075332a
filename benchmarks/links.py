"""Collectives and parameter servers over shaped links, a worker or server on each node: seconds,
against the formula of the bytes that the busiest link carries, and against `paceline predict`.

The vector is GoogLeNet's gradient, 54 MB. Over 1 Gbit/s cores have their part in it: measure where
nothing else runs.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.config import ROOT, point_of
from benchmarks.exchange_turns import Asked, measure_exchanges
from benchmarks.row import row
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.simulation import Simulation
from paceline.cluster.supervisor import Task
from paceline.cluster.virtual import VirtualCluster
from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.exchange.process_group import join, leave
from paceline.exchange.shard import shard_bounds
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.prediction.predict import whole_rounds
from paceline.record.point import Point
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import OwnNetwork
from papers.predict_points import emulating

NUM_BYTES = 54_000_000
LINKS = {"100 Mbit/s": 1.25e7, "1 Gbit/s": 1.25e8}
WORKERS, SERVERS = (2, 4), (1, 2, 4)
TURNS, STEPS = 3, 4
RUNS = {"100 Mbit/s": 1, "1 Gbit/s": 3}  # of servers: where steps are short, chance tells in one
SCHEMES = ("async_parameter_server", "sync_parameter_server")
NEAR = (0.75, 1.25)
MODELLED = "two_cores_paced"  # by which studies of shaped links are predicted


def rows() -> Iterator[dict[str, Any]]:
    for link in LINKS:
        before = os.getloadavg()[0]
        for workers in WORKERS:
            yield from _collectives(workers, link)
        for workers in WORKERS:
            for servers in SERVERS:
                for scheme in SCHEMES:
                    yield from _servers(scheme, workers, servers, link)
        after, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        name = f"load average of the machine over {link}, after / before"
        yield row(name, after, before, f"on {cores} cores", after / before, "shown", True)


def _collectives(workers: int, link: str) -> Iterator[dict[str, Any]]:
    point = _point("sync_allreduce", workers, link)
    asked = [Asked(name, NUM_BYTES // 4) for name in COLLECTIVES]
    profile = _profile(point)
    for each, found in zip(
        asked, measure_exchanges(point.cluster, workers, asked, TURNS), strict=True
    ):
        name, seconds = each.collective, median(found.seconds)
        predicted = collective(name).seconds(NUM_BYTES, workers, profile)
        formula = _formula(name, workers) / LINKS[link]
        yield _near(f"{name}, {workers} nodes, 54 MB over {link} / formula", seconds, formula)
        yield _near("  / predicted", seconds, predicted)


def _servers(scheme: str, workers: int, servers: int, link: str) -> Iterator[dict[str, Any]]:
    point = _point(scheme, workers, link, f"scheme.servers={servers}")
    together = scheme == SCHEMES[1]
    seconds = median(_run(point, workers, servers, together) for _ in range(RUNS[link]))
    run = RunSpec(
        workers,
        num_steps=whole_rounds(point.scheme, workers, STEPS),
        workload=OwnNetwork().of_size(NUM_BYTES, 0),
    )
    times = StepTimes(step_seconds=1e-9)
    clock = Simulation(point.scheme, run, _profile(point), times).completed()
    predicted = fmean(_step(worker.step_ends) for worker in clock.workers)
    there_and_back = 2 if together else 1  # of what all workers push to a server
    passed = max(2.0, there_and_back * workers / servers) * NUM_BYTES / LINKS[link]
    name = f"step of {workers} x {scheme}, {servers} servers, 54 MB over {link}"
    yield row(f"{name} / formula", seconds, passed, "s", seconds / passed, "shown", True)
    yield _near("  / predicted", seconds, predicted)


def _run(point: Point, workers: int, servers: int, together: bool) -> float:
    """Return the mean seconds of a step of all workers."""
    with tempfile.TemporaryDirectory() as folder:
        target, arguments = f"{__name__}:exchange", (workers, servers, together)
        returned = point.cluster.run(Task(target, arguments, workers, servers, Path(folder)))
    return fmean(returned[:workers])


def _near(name: str, ours: float, theirs: float) -> dict[str, Any]:
    ratio, (least, most) = ours / theirs, NEAR
    return row(name, ours, theirs, "s", ratio, f"{least} to {most}", least <= ratio <= most)


def _formula(name: str, workers: int) -> float:
    """Bytes that pass the busiest link one after the other, a worker on each node."""
    one_byte_a_second = ClusterProfile(Link(0, 1), Link(0, 1), 1, 0, 1)
    return collective(name).link_seconds(NUM_BYTES, workers, one_byte_a_second)


def _profile(point: Point) -> ClusterProfile:
    """Return the cluster by which the point is predicted, on which nobody computes."""
    modelled = composed([f"cluster={MODELLED}"], ROOT).values["cluster"]
    values = emulating(modelled, point.config.values["cluster"], point.workers)
    return replace(Target("cluster", values).build_as(VirtualCluster).profile, shared_cores=None)


def _point(scheme: str, workers: int, link: str, *more: str) -> Point:
    return point_of(
        f"scheme={scheme}",
        f"workers={workers}",
        "cluster=shaped_nodes",
        "cluster.accelerator=cpu",
        f"cluster.link.bandwidth={LINKS[link]}",
        *more,
    )


def exchange(workers: int, servers: int, together: bool) -> float:
    """Push and pull in each worker; return the seconds of a step. Servers answer each by itself, or
    all together.
    """
    torch.set_num_threads(1)
    join(600, "cpu")
    rank, bounds = dist.get_rank(), shard_bounds(NUM_BYTES // 4, servers)
    seconds = 0.0
    if rank < workers:
        seconds = _push(WorkerWire(bounds, 0, torch.float32, workers, begins_with=rank))
    else:
        first, last = bounds[rank - workers]
        _serve(ServerWire(torch.zeros(last - first), 0, range(workers)), workers, together)
    leave()
    return seconds


def _push(wire: WorkerWire) -> float:
    wire.pull()
    ends = []
    for _ in range(STEPS):
        wire.push_pull()
        ends.append(time.perf_counter())
    wire.leave()
    return _step(ends)


def _step(ends: list[float]) -> float:
    """Return the mean duration of a worker's steps but for the first."""
    return fmean(after - before for before, after in pairwise(ends))


def _serve(wire: ServerWire, workers: int, together: bool) -> None:
    for worker in range(workers):
        wire.answer(worker, Header(0, True))
    waiting, left = [], workers
    while left:
        worker, message = wire.receive()
        assert isinstance(message, Header)
        left -= not message.proceed
        waiting += [worker] if message.proceed else []
        if len(waiting) == (workers if together else 1):
            for each in waiting:
                wire.answer(each, Header(0, True))
            waiting = []
    wire.flush()
