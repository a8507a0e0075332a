"""All-reduce inside nodes, then between them (Goyal et al. 2017, arXiv:1706.02677, section 4).

A tree sums the workers of each node at its first worker. A ring sums these first workers, and the
trees broadcast the result: 2 ceil(log2 m) n bytes inside nodes of m workers and 2 (N-1)/N n bytes
between N nodes. Workers fill node after node; the last node may have fewer.
"""

import math

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.collective.ring import Ring
from paceline.exchange.collective.tree import Tree, broadcast, reduction
from paceline.exchange.schedule import Schedule, Volume, Volumes, among, summed, together
from paceline.timing.profile import ClusterProfile


class Hierarchical(AbstractScheduledCollective):
    """Trees inside the nodes, and a ring of their first workers."""

    needs_nodes = True

    def make_schedule(self, workers: int, length: int, workers_per_node: int) -> Schedule:
        firsts = range(0, workers, workers_per_node)
        up, down = _inside(workers, length, workers_per_node)
        between = among(firsts, Ring().make_schedule(len(firsts), length, 1))
        return (*up, *between, *down)

    def count_volumes(self, workers: int, length: int, workers_per_node: int) -> Volumes:
        firsts = range(0, workers, workers_per_node)
        up, down = _inside(workers, length, workers_per_node)
        volumes = list(summed((*up, *down), workers))
        ring = Ring().count_volumes(len(firsts), length, 1)
        for first, between in zip(firsts, ring, strict=True):
            sent, received = volumes[first]
            volumes[first] = Volume(sent + between.sent, received + between.received)
        return tuple(volumes)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return 2 ceil(log2 m) (n/BW + latency) inside nodes + 2 (N-1) (n/N/BW + latency) between
        them (Goyal et al. 2017, arXiv:1706.02677, section 4; we added the latency). m: workers on
        the fullest node. The trees of all nodes work at once, then the ring of N nodes.
        """
        inside, nodes = profile.largest_node(workers), profile.num_nodes(workers)
        rounds, each = 2 * math.ceil(math.log2(inside)), profile.node_link.seconds(num_bytes)
        between = 2 * (nodes - 1) * profile.link.seconds(num_bytes / nodes) if nodes > 1 else 0.0
        return (rounds * each if rounds else 0.0) + between

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        return Tree().node_messages(workers, workers_of_node)


def _inside(workers: int, length: int, workers_per_node: int) -> tuple[Schedule, Schedule]:
    """Return the moves up the trees of all nodes, and those down."""
    firsts = range(0, workers, workers_per_node)
    nodes = [range(first, min(first + workers_per_node, workers)) for first in firsts]
    up = together([among(node, reduction(len(node), length)) for node in nodes])
    down = together([among(node, broadcast(len(node), length)) for node in nodes])
    return up, down
