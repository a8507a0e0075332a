"""Base classes of collectives: what a collective declares, and the costs that follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from paceline.exchange.schedule import Schedule, Volumes, summed
from paceline.timing.profile import ClusterProfile

if TYPE_CHECKING:  # costs are computed without torch
    from torch import Tensor

    from paceline.exchange.group_wire import GroupWire


class NodeMessages(NamedTuple):
    """Messages that the workers of one node send in one all-reduce. `num_vectors`: bytes of all
    these messages, divided by the bytes of the vector.
    """

    num_messages: int
    num_vectors: float


class AbstractCollective(ABC):
    """A way to sum a vector over workers, so that all of them end with the same bits.

    Each file in exchange/collective/ declares one, named like the file; its docstring cites the
    source.
    """

    @abstractmethod
    def all_reduce(self, vector: Tensor, wire: GroupWire) -> None:
        """Replace a contiguous `vector` [length] by its sum; all workers of the wire call this."""

    @abstractmethod
    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count what each worker sends and receives for a vector [length]."""

    @abstractmethod
    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Model the seconds that the links take for `num_bytes` and at least 2 workers. The
        docstring gives the formula and its source for n bytes, p workers, and a link with bandwidth
        BW [bytes/s] and a latency [s]. Workers fill node after node. The slowest link decides.
        """

    @abstractmethod
    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count what a node with `workers_of_node` of all the workers sends."""

    @lru_cache(maxsize=128)  # noqa: B019 - a collective lives as long as its module
    def volumes(self, workers: int, length: int) -> Volumes:
        """Return what each worker sends and receives for a vector [length]."""
        return self.count_volumes(workers, length)

    def seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Model the seconds until every worker has the sum of `num_bytes`; 0 for one worker. It
        takes at least as long as the cores of a node need to pass all its messages.
        """
        if workers == 1:
            return 0.0
        profile, of_node = profile.in_all_reduce, profile.largest_node(workers)
        on_links = self.link_seconds(num_bytes, workers, profile)
        count, vectors = self.node_messages(workers, of_node)
        on_cores = profile.core_seconds(count, vectors * num_bytes, of_node)
        return max(on_links, on_cores) + profile.added_seconds("allreduce")


class AbstractScheduledCollective(AbstractCollective):
    """A collective that consists of point-to-point messages in a fixed schedule."""

    @abstractmethod
    def make_schedule(self, workers: int, length: int) -> Schedule:
        """Return all moves of a vector [length]; no move is empty."""

    def count_volumes(self, workers: int, length: int) -> Volumes:
        return summed(self.make_schedule(workers, length), workers)

    @lru_cache(maxsize=128)  # noqa: B019 - a collective lives as long as its module
    def schedule(self, workers: int, length: int) -> Schedule:
        """Return all moves of a vector [length]."""
        return self.make_schedule(workers, length)

    def all_reduce(self, vector: Tensor, wire: GroupWire) -> None:
        """Carry out this worker's moves of the schedule."""
        wire.carry_out(self.schedule(wire.workers, vector.numel()), vector)
