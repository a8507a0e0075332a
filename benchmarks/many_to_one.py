"""Many senders to one receiver over shaped links, real processes: seconds against the model's.

Asynchronous workers are answered one by one; synchronous ones when all have pushed. They compute
nothing, so that the server's link is busy all the time. The third way is the collective
`parameter_server`. Each row is the worst of all numbers of senders.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.config import point_of
from benchmarks.row import row
from paceline.clock.run_spec import RunSpec
from paceline.cluster.namespaces import BURST_SECONDS, shaped_network
from paceline.exchange.collectives import collective
from paceline.exchange.group_wire import GroupWire
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.frame import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.prediction.predict import timed_clock
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import SizedNetwork
from papers.predict_points import UNEVENNESS
from tests.launching import launch

ASYNCHRONOUS, SYNCHRONOUS = "async_parameter_server", "sync_parameter_server"
WAYS = (SYNCHRONOUS, ASYNCHRONOUS, "parameter_server")
MOST = 16
SENDERS = (1, 2, 4, 8, MOST)
FEW = (1, MOST)
# link [bytes/s], bytes of a message, numbers of senders
SLOW = tuple((2.5e7, size, SENDERS) for size in (30_000, 300_000, 3_000_000))
FAST = (*((1.25e8, size, SENDERS) for size in (3_000_000, 30_000_000)), (1.25e8, 100_000_000, FEW))
NAMES = {2.5e7: "200 Mbit/s", 1.25e8: "1 Gbit/s"}
SECONDS, FEWEST, MOST_ROUNDS = 1.5, 2, 25  # of a case; rounds that count
TO_SETTLE = 10  # rounds at least, in which asynchronous workers stop to push all at once
SHORT_QUEUE = 0.001  # seconds: 125 kB at 1 Gbit/s


class Case(NamedTuple):
    """`senders` workers exchange messages of `num_bytes` with one other process, `rounds` times."""

    way: str
    senders: int
    num_bytes: int
    rounds: int


def rows() -> Iterator[dict[str, Any]]:
    for cases in (SLOW, FAST):
        yield from _of_link(cases)
    yield from _of_short_queue()


def _of_link(cases: Any) -> Iterator[dict[str, Any]]:
    bandwidth = cases[0][0]
    asked = [
        Case(way, senders, size, _rounds(way, senders * size / bandwidth))
        for way in WAYS
        for _, size, counts in cases
        for senders in counts
    ]
    latency, found = _measured(asked, bandwidth)
    for way in WAYS:
        for _, size, counts in cases:
            of_size = [each for each in asked if each.way == way and each.num_bytes == size]
            pairs = [(found[e], _predicted(e, bandwidth, latency), e.senders) for e in of_size]
            ours, theirs, at = max(pairs, key=lambda pair: abs(np.log(pair[0] / pair[1])))
            of = f"{_size(size)} over {NAMES[bandwidth]}, {', '.join(map(str, counts))} senders"
            name = f"{way}, {of}: seconds of an exchange / predicted, worst at {at}"
            ratio = ours / theirs
            yield row(name, ours, theirs, "s", ratio, "0.85 to 1.15", 0.85 <= ratio <= 1.15)


def _of_short_queue() -> Iterator[dict[str, Any]]:
    """Show what a queue of a millisecond does, as short as a switch's: TCP waits 200 ms at times
    for packets that are dropped.
    """
    bandwidth, size = 1.25e8, 300_000
    asked = [Case(SYNCHRONOUS, senders, size, 100) for senders in (4, MOST)]
    latency, found = _measured(asked, bandwidth, SHORT_QUEUE)
    for each in asked:
        theirs = _predicted(each, bandwidth, latency)
        ratio = found[each] / theirs
        name = f"{each.senders} x {_size(size)}, and a queue of 1 ms: the same"
        yield row(name, found[each], theirs, "s", ratio, "shown", True)


def _rounds(way: str, seconds: float) -> int:
    fewest = TO_SETTLE if way == ASYNCHRONOUS else FEWEST
    return int(np.clip(SECONDS / seconds, fewest, MOST_ROUNDS))


def _size(num_bytes: int) -> str:
    return f"{num_bytes // 1000} KB" if num_bytes < 1e6 else f"{num_bytes // 10**6} MB"


def _predicted(case: Case, bandwidth: float, latency: float) -> float:
    link = Link(latency, bandwidth, UNEVENNESS)
    profile = ClusterProfile(link, link, 1, 0.0, float("inf"))
    if case.way == "parameter_server":
        seconds = collective(case.way).seconds(case.num_bytes, case.senders + 1, profile)
    else:
        clock = timed_clock(
            point_of(f"scheme={case.way}", f"workers={case.senders}", "batch_size=1").scheme,
            RunSpec(case.senders, workload=SizedNetwork(num_bytes=case.num_bytes)),
            profile=profile,
            step_times=StepTimes(step_seconds=1e-9),
            steps=case.rounds + 1,
        )
        seconds = _mean_step([worker.step_ends for worker in clock.workers])
    # A bucket passes a burst at once when its link was idle, as one way is while the other is not.
    idle = case.way != ASYNCHRONOUS or case.senders == 1
    return seconds - 2 * BURST_SECONDS * idle


def _mean_step(ends: Sequence[Sequence[float]]) -> float:
    """Return the mean seconds of a step after the first, over workers, by the `ends` of steps."""
    return fmean((each[-1] - each[0]) / (len(each) - 1) for each in ends)


def _measured(
    asked: list[Case], bandwidth: float, queue_seconds: float = 1
) -> tuple[float, Mapping[Case, float]]:
    """Return the latency of a message, and the seconds of an exchange in each case."""
    tiny = Case(ASYNCHRONOUS, 1, 4, 200)
    with (
        shaped_network(MOST + 1, bandwidth, queue_seconds) as network,
        tempfile.TemporaryDirectory() as logs,
    ):
        seen = launch(
            f"{__name__}:exchange",
            ([tiny, *asked],),
            workers=MOST,
            servers=1,
            log_folder=Path(logs),
            address=network.address,
            namespaces=network.namespaces,
        )
    found = {
        case: _of_exchanges(case, [each[case] for each in seen if each[case]])
        for case in (tiny, *asked)
    }
    return found[tiny] / 2, found


def _of_exchanges(case: Case, seen: list[list[tuple[float, float]]]) -> float:
    """Return the seconds of an exchange, from its `seen` beginnings and ends by process."""
    times = np.array(seen)  # [processes, exchanges, begin and end]
    if case.way == "parameter_server":
        return float(np.median(times[:, 1:, 1].max(0) - times[:, 1:, 0].max(0)))
    return _mean_step(times[:, :, 1].tolist())


def exchange(asked: list[Case]) -> dict[Case, list[tuple[float, float]]]:
    """Return when this process began and ended each exchange of each case, on one clock."""
    torch.set_num_threads(1)
    join(300, "cpu")
    groups = {count: dist.new_group([*range(count), MOST]) for count in SENDERS}
    found = {}
    for case in asked:
        dist.barrier()
        found[case] = _exchange(case, groups[case.senders])
    leave()
    return found


def _exchange(case: Case, group: Any) -> list[tuple[float, float]]:
    rank = dist.get_rank()
    if case.senders <= rank < MOST:
        return []
    if case.way == "parameter_server":
        return _sum(case, group)
    return _serve(case) if rank == MOST else _push(case)


def _sum(case: Case, group: Any) -> list[tuple[float, float]]:
    wire, vector, found = GroupWire(group), torch.zeros(case.num_bytes // 4), []
    for _ in range(case.rounds + 1):
        dist.barrier(group)
        begun = time.perf_counter()
        wire.all_reduce(vector, collective(case.way))
        found.append((begun, time.perf_counter()))
    return found


def _push(case: Case) -> list[tuple[float, float]]:
    wire = WorkerWire([(0, case.num_bytes // 4)], 0, torch.float32, MOST)
    wire.pull()
    found = []
    for _ in range(case.rounds + 1):
        begun = time.perf_counter()
        wire.push_pull()
        found.append((begun, time.perf_counter()))
    wire.leave()
    return found


def _serve(case: Case) -> list[tuple[float, float]]:
    wire = ServerWire(torch.zeros(case.num_bytes // 4), 0, range(case.senders))
    left, waiting = case.senders, [*range(case.senders)]
    while left:
        if case.way == ASYNCHRONOUS or len(waiting) == case.senders:
            for worker in waiting:
                wire.answer(worker, Header(0, True))
            waiting = []
        worker, header = wire.receive()
        if header.proceed:
            waiting.append(worker)
        else:
            left -= 1
    return []
