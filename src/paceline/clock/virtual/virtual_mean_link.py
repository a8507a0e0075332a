"""Means over all workers on the virtual clock, and the duration of their all-reduce."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from paceline.clock.links import Process
from paceline.clock.virtual.buffers import Buffer
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Moment
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.exchange.find_collective import collective
from paceline.exchange.schedule import Volume
from paceline.timing.workload import Bucket, share_of_step


class Brought(NamedTuple):
    """Time of a worker's arrival with its value, and of its compute before [virtual seconds].

    `overlapped`: True if the value is the step's gradient, brought at the end of its backward, so
    that its first buckets can be reduced during backward.
    """

    brought_at: float
    compute_seconds: float
    overlapped: bool


def allreduce_end(
    brought: Sequence[Brought], buckets: Sequence[Bucket], seconds: Callable[[int], float]
) -> float:
    """Return the end of an all-reduce [virtual seconds].

    `seconds(num_bytes)`: duration of an all-reduce by itself. A bucket is reduced, as under DDP,
    when every worker has it and the one before is done.
    """
    done = 0.0
    for num_bytes, share in buckets:
        left = 1 - share_of_step(share)
        ready = max(each.brought_at - left * each.compute_seconds for each in brought)
        done = max(ready, done) + seconds(num_bytes)
    return done


class _Round:
    """State of one mean: the sum of the values so far, and each worker's event of its result."""

    def __init__(self) -> None:
        self.sum: Buffer | None = None
        self.brought: dict[int, Brought] = {}  # by worker
        self.met: dict[int, Event] = {}


class VirtualMeanLink:
    """Means over all workers, with one vector for any number of workers.

    Values are added to the first one in the order of arrival. Gradients are reduced in the buckets
    of DDP, other values as a whole when the last worker has brought them.
    """

    def __init__(self, parts: ClockParts) -> None:
        self._pool, self._workers = parts.pool, parts.workers
        self._kernel, self._sizes = parts.kernel, parts.sizes
        workers, profile, split = parts.run.num_workers, parts.profile, parts.split
        chosen = collective(parts.scheme.collective)
        self._seconds: Callable[[int], float]
        self._volumes: Callable[[int], Sequence[Volume]]
        if split is not None and split.by_parts:
            self._seconds, self._volumes = split.mean_seconds, split.mean_volumes
        else:
            self._seconds = partial(chosen.seconds, workers=workers, profile=profile)
            room = profile.workers_per_node
            self._volumes = lambda length: chosen.volumes(workers, length, room)
        self._round = _Round()
        self._seconds_reducing = 0.0

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds in which buckets were reduced."""
        return {"all-reduce": self._seconds_reducing}

    def mean(self, worker: VirtualWorker, value: Tensor) -> Process[Tensor]:
        """Wait for the values of all workers; return their mean."""
        self._count_bytes(worker, value)
        self._bring(worker, value)
        met = self._round.met[worker.index] = Event()
        if len(self._round.met) == len(self._workers):
            complete, self._round = self._round, _Round()
            self._kernel.start(self._reduce(complete, self._sizes.weights(value.nbytes)))
        mean = yield met
        return worker.take_answer(self._pool.share(mean), self._pool)

    def _bring(self, worker: VirtualWorker, value: Tensor) -> None:
        now, gradient = self._kernel.now, worker.gradient
        own = gradient is not None and value is gradient.vector
        brought = Brought(now, worker.compute_seconds, own and now == worker.computed_at)
        self._round.brought[worker.index] = brought
        buffer = worker.give_gradient() if own else self._pool.copy(value)
        self._round.sum = self._pool.add(self._round.sum, buffer)
        worker.release_gradient(self._pool)

    def _count_bytes(self, worker: VirtualWorker, value: Tensor) -> None:
        length = self._sizes.weights(value.nbytes) // value.element_size()
        volume = self._volumes(length)[worker.index]
        sent, received = volume.in_bytes(value.element_size())
        worker.bytes_sent += sent
        worker.bytes_received += received

    def _reduce(self, complete: _Round, num_bytes: int) -> Process[None]:
        complete_at, count = self._kernel.now, len(self._workers)
        brought = list(complete.brought.values())
        overlapped = all(each.overlapped for each in brought)
        buckets = self._sizes.buckets() if overlapped else [Bucket(num_bytes, 1.0)]
        self._seconds_reducing += sum(self._seconds(bucket.num_bytes) for bucket in buckets)
        yield Moment(allreduce_end(brought, buckets, self._seconds))
        assert complete.sum is not None
        if count > 1:
            complete.sum.vector.div_(count)
        for worker in self._workers:
            worker.spend("wait", complete.brought[worker.index].brought_at, complete_at)
            worker.spend("communicate", complete_at, self._kernel.now)
            self._kernel.happen(complete.met[worker.index], complete.sum)
        yield None  # every worker has taken its share
        self._pool.release(complete.sum)
