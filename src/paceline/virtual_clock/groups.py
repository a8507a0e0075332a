"""Workers that push as one on the virtual clock: by way of the first of their group."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.virtual_clock.buffers import Buffer, BufferPool
from paceline.virtual_clock.events import EventQueue
from paceline.virtual_clock.network import VirtualNetwork
from paceline.virtual_clock.station import Station
from paceline.virtual_clock.worker import VirtualWorker


class Groups:
    """`push(first)` is called when the message of the first of a group is the group's mean, and
    `answered(worker, weights, granted)` for each of the group when what it was answered is there.

    Inside a node a message is work of the group's first, as at a server.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        workers: Sequence[VirtualWorker],
        *,
        profile: ClusterProfile,
        network: VirtualNetwork,
        events: EventQueue,
        pool: BufferPool,
        push: Callable[[VirtualWorker], None],
        answered: Callable[[VirtualWorker, Buffer, bool], None],
    ) -> None:
        self._scheme, self._workers = scheme, workers
        self._accounting = Accounting(scheme, len(workers))
        self._profile, self._network = profile, network
        self._events, self._pool = events, pool
        self._push, self._answered = push, answered
        firsts = self._accounting.pushing
        self._stations = {first: Station(events) for first in firsts}
        self._sums: dict[int, Buffer] = {}
        self._since: dict[int, float] = {}  # its message has come to the first of its group
        self._missing = dict.fromkeys(firsts, scheme.group_size)

    def of(self, worker: VirtualWorker) -> list[VirtualWorker]:
        return [self._workers[index] for index in self._accounting.group_of(worker.index)]

    def statistics(self, first: VirtualWorker) -> Tensor:
        """Of the group: the mean, while its push is not answered."""
        return torch.stack([each.statistics.vector for each in self.of(first)]).mean(0)

    def bring(self, worker: VirtualWorker) -> None:
        """Its message, which is its gradient."""
        first = self.of(worker)[0]
        if worker is first:
            self._take(worker)
        else:
            size = worker.statistics.vector.nbytes + _gradient(worker).vector.nbytes
            self._send(worker, first, size, partial(self._take, worker))

    def hand_on(self, first: VirtualWorker, weights: Buffer, granted: bool) -> None:
        """The first itself goes on when it has sent the others theirs."""
        for other in self.of(first)[1:]:
            arrive = partial(self._answered, other, self._pool.share(weights), granted)
            self._send(first, other, weights.vector.nbytes, arrive)
        self._stations[first.index].do(0, lambda begun: self._answered(first, weights, granted))

    def _take(self, worker: VirtualWorker) -> None:
        first, gradient = self.of(worker)[0], _gradient(worker)
        self._since[worker.index] = self._events.now
        worker.gradient = worker.message = None
        self._sums[first.index] = self._pool.add(self._sums.get(first.index), gradient)
        self._missing[first.index] -= 1
        if not self._missing[first.index]:
            self._push_mean(first)

    def _push_mean(self, first: VirtualWorker) -> None:
        self._missing[first.index] = self._scheme.group_size
        first.gradient = self._sums.pop(first.index)
        first.message = first.gradient.vector.div_(self._scheme.group_size)
        first.spend("wait", self._since.pop(first.index), self._events.now)
        self._push(first)

    def _send(
        self,
        sender: VirtualWorker,
        receiver: VirtualWorker,
        num_bytes: int,
        then: Callable[[], None],
    ) -> None:
        """One of them is the first of the group; the other waits for it."""
        first, other = sorted((sender, receiver), key=lambda worker: worker.index)
        since = self._since.pop(other.index, self._events.now)
        sender.bytes_sent += num_bytes
        receiver.bytes_received += num_bytes
        node_of = self._profile.node_of
        if node_of(first.index) == node_of(other.index):
            seconds = self._profile.node_link.seconds(num_bytes)
            done = partial(self._arrive, other, since, then)
            self._stations[first.index].do(seconds, done)
            return
        now = self._events.now
        passage = self._network.pass_on(now, sender.index, receiver.index, num_bytes)
        self._events.plan(passage.end, partial(self._arrive, other, since, then, passage.start))

    def _arrive(
        self, other: VirtualWorker, since: float, then: Callable[[], None], begun: float
    ) -> None:
        other.spend("wait", since, begun)
        other.spend("communicate", begun, self._events.now)
        then()


def _gradient(worker: VirtualWorker) -> Buffer:
    assert worker.gradient is not None
    assert worker.message is worker.gradient.vector
    return worker.gradient
