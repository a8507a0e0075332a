"""The backend's own all-reduce, modelled as a ring (Patarasuk & Yuan 2009, J. Parallel Distrib.
Comput. 69), which gloo's is (gloo/allreduce.cc), and NCCL's where the vector is not small; that
chooses by size and topology.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.exchange.abstract_collective import AbstractCollective, NodeMessages
from paceline.exchange.collective.ring import Ring
from paceline.exchange.schedule import Volumes
from paceline.timing.profile import ClusterProfile

if TYPE_CHECKING:
    from torch import Tensor

    from paceline.exchange.group_wire import GroupWire


class Native(AbstractCollective):
    """The backend's all-reduce, whose bytes the wire does not count."""

    def all_reduce(self, vector: Tensor, wire: GroupWire) -> None:
        """Let the backend sum the vector; it does not report what it sends."""
        wire.sum_natively(vector)

    def count_volumes(self, workers: int, length: int, workers_per_node: int) -> Volumes:
        """Return a ring's volumes, which are gloo's to within 1 % of what the kernel counts."""
        return Ring().count_volumes(workers, length, workers_per_node)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return what a ring takes (Patarasuk & Yuan 2009, J. Parallel Distrib. Comput. 69)."""
        return Ring().link_seconds(num_bytes, workers, profile)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count two messages for each of a ring's.

        gloo cuts a part into two, so that one is under way while the other is added
        (gloo/allreduce.cc).
        """
        ring = Ring().node_messages(workers, workers_of_node)
        return NodeMessages(2 * ring.num_messages, ring.num_vectors)
