"""Where all workers meet: the mean of what they bring, and how long its all-reduce takes."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from paceline.cluster.virtual.buffers import Buffer, BufferPool

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

    `seconds(num_bytes)`: what an all-reduce takes.
    """

    def __init__(self, pool: BufferPool, workers: int, seconds: Callable[[int], float]) -> None:
        self._pool, self._workers, self._seconds = pool, workers, seconds
        self._sum: Buffer | None = None
        self._brought: list[Brought] = []

    def bring(self, value: Buffer, about: Brought) -> float | None:
        """When the mean is there, if all are here now. `value` is the meeting's from now on."""
        if self._sum is None:
            self._sum = value
        else:
            self._sum.vector.add_(value.vector)
            self._pool.release(value)
        self._brought.append(about)
        if len(self._brought) < self._workers:
            return None
        return allreduce_end(self._brought, self._sum.vector.nbytes, self._seconds)

    def mean(self) -> Tensor:
        """Of all, when they are here; valid until they leave."""
        assert self._sum is not None
        return self._sum.vector.div_(self._workers) if self._workers > 1 else self._sum.vector

    def leave(self) -> None:
        assert self._sum is not None
        self._pool.release(self._sum)
        self._sum = None
        self._brought = []
