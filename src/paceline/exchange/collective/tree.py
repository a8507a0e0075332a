"""Binary reduction tree and broadcast (FireCaffe, Iandola et al. 2016, arXiv:1511.00175).

In round r pairs of workers at a distance of 2^r add their sums; after ceil(log2 p) rounds worker 0
has the sum, which goes the same way back. The whole vector moves each time: 2 ceil(log2 p) n bytes
pass one after the other.
"""

import math

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Schedule
from paceline.timing.profile import ClusterProfile


class Tree(AbstractScheduledCollective):
    """A binary tree: the whole vector goes up to worker 0, and the sum down again."""

    def make_schedule(self, workers: int, length: int, workers_per_node: int) -> Schedule:
        return (*reduction(workers, length), *broadcast(workers, length))

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return 2 ceil(log2 p) (n/BW + latency) (Iandola et al. 2016, arXiv:1511.00175; latency is
        our addition).

        A reduction up a binary tree and a broadcast down; inside the nodes first, then one worker
        of each node goes on, by itself on its interface.
        """
        return sum(
            2 * math.ceil(math.log2(count)) * link.seconds(num_bytes)
            for link, count in profile.levels(workers)
        )

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        up_and_down = 2 * (workers_of_node - 1)
        return NodeMessages(up_and_down, up_and_down)


def reduction(workers: int, length: int) -> Schedule:
    """Lay down the moves by which worker 0 gets the sum."""
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
    """Lay down the moves from worker 0 to all: those of the reduction, backwards."""
    return tuple(
        tuple(Move(move.receiver, move.sender, 0, length, adds=False) for move in moves)
        for moves in reversed(reduction(workers, length))
    )
