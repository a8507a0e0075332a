"""Wire of a worker that asks other workers for the mean of their weights and its own.

A partner that answers has a ServerWire: the weights are a push, and their mean is the answer.
"""

import os
from collections.abc import Sequence

import torch

from paceline.exchange.message import receive_json
from paceline.exchange.node import this_node
from paceline.exchange.wire.connection import Address
from paceline.exchange.wire.pieces import bytes_of
from paceline.exchange.wire.shared_memory import Places, allocate, part
from paceline.exchange.wire.worker_end import WorkerEnd, reach


class PairWire:
    """Connections of an asking worker: the mean replaces its `weights` [num_weights] in place.

    `partners`: ranks of the answering workers. `node`: node to claim instead of this one.
    """

    def __init__(
        self,
        num_weights: int,
        dtype: torch.dtype,
        partners: Sequence[int],
        node: str | None = None,
    ) -> None:
        self._descriptor, memory = allocate(num_weights * dtype.itemsize)
        self.weights = part(memory, 0, num_weights, dtype)
        self._partners, self._node = partners, node or this_node()
        self._ends: dict[int, WorkerEnd] = {}
        self.bytes_sent = 0
        self.bytes_received = 0

    def connect(self) -> None:
        """Connect to all partners, which announce their addresses, and receive first weights."""
        addresses = [Address(*receive_json(partner)) for partner in self._partners]
        body, places = bytes_of(self.weights), Places(0, 0, 0)
        for partner, address in zip(self._partners, addresses, strict=True):
            self._ends[partner] = reach(
                f"worker {partner}", address, [body], body, self._descriptor, places, self._node
            )
        os.close(self._descriptor)
        for partner in self._partners:
            self._pull(partner)

    def average(self, partner: int) -> None:
        """Replace `weights` by the mean of them and the partner's.

        Raises LostPeerError, or TimeoutError if the partner does not answer.
        """
        self._ends[partner].push(version=0)
        self.bytes_sent += self.weights.nbytes
        self._pull(partner)

    def leave(self) -> None:
        """Announce to the partners that no request follows, and disconnect."""
        for end in self._ends.values():
            end.leave(version=0)

    def _pull(self, partner: int) -> None:
        self._ends[partner].pull()
        self.bytes_received += self.weights.nbytes
