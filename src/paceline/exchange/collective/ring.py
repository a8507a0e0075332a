"""Ring all-reduce (Patarasuk & Yuan 2009, J. Parallel Distrib. Comput. 69).

The vector is cut into one part per worker. In p-1 rounds each worker sends a part to its neighbour,
which adds it, until each worker has the sum of one part. In p-1 more rounds the sums go round. Each
worker sends 2 (p-1)/p n bytes.
"""

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Round, Schedule, Volume, Volumes
from paceline.exchange.shard import shard_bounds
from paceline.timing.profile import ClusterProfile


class Ring(AbstractScheduledCollective):
    """Parts of the vector go round a ring twice: they are added first, then copied."""

    def make_schedule(self, workers: int, length: int) -> Schedule:
        bounds = shard_bounds(length, workers)
        reduce_scatter = [_hand_on(bounds, -number, adds=True) for number in range(workers - 1)]
        all_gather = [_hand_on(bounds, 1 - number, adds=False) for number in range(workers - 1)]
        return (*reduce_scatter, *all_gather)

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count without building the schedule, which grows with the square of the workers. Worker w
        sends all parts but w + 1, then all but w + 2.
        """
        sizes = [last - first for first, last in shard_bounds(length, workers)]
        left = [sizes[(w + 1) % workers] + sizes[(w + 2) % workers] for w in range(workers)]
        return tuple(Volume(2 * length - left[w], 2 * length - left[w - 1]) for w in range(workers))

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return 2 (p-1)/p n/BW + 2 (p-1) latency (Patarasuk & Yuan 2009, J. Parallel Distrib.
        Comput. 69). There are 2 (p-1) rounds, each as long as the slowest link takes for n/p bytes.
        Only one worker of a node sends out of it, and only one receives, so no link is shared.
        """
        levels = profile.levels(workers)
        return 2 * (workers - 1) * max(link.seconds(num_bytes / workers) for link, _ in levels)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        num_messages = 2 * (workers - 1) * workers_of_node
        return NodeMessages(num_messages, num_messages / workers)


def _hand_on(bounds: list[tuple[int, int]], offset: int, *, adds: bool) -> Round:
    """Let worker w send part w + offset to its neighbour, unless the part is empty."""
    workers = len(bounds)
    moves = (
        Move(worker, (worker + 1) % workers, *bounds[(worker + offset) % workers], adds)
        for worker in range(workers)
    )
    return tuple(move for move in moves if move.last > move.first)
