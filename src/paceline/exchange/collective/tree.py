"""Binary reduction tree and broadcast (FireCaffe, Iandola et al. 2016, arXiv:1511.00175).

In round r pairs of workers at a distance of 2^r add their sums. After ceil(log2 p) rounds worker 0
has the total, which returns the same way. Each message is the whole vector, so 2 ceil(log2 p) n
bytes follow each other.
"""

import math

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Schedule
from paceline.timing.profile import ClusterProfile


class Tree(AbstractScheduledCollective):
    """A binary tree: vectors are summed up to worker 0, and the sum is broadcast down."""

    def make_schedule(self, workers: int, length: int) -> Schedule:
        return (*reduction(workers, length), *broadcast(workers, length))

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return 2 ceil(log2 p) (n/BW + latency) (Iandola et al. 2016, arXiv:1511.00175; we added
        the latency). Workers of a node are summed first; then one worker of each node uses its
        interface.
        """
        return sum(
            2 * math.ceil(math.log2(count)) * link.seconds(num_bytes)
            for link, count in profile.levels(workers)
        )

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        up_and_down = 2 * (workers_of_node - 1)
        return NodeMessages(up_and_down, up_and_down)


def reduction(workers: int, length: int) -> Schedule:
    """Return the moves that sum all vectors at worker 0."""
    if length == 0:
        return ()
    distances = [2**level for level in range((workers - 1).bit_length())]
    return tuple(
        tuple(
            Move(far, far - distance, 0, length, adds=True)
            for far in range(distance, workers, 2 * distance)
        )
        for distance in distances
    )


def broadcast(workers: int, length: int) -> Schedule:
    """Return the moves from worker 0 to all: those of the reduction in reverse."""
    return tuple(
        tuple(Move(move.receiver, move.sender, 0, length, adds=False) for move in moves)
        for moves in reversed(reduction(workers, length))
    )
