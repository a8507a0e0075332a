"""The backend's own all-reduce, modelled as a ring (Patarasuk & Yuan 2009, J. Parallel Distrib.
Comput. 69). gloo uses a ring (gloo/allreduce.cc), and NCCL does for large vectors.
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
    """All-reduce of the backend, which does not report its bytes."""

    def all_reduce(self, vector: Tensor, wire: GroupWire) -> None:
        wire.sum_natively(vector)

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Return the volumes of a ring; those of gloo were measured within 1 % of them."""
        return Ring().count_volumes(workers, length)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return the seconds of a ring (Patarasuk & Yuan 2009, J. Parallel Distrib. Comput. 69)."""
        return Ring().link_seconds(num_bytes, workers, profile)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count two messages for each of a ring: gloo halves each part, to send one half while it
        adds the other (gloo/allreduce.cc).
        """
        ring = Ring().node_messages(workers, workers_of_node)
        return NodeMessages(2 * ring.num_messages, ring.num_vectors)
