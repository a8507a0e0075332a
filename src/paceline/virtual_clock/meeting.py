"""Where all workers meet: the mean of what they bring, and how long its all-reduce takes."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from paceline.exchange.schedule.volume import Volume
from paceline.virtual_clock.buffers import Buffer, BufferPool
from paceline.virtual_clock.events import EventQueue
from paceline.virtual_clock.worker import VirtualWorker

BUCKET_BYTES = 25 * 2**20  # of DistributedDataParallel: what is reduced at once
BACKWARD_SHARE = 2 / 3  # of a step's compute; backward does two products for each of forward's


class Brought(NamedTuple):
    """When a worker's backward ended, and how long its compute took [virtual seconds].

    `overlapped`: it is the step's gradient, which can be reduced while backward goes on.
    """

    computed_at: float
    compute_seconds: float
    overlapped: bool


def allreduce_end(
    brought: Sequence[Brought], num_bytes: int, seconds: Callable[[int], float]
) -> float:
    """When an all-reduce of `num_bytes` is over; `seconds(num_bytes)`: what one takes alone.

    Gradients go as under DDP: buckets become ready evenly over backward, the last one at its end;
    each is reduced when every worker has it and the one before is done.
    """
    overlapped = all(each.overlapped for each in brought)
    buckets = max(1, math.ceil(num_bytes / BUCKET_BYTES)) if overlapped else 1
    done = 0.0
    for bucket in range(1, buckets + 1):
        left = BACKWARD_SHARE * (1 - bucket / buckets)
        ready = max(each.computed_at - left * each.compute_seconds for each in brought)
        done = max(ready, done) + seconds(num_bytes // buckets)
    return done


class Meeting:
    """Adds up in what came first, in the order of arrival: one vector, however many workers.

    `seconds(num_bytes)`: what an all-reduce takes; `volumes(num_elements)`: what each worker sends
    and receives in it. `met(mean)` is called when it is over; the mean is valid until that returns.
    """

    def __init__(
        self,
        pool: BufferPool,
        workers: Sequence[VirtualWorker],
        *,
        seconds: Callable[[int], float],
        volumes: Callable[[int], Sequence[Volume]],
        events: EventQueue,
        met: Callable[[Tensor], None],
    ) -> None:
        self._pool, self._workers, self._seconds = pool, workers, seconds
        self._events, self._met, self._volumes = events, met, volumes
        self._sum: Buffer | None = None
        self._brought: list[Brought] = []

    def bring(self, worker: VirtualWorker, value: Tensor) -> None:
        """All meet when the last one has brought its own."""
        overlapped = worker.gradient is not None and value is worker.gradient.vector
        self._brought.append(Brought(worker.computed_at, worker.compute_seconds, overlapped))
        volume = self._volumes(value.numel())[worker.index]
        sent, received = volume.in_bytes(value.element_size())
        worker.bytes_sent += sent
        worker.bytes_received += received
        own = worker.give_gradient() if overlapped else self._pool.copy(value)
        self._sum = self._pool.add(self._sum, own)
        worker.let_go_of_gradient(self._pool)
        if len(self._brought) == len(self._workers):
            now, end = self._events.now, allreduce_end(self._brought, value.nbytes, self._seconds)
            self._events.plan(max(end, now), partial(self._meet, now))

    def _meet(self, complete_at: float) -> None:
        assert self._sum is not None
        for worker in self._workers:
            worker.spend("wait", worker.computed_at, complete_at)
            worker.spend("communicate", complete_at, self._events.now)
        count = len(self._workers)
        self._met(self._sum.vector.div_(count) if count > 1 else self._sum.vector)
        self._pool.release(self._sum)
        self._sum = None
        self._brought = []
