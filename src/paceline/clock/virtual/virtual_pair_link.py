"""Pairwise means on the virtual clock: a message to the partner, the mean there, a message back."""

from paceline.clock.links import Process
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.shared_state import SharedStates
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.scheme.audit import Averaged


class VirtualPairLink:
    """Link of all workers for pairwise means.

    Messages pass beside the computing of both workers, and answering costs the partner no time.
    """

    def __init__(self, parts: ClockParts, states: SharedStates) -> None:
        self._states, self._workers, self._pool = states, parts.workers, parts.pool
        self._network, self._sizes = parts.network, parts.sizes

    def pair(self, worker: VirtualWorker, partner_index: int) -> Process[None]:
        """Average the worker's weights as they are now with the partner's when it has them."""
        partner, sent_after = self._workers[partner_index], worker.num_steps
        sent = self._pool.copy(self._states.of[worker.index].weights.vector)
        yield from self._send(worker, partner)
        change = self._states.average(self._before_change(partner), sent.vector)
        taken = partner.num_steps
        partner.averages.append(Averaged(worker.index, taken, taken))
        yield from self._send(partner, worker)
        self._states.add(self._before_change(worker), change)
        self._pool.release(sent)
        worker.averages.append(Averaged(partner_index, sent_after, worker.num_steps))

    def _before_change(self, worker: VirtualWorker) -> int:
        """Keep the weights on which a worker is computing; return its number."""
        if worker.computing:
            worker.weights = self._states.keep(worker.index)
        return worker.index

    def _send(self, sender: VirtualWorker, receiver: VirtualWorker) -> Process[None]:
        """Send the sender's weights to the receiver."""
        size = self._sizes.weights(self._states.of[sender.index].weights.vector.nbytes)
        sender.bytes_sent += size
        receiver.bytes_received += size
        yield from self._network.pass_on(sender.index, receiver.index, size)
