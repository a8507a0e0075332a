"""The declaration that every collective makes about itself, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from paceline.exchange.schedule import Schedule, Volumes, summed
from paceline.timing.profile import ClusterProfile

if TYPE_CHECKING:  # costs are computed without torch
    from torch import Tensor

    from paceline.exchange.group_wire import GroupWire


class NodeMessages(NamedTuple):
    """The messages that the workers of one node send in one all-reduce.

    `num_vectors`: the bytes of all these messages, as a multiple of the vector's.
    """

    num_messages: int
    num_vectors: float


class AbstractCollective(ABC):
    """A way to sum a vector over workers, after which all of them have the same bits.

    Each file of exchange/collective/ declares one, by the file's name; its docstring cites the
    source. Concrete classes are final and hold no state. `needs_nodes`: what moves depends on which
    workers share a node, so that they must fill one node after the other.
    """

    needs_nodes: ClassVar[bool] = False

    @abstractmethod
    def all_reduce(self, vector: Tensor, wire: GroupWire) -> None:
        """Replace a contiguous `vector` [length] by its sum over the wire's workers.

        Every one of them calls this.
        """

    @abstractmethod
    def count_volumes(self, workers: int, length: int, workers_per_node: int) -> Volumes:
        """Count what each worker sends and receives for a vector [length]."""

    @abstractmethod
    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Model the seconds that the links take for `num_bytes`; there are at least 2 workers.

        The docstring has the formula and its source: n bytes, p workers, BW [bytes/s] and latency
        [s] of a link. Workers fill node after node, so each formula says how many workers of a node
        use its interface at a time. The slowest link on the way decides.
        """

    @abstractmethod
    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count what a node sends that has `workers_of_node` of all the workers."""

    def volumes(self, workers: int, length: int, workers_per_node: int | None = None) -> Volumes:
        """Return what each worker sends and receives for a vector [length].

        `workers_per_node` None puts all workers on one node.
        """
        return _volumes(self, workers, length, workers_per_node or workers)

    def seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Model the seconds until every worker has the sum of `num_bytes`; 0 for one worker.

        Nothing is over before the cores of a node have passed all its messages.
        """
        if workers == 1:
            return 0.0
        profile, of_node = profile.in_all_reduce, profile.largest_node(workers)
        on_links = self.link_seconds(num_bytes, workers, profile)
        count, vectors = self.node_messages(workers, of_node)
        on_cores = profile.core_seconds(count, vectors * num_bytes, of_node)
        return max(on_links, on_cores) + profile.allreduce_seconds


class AbstractScheduledCollective(AbstractCollective):
    """A collective that consists of point-to-point messages by a schedule."""

    @abstractmethod
    def make_schedule(self, workers: int, length: int, workers_per_node: int) -> Schedule:
        """Lay down every move of a vector [length]; no move is empty."""

    def count_volumes(self, workers: int, length: int, workers_per_node: int) -> Volumes:
        return summed(self.make_schedule(workers, length, workers_per_node), workers)

    def schedule(self, workers: int, length: int, workers_per_node: int | None = None) -> Schedule:
        """Return every move of a vector [length]; None puts all workers on one node."""
        return _schedule(self, workers, length, workers_per_node or workers)

    def all_reduce(self, vector: Tensor, wire: GroupWire) -> None:
        """Carry out this worker's moves of the schedule."""
        schedule = self.schedule(wire.workers, vector.numel(), wire.workers_per_node)
        wire.carry_out(schedule, vector)


@lru_cache(maxsize=128)
def _volumes(collective: AbstractCollective, workers: int, length: int, per_node: int) -> Volumes:
    return collective.count_volumes(workers, length, per_node)


@lru_cache(maxsize=128)
def _schedule(
    collective: AbstractScheduledCollective, workers: int, length: int, per_node: int
) -> Schedule:
    return collective.make_schedule(workers, length, per_node)
