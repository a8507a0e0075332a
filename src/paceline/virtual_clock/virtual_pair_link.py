"""Pairwise means on the virtual clock: a message to the partner, the mean there, a message back."""

from collections.abc import Sequence

from paceline.engine.links import Process
from paceline.virtual_clock.message_sizes import MessageSizes
from paceline.virtual_clock.shared_state import SharedStates
from paceline.virtual_clock.virtual_network import VirtualNetwork
from paceline.virtual_clock.virtual_worker import VirtualWorker


class VirtualPairLink:
    """Link of all workers for pairwise means.

    Both workers have the mean from the arrival of the message at the partner on. Answering costs
    the partner no time. A worker that waits for an answer is never asked itself.
    """

    def __init__(
        self,
        states: SharedStates,
        workers: Sequence[VirtualWorker],
        *,
        network: VirtualNetwork,
        sizes: MessageSizes,
    ) -> None:
        self._states, self._workers = states, workers
        self._network, self._sizes = network, sizes

    def pair(self, worker: VirtualWorker, partner_index: int) -> Process[None]:
        """Replace the worker's and the partner's weights by their mean."""
        partner = self._workers[partner_index]
        yield from self._send(worker, partner, waiting=worker)
        if partner.computing:
            partner.weights = self._states.keep(partner.index)
        self._states.average(worker.index, partner.index)
        worker.averages.append((worker.num_steps, partner.index))
        partner.averages.append((partner.num_steps, worker.index))
        yield from self._send(partner, worker, waiting=worker)

    def _send(
        self, sender: VirtualWorker, receiver: VirtualWorker, *, waiting: VirtualWorker
    ) -> Process[None]:
        """Send the sender's weights to the receiver, for which one of the two waits."""
        size = self._sizes.weights(self._states.of[sender.index].weights.vector.nbytes)
        sender.bytes_sent += size
        receiver.bytes_received += size
        passage = yield from self._network.pass_on(sender.index, receiver.index, size)
        waiting.spend("communicate", *passage)
