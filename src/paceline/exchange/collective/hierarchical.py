"""Inside a node, between nodes, inside again (Goyal et al. 2017, arXiv:1706.02677, section 4).

The workers of each node are summed at its first by a tree, the first ones' sums go round a ring,
and come back down the trees: 2 ceil(log2 m) n bytes inside nodes of m workers and 2 (N-1)/N n
between N nodes. Workers fill node after node, the last perhaps not quite.
"""

from functools import lru_cache

from torch import Tensor

from paceline.exchange.collective import ring, tree
from paceline.exchange.collective.plan import Plan, among, together
from paceline.exchange.collective.wire import Wire


def all_reduce(vector: Tensor, wire: Wire) -> None:
    """Sum over workers, in place."""
    wire.carry_out(plan(wire.workers, vector.numel(), wire.workers_per_node), vector)


@lru_cache(maxsize=128)
def plan(workers: int, length: int, workers_per_node: int) -> Plan:
    firsts = range(0, workers, workers_per_node)
    nodes = [range(first, min(first + workers_per_node, workers)) for first in firsts]
    inside = together([among(node, tree.reduction(len(node), length)) for node in nodes])
    between = among(firsts, ring.plan(len(firsts), length))
    back = together([among(node, tree.broadcast(len(node), length)) for node in nodes])
    return (*inside, *between, *back)
