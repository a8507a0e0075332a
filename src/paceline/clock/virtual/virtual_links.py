"""Links of a worker on the virtual clock, and means over all workers."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Moment, Process
from paceline.clock.virtual.virtual_own_weights import VirtualOwnWeights
from paceline.clock.virtual.virtual_servers import VirtualServers
from paceline.clock.virtual.virtual_worker import Buffer, BufferPool, VirtualWorker
from paceline.exchange.collectives import Volume, collective
from paceline.scheme.rule import Step, next_message
from paceline.timing.workload import Bucket, share_of_step

_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Brought(NamedTuple):
    """Time at which a worker brought its value to a mean, and for how long it had computed before
    [virtual seconds]. `overlapped`: True if the value is the step's gradient, brought at the end of
    its backward, so that its first buckets can be reduced during backward.
    """

    brought_at: float
    compute_seconds: float
    overlapped: bool


def allreduce_end(
    brought: Sequence[Brought], buckets: Sequence[Bucket], seconds: Callable[[int], float]
) -> float:
    """Return the end of an all-reduce [virtual seconds]. `seconds(num_bytes)`: duration of an
    all-reduce by itself. A bucket's reduction begins, as under DDP, when every worker has computed
    the bucket and the reduction of the bucket before it has ended.
    """
    done = 0.0
    for num_bytes, share in buckets:
        left = 1 - share_of_step(share)
        ready = max(each.brought_at - left * each.compute_seconds for each in brought)
        done = max(ready, done) + seconds(num_bytes)
    return done


class VirtualMeanLink:
    """Means over all workers, with one vector for any number of workers. Values are added to the
    first one in the order of arrival. Gradients are reduced in the buckets of DDP, other values as
    a whole when the last worker has brought them. Compressed to 16 bits, they are what torch's
    hooks make of them, except that their sum is rounded only once. `busy_seconds`: virtual seconds
    in which buckets were reduced.
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
            self._volumes = partial(chosen.volumes, workers)
        self._half = _HALVES.get(parts.scheme.compression) if workers > 1 else None
        self.busy_seconds = 0.0
        self._begin_round()

    def _begin_round(self) -> None:
        self._sum: Buffer | None = None
        self._brought: dict[int, tuple[Brought, Event]] = {}  # by worker, with event of the result

    def mean(self, worker: VirtualWorker, value: Tensor) -> Process[Tensor]:
        """Wait for the values of all workers; return their mean."""
        num_bytes = self._sizes.weights(value.nbytes)
        item = value.element_size()
        volume = self._volumes(num_bytes // item)[worker.index]
        sent, received = volume.in_bytes(2 if self._half else item)
        worker.bytes_sent += sent
        worker.bytes_received += received
        now, gradient, met = self._kernel.now, worker.gradient, Event()
        own = gradient is not None and value is gradient.vector
        brought = Brought(now, worker.compute_seconds, own and now == worker.computed_at)
        self._brought[worker.index] = brought, met
        buffer = worker.give_gradient() if own else self._pool.copy(value)
        self._compress(buffer.vector)
        self._sum = self._pool.add(self._sum, buffer)
        worker.release_gradient(self._pool)
        if len(self._brought) == len(self._workers):
            self._kernel.start(self._reduce(num_bytes))
        mean = yield met
        return worker.take_answer(self._pool.share(mean), self._pool)

    def _compress(self, value: Tensor) -> None:
        if self._half:
            value.copy_(value.to(self._half))

    def _reduce(self, num_bytes: int) -> Process[None]:
        total, by_worker, complete_at = self._sum, self._brought, self._kernel.now
        assert total is not None
        self._begin_round()
        brought = [each for each, _ in by_worker.values()]
        overlapped = all(each.overlapped for each in brought)
        buckets = self._sizes.buckets() if overlapped else [Bucket(num_bytes, 1.0)]
        item = total.vector.element_size()

        def seconds(num_bytes: int) -> float:
            """Return the duration of an all-reduce of so many bytes, counted uncompressed."""
            return self._seconds(num_bytes // item * 2 if self._half else num_bytes)

        self.busy_seconds += sum(seconds(bucket.num_bytes) for bucket in buckets)
        yield Moment(allreduce_end(brought, buckets, seconds))
        if len(brought) > 1:
            total.vector.div_(len(brought))
        self._compress(total.vector)
        for worker in self._workers:
            own, met = by_worker[worker.index]
            worker.spend("wait", own.brought_at, complete_at)
            worker.spend("communicate", complete_at, self._kernel.now)
            self._kernel.happen(met, total)
        yield None  # every worker has taken its share
        self._pool.release(total)


class VirtualNeighbourLink:
    """Means of a worker and some others, whose values are messages from worker to worker."""

    def __init__(self, parts: ClockParts) -> None:
        self._parts, self._workers = parts, parts.workers
        self._sent: dict[tuple[int, int, int], Event] = {}  # by sender, receiver, step: arrival

    def mean(
        self, worker: VirtualWorker, value: Tensor, receivers: Sequence[int], senders: Sequence[int]
    ) -> Process[Tensor]:
        """Send `value` to `receivers`; wait for those of `senders`; return the mean."""
        pool, kernel, step = self._parts.pool, self._parts.kernel, worker.num_steps
        total, begun = pool.copy(value), kernel.now
        last_sent = begun
        for receiver in receivers:
            kernel.start(self._send(worker, self._workers[receiver], pool.copy(value)))
        for sender in senders:
            theirs, sent = yield self._arrival(sender, worker.index, step)
            last_sent = max(last_sent, sent)
            del self._sent[sender, worker.index, step]
            total = pool.add(total, theirs)
        worker.spend("wait", begun, last_sent)
        worker.spend("communicate", last_sent, kernel.now)
        total.vector.div_(1 + len(senders))
        return worker.take_answer(total, pool)

    def _send(self, sender: VirtualWorker, receiver: VirtualWorker, value: Buffer) -> Process[None]:
        size, step = self._parts.sizes.weights(value.vector.nbytes), sender.num_steps
        kernel, sent = self._parts.kernel, self._parts.kernel.now
        sender.bytes_sent += size
        receiver.bytes_received += size
        yield from self._parts.network.pass_on(sender.index, receiver.index, size)
        kernel.happen(self._arrival(sender.index, receiver.index, step), (value, sent))

    def _arrival(self, sender: int, receiver: int, step: int) -> Event:
        return self._sent.setdefault((sender, receiver, step), Event())


class VirtualLinks:
    """Links of one worker. They have a method for each message of its rule, named by the message's
    `verb`, which returns the answer, or a process that does and waits for events of the virtual
    clock. The answer is valid until the rule of this step ends.

    `means`, `neighbours`, `servers`, `own`: links for means, to other workers and to servers, and
    own weights of all workers; None for what the scheme does not use.
    """

    def __init__(
        self,
        worker: VirtualWorker,
        pool: BufferPool,
        means: VirtualMeanLink,
        neighbours: VirtualNeighbourLink,
        servers: VirtualServers | None,
        own: VirtualOwnWeights | None,
    ) -> None:
        self.worker, self.pool, self.servers, self.own = worker, pool, servers, own
        self.mean = partial(means.mean, worker)
        self.neighbour_mean = partial(neighbours.mean, worker)
        if own is not None:
            self.pair, self.apply = partial(own.pair, worker), partial(own.apply, worker)

    def carry_out(self, rule: Step) -> Process[None]:
        """Carry out each message that a rule yields, and send it the answer."""
        answer: Any = None
        while (message := next_message(rule, answer)) is not None:
            answer = getattr(self, message.verb)(*vars(message).values())
            if isinstance(answer, Generator):
                answer = yield from cast("Process[Any]", answer)

    def push(self, value: Tensor) -> Process[Tensor]:
        worker = self.worker
        assert self.servers is not None
        worker.message = value
        if self.own is None:
            assert worker.weights is not None
            self.pool.release(worker.weights)
            worker.weights = None  # the answer replaces them
        weights, worker.granted = yield from self.servers.push(worker)
        return worker.take_answer(weights, self.pool)

    def keep(self, vectors: Sequence[Tensor]) -> None:
        before = self.worker.kept
        self.worker.kept = [self.pool.copy(vector) for vector in vectors]
        for buffer in before:
            self.pool.release(buffer)

    def kept(self, number: int) -> Sequence[Tensor]:
        return [buffer.vector for buffer in self.worker.kept]

    def adopt(self, weights: Tensor) -> None:
        worker = self.worker
        if self.own is not None:
            self.own.adopt(worker, weights)
        elif worker.answer is not None and weights is worker.answer.vector:
            worker.weights, worker.answer = worker.answer, None
        else:
            worker.weights = self.pool.copy(weights)

    def release(self) -> None:
        """Release the buffers of a step's gradient and of its answer (weights or a mean that the
        worker waited for), when the scheme's rule for this step has ended.
        """
        self.worker.release_gradient(self.pool)
        self.worker.release_answer(self.pool)
