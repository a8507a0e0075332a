"""Messages among workers in a simulated run: means over all of them, of neighbours and of pairs."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from paceline.clock.virtual.kernel import Event, Moment, Operation, Process
from paceline.clock.virtual.simulation_parts import SimulationParts
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.exchange.collectives import Volume, collective
from paceline.scheme.audit import Averaged
from paceline.timing.workload import Bucket, share_of_step


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


class Means:
    """Means over all workers. Gradients are reduced in the buckets of DDP, other values as a whole
    when the last worker has brought them. `busy_seconds`: virtual seconds in which buckets were
    reduced.
    """

    def __init__(self, parts: SimulationParts) -> None:
        self._kernel, self._workers = parts.kernel, parts.workers
        self._sizes, scheme, split = parts.sizes, parts.scheme, parts.split
        chosen, number = collective(scheme.collective), len(self._workers)
        self._seconds: Callable[[int], float]
        self._volumes: Callable[[int], Sequence[Volume]]
        if split is not None and split.by_parts:
            self._seconds, self._volumes = split.mean_seconds, split.mean_volumes
        else:
            self._seconds = partial(chosen.seconds, workers=number, profile=parts.profile)
            self._volumes = partial(chosen.volumes, number)
        halved = scheme.compression != "none" and number > 1
        self._sent_item = 2 if halved else self._sizes.item_bytes  # bytes of a number on the wire
        self.busy_seconds = 0.0
        self._brought: dict[int, tuple[Brought, Event]] = {}  # by worker, with event of the result

    def mean(self, worker: VirtualWorker, *, of_gradient: bool) -> Process[None]:
        """Wait for the values of all workers."""
        volume = self._volumes(self._sizes.weights // self._sizes.item_bytes)[worker.index]
        sent, received = volume.in_bytes(self._sent_item)
        worker.bytes_sent += sent
        worker.bytes_received += received
        now, met = self._kernel.now, Event()
        overlapped = of_gradient and now == worker.computed_at
        self._brought[worker.index] = Brought(now, worker.compute_seconds, overlapped), met
        yield Operation("bring", worker.index)
        if len(self._brought) == len(self._workers):
            yield from self._kernel.start(self._reduce())
        yield met

    def _reduce(self) -> Process[None]:
        by_worker, self._brought = self._brought, {}
        complete_at, brought = self._kernel.now, [each for each, _ in by_worker.values()]
        overlapped = all(each.overlapped for each in brought)
        buckets = self._sizes.buckets if overlapped else [Bucket(self._sizes.weights, 1.0)]

        def seconds(num_bytes: int) -> float:
            """Return the duration of an all-reduce of so many bytes, counted uncompressed."""
            return self._seconds(num_bytes // self._sizes.item_bytes * self._sent_item)

        self.busy_seconds += sum(seconds(bucket.num_bytes) for bucket in buckets)
        yield Moment(allreduce_end(brought, buckets, seconds))
        yield Operation("meet")
        for worker in self._workers:
            own, met = by_worker[worker.index]
            worker.spend("wait", own.brought_at, complete_at)
            worker.spend("communicate", complete_at, self._kernel.now)
            self._kernel.happen(met)


class Neighbours:
    """Messages from worker to worker: means of a worker and some others, and of pairs."""

    def __init__(self, parts: SimulationParts) -> None:
        self._kernel, self._workers = parts.kernel, parts.workers
        self._num_bytes, self._network = parts.sizes.weights, parts.network
        self._sent: dict[tuple[int, int, int], Event] = {}  # by sender, receiver, step: arrival
        self._pairs = itertools.count()

    def mean(
        self, worker: VirtualWorker, receivers: Sequence[int], senders: Sequence[int]
    ) -> Process[None]:
        """Send the worker's value to `receivers`, and wait for those of `senders`."""
        step, last_sent = worker.num_steps, self._kernel.now
        begun = last_sent
        yield Operation("send", worker.index, step)
        for receiver in receivers:
            yield from self._kernel.start(self._send(worker, self._workers[receiver]))
        for sender in senders:
            last_sent = max(last_sent, (yield self._arrival(sender, worker.index, step)))
            del self._sent[sender, worker.index, step]
        worker.spend("wait", begun, last_sent)
        worker.spend("communicate", last_sent, self._kernel.now)
        yield Operation("meet_neighbours", worker.index, step, tuple(senders))

    def _send(self, sender: VirtualWorker, receiver: VirtualWorker) -> Process[None]:
        step, sent = sender.num_steps, self._kernel.now
        yield from self._pass(sender, receiver)
        self._kernel.happen(self._arrival(sender.index, receiver.index, step), sent)

    def _arrival(self, sender: int, receiver: int, step: int) -> Event:
        return self._sent.setdefault((sender, receiver, step), Event())

    def pair(self, worker: VirtualWorker, partner: VirtualWorker) -> Process[None]:
        """Average the worker's present weights with those that the partner has when they arrive
        there. Messages pass beside the computing of both, and answering costs the partner no time.
        """
        sent_after, pair = worker.num_steps, next(self._pairs)
        yield Operation("ask", worker.index, pair)
        yield from self._pass(worker, partner)
        yield Operation("take_mean", partner.index, pair)
        taken = partner.num_steps
        partner.averages.append(Averaged(worker.index, taken, taken))
        yield from self._pass(partner, worker)
        yield Operation("add_change", worker.index, pair)
        worker.averages.append(Averaged(partner.index, sent_after, worker.num_steps))

    def _pass(self, sender: VirtualWorker, receiver: VirtualWorker) -> Process[None]:
        sender.exchange(receiver, self._num_bytes)
        yield from self._network.pass_on(sender.index, receiver.index, self._num_bytes)
