"""Pairwise means on the virtual clock: a message to the partner, the mean there, a message back."""

from collections.abc import Sequence

from paceline.engine.links import Process
from paceline.timing.profile import ClusterProfile
from paceline.virtual_clock.kernel import Kernel, Moment
from paceline.virtual_clock.shared_state import SharedStates
from paceline.virtual_clock.virtual_network import VirtualNetwork
from paceline.virtual_clock.virtual_worker import VirtualWorker


class VirtualPairLink:
    """Both workers hold the mean from the message's arrival at the partner on.

    Nobody is asked who waits for an answer. Answering costs the partner no time.
    """

    def __init__(
        self,
        states: SharedStates,
        workers: Sequence[VirtualWorker],
        *,
        profile: ClusterProfile,
        kernel: Kernel,
    ) -> None:
        self._states, self._workers, self._kernel = states, workers, kernel
        self._network = VirtualNetwork(profile, len(workers), servers=0)

    def pair(self, worker: VirtualWorker, partner_index: int) -> Process[None]:
        """Ask the partner for the mean, which both hold then."""
        partner = self._workers[partner_index]
        yield self._send(worker, partner, waiting=worker)
        if partner.computing:
            partner.weights = self._states.keep(partner.index)
        self._states.average(worker.index, partner.index)
        worker.averages.append((worker.num_steps, partner.index))
        partner.averages.append((partner.num_steps, worker.index))
        yield self._send(partner, worker, waiting=worker)

    def _send(
        self, sender: VirtualWorker, receiver: VirtualWorker, *, waiting: VirtualWorker
    ) -> Moment:
        """Send the weights of one to another; return when they are there."""
        now, size = self._kernel.now, self._states.of[sender.index].weights.vector.nbytes
        sender.bytes_sent += size
        receiver.bytes_received += size
        passage = self._network.pass_on(now, sender.index, receiver.index, size)
        waiting.spend("wait", now, passage.start)
        waiting.spend("communicate", *passage)
        return Moment(passage.end)
