"""How long an all-reduce takes on a modelled cluster: one published formula per collective.

n bytes, p workers, BW [bytes/s] and latency [s] of a link. Where more than one node takes part,
the nodes' network interfaces (`link`) are on the way, and `node_link` where a node has several
workers; on one node `node_link` alone. Workers fill node after node, so each formula says how
many workers of a node use its interface at a time. The slowest link on the way decides; but nothing
is over before the cores of a node have passed all its messages.
"""

import math
from dataclasses import replace

from paceline.errors import SettingError
from paceline.exchange.collective.multicolor import num_colors
from paceline.timing.profile import ClusterProfile, Link


def _ring(num_bytes: int, workers: int, profile: ClusterProfile) -> float:
    """2 (p-1)/p n/BW + 2 (p-1) latency (Patarasuk & Yuan 2009, J. Parallel Distrib. Comput. 69).

    2 (p-1) rounds, in each of which every worker hands n/p on to its neighbour; a round lasts as
    long as its slowest hop. One worker of a node sends out of it, one receives: nothing is shared.
    """
    rounds = 2 * (workers - 1)
    return rounds * max(link.seconds(num_bytes / workers) for link, _ in _levels(workers, profile))


def _tree(num_bytes: int, workers: int, profile: ClusterProfile) -> float:
    """2 ceil(log2 p) (n/BW + latency) (Iandola 2016, arXiv:1511.00175; latency is our addition).

    A reduction up a binary tree and a broadcast down; inside the nodes first, then one worker of
    each node goes on, alone on its interface.
    """
    levels = _levels(workers, profile)
    return sum(2 * math.ceil(math.log2(count)) * link.seconds(num_bytes) for link, count in levels)


def _hierarchical(num_bytes: int, workers: int, profile: ClusterProfile) -> float:
    """Trees inside the nodes, a ring between them (Goyal 2017, arXiv:1706.02677, section 4)."""
    inside = min(workers, profile.workers_per_node or workers)
    nodes = profile.num_nodes(workers)
    rounds, each = 2 * math.ceil(math.log2(inside)), profile.node_link.seconds(num_bytes)
    between = 2 * (nodes - 1) * profile.link.seconds(num_bytes / nodes) if nodes > 1 else 0.0
    return (rounds * each if rounds else 0.0) + between


def _multicolor(num_bytes: int, workers: int, profile: ClusterProfile) -> float:
    """share n/BW + 2 depth latency, with share <= 2 (Kumar 2017, arXiv:1711.00705; formula ours).

    k trees, each k-ary and for n/k bytes, whose inner members are disjoint; pipelined, in segments
    so small that filling the pipe costs nothing but latency. Inside the nodes first, as
    Kumar's GPUs; then one worker of each, alone on its interface.
    """
    levels = _levels(workers, profile)
    latency = sum(2 * _depth(count) * link.latency for link, count in levels)
    return latency + max(_sent(count) * num_bytes / link.bandwidth for link, count in levels)


def _parameter_server(num_bytes: int, workers: int, profile: ClusterProfile) -> float:
    """p n/BW + 2 latency (Iandola 2016, arXiv:1511.00175; latency, there and back, is ours).

    All p gradients pass the link of the one server, which is on a node of its own where there are
    nodes; a node's interface carries those of its own workers meanwhile, which takes no longer.
    """
    link = profile.node_link if profile.one_machine else profile.link
    return workers * num_bytes / link.bandwidth + 2 * link.latency


_FORMULAS = {
    "native": _ring,  # as NCCL where n is not small, and gloo
    "ring": _ring,
    "tree": _tree,
    "multicolor": _multicolor,
    "parameter_server": _parameter_server,
    "hierarchical": _hierarchical,
}
COLLECTIVES = tuple(_FORMULAS)


def allreduce_seconds(
    collective: str, num_bytes: int, workers: int, profile: ClusterProfile
) -> float:
    """Seconds until every worker has the sum over all of `num_bytes`; 0 for one worker.

    Raises SettingError("scheme.collective") for an unknown one.
    """
    if collective not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise SettingError("scheme.collective", f"there is no {collective}; there are: {known}")
    if workers == 1:
        return 0.0
    if profile.allreduce_link is not None:
        profile = replace(profile, node_link=profile.allreduce_link)
    links = _FORMULAS[collective](num_bytes, workers, profile)
    return max(links, _core_seconds(collective, num_bytes, workers, profile))


def _core_seconds(collective: str, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
    """Of the messages that the workers of one node send, each of which keeps a core busy.

    By number and bytes; ours. gloo's ring sends each part as two messages, so that one is under
    way while the other is added (gloo/allreduce.cc).
    """
    if profile.node_cores is None:
        return 0.0
    inside = min(workers, profile.workers_per_node or workers)
    hops, each_way = 2 * (workers - 1), 2 * (inside - 1)
    messages, sent = {
        "native": (2 * hops * inside, hops * inside / workers),
        "ring": (hops * inside, hops * inside / workers),
        "tree": (each_way, each_way),
        "multicolor": (num_colors(inside) * each_way, each_way),
        "parameter_server": (2 * inside, 2 * inside),
        "hierarchical": (each_way, each_way),
    }[collective]
    link = profile.node_link
    return (messages * link.latency + sent * num_bytes / link.bandwidth) / profile.node_cores


def _levels(workers: int, profile: ClusterProfile) -> list[tuple[Link, int]]:
    """(link, how many meet over it): the workers of a full node, then the nodes."""
    nodes = profile.num_nodes(workers)
    inside = min(workers, profile.workers_per_node or workers)
    levels = [(profile.node_link, inside), (profile.link, nodes)]
    return [(link, count) for link, count in levels if count > 1]


def _depth(members: int) -> int:
    """Of a tree with k children a node."""
    children, depth, below = num_colors(members), 0, 1
    reached = 1
    while reached < members:
        below *= children
        reached, depth = reached + below, depth + 1
    return depth


def _sent(members: int) -> float:
    """By the member that sends most, as a multiple of n; another receives as much.

    It is inner in one tree of k. The root of that sends up in k-1 trees, an inner member below it
    in all k, each n/k; and down to its children, n/k each.
    """
    trees = num_colors(members)
    root = trees - 1 + min(trees, members - 1)
    below = trees + max(0, min(trees, members - 1 - trees))
    return max(root, below) / trees
