"""Pairwise means on the virtual clock: a message to the partner, the mean there, a message back."""

from collections.abc import Callable, Sequence
from functools import partial

from paceline.timing.profile import ClusterProfile
from paceline.virtual_clock.events import EventQueue
from paceline.virtual_clock.network import VirtualNetwork
from paceline.virtual_clock.replicas import Replicas
from paceline.virtual_clock.worker import VirtualWorker


class Pairing:
    """`answered(worker)` is called when the mean that the worker asked for is back.

    Both hold it from the message's arrival at the partner on: nobody is asked who waits for an
    answer. Answering costs the partner no time.
    """

    def __init__(
        self,
        replicas: Replicas,
        workers: Sequence[VirtualWorker],
        *,
        profile: ClusterProfile,
        events: EventQueue,
        answered: Callable[[VirtualWorker], None],
    ) -> None:
        self._replicas, self._workers = replicas, workers
        self._network = VirtualNetwork(profile, len(workers), servers=0)
        self._events, self._answered = events, answered

    def ask(self, worker: VirtualWorker, partner: int) -> None:
        other = self._workers[partner]
        self._send(worker, other, partial(self._take, worker, other), waiting=worker)

    def _take(self, worker: VirtualWorker, partner: VirtualWorker) -> None:
        if partner.computing:
            partner.weights = self._replicas.keep(partner.index)
        self._replicas.average(worker.index, partner.index)
        worker.averages.append((worker.finished, partner.index))
        partner.averages.append((partner.finished, worker.index))
        self._send(partner, worker, partial(self._answered, worker), waiting=worker)

    def _send(
        self,
        sender: VirtualWorker,
        receiver: VirtualWorker,
        then: Callable[[], None],
        *,
        waiting: VirtualWorker,
    ) -> None:
        """The weights of one, to another."""
        now, size = self._events.now, self._replicas.of[sender.index].weights.vector.nbytes
        sender.bytes_sent += size
        receiver.bytes_received += size
        passage = self._network.pass_on(now, sender.index, receiver.index, size)
        waiting.spend("wait", now, passage.start)
        waiting.spend("communicate", *passage)
        self._events.plan(passage.end, then)
