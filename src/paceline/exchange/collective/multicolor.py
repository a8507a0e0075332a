"""Multicolor all-reduce (Kumar et al. 2017, arXiv:1711.00705; trees reconstructed by us).

The vector is cut into k parts, called colors. Each color has a k-ary tree over all workers, along
which its part is reduced and then broadcast in pieces. All colors are active at once. No worker is
an inner node of two trees, so a worker sends at most 2 n bytes, and a piece passes about 2 log_k p
links instead of a ring's 2 (p-1).
"""

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Schedule, Volumes, pieces, summed, together
from paceline.exchange.shard import shard_bounds
from paceline.timing.profile import ClusterProfile

_MAX_COLORS = 4  # of Kumar's example: 8 nodes, 4 colors
Part = tuple[int, int]  # [first, last) of the vector


class Multicolor(AbstractScheduledCollective):
    """One tree for each part of the vector; a worker is an inner node of one tree at most."""

    def make_schedule(self, workers: int, length: int) -> Schedule:
        filling = 2 * _depth(workers) - 2  # the first and the last round carry half of others
        return _all_colors(workers, [pieces(*part, filling) for part in _parts(workers, length)])

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count for uncut parts, since cutting them into pieces does not change the volume."""
        whole = [[part] for part in _parts(workers, length)]
        return summed(_all_colors(workers, whole), workers)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return share n/BW + 2 depth latency, with share <= 2 (Kumar et al. 2017,
        arXiv:1711.00705; formula ours).

        There are k trees of n/k bytes, each k-ary, with disjoint inner nodes. They are pipelined in
        segments so small that filling the pipeline costs only latency. As with Kumar's GPUs,
        workers of a node are summed first; then one worker of each node uses its interface.
        """
        levels = profile.levels(workers)
        latency = sum(2 * _depth(count) * link.latency for link, count in levels)
        return latency + max(_sent(count) * num_bytes / link.bandwidth for link, count in levels)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count a message up and one down for each color and worker except the root."""
        up_and_down = 2 * (workers_of_node - 1)
        return NodeMessages(num_colors(workers_of_node) * up_and_down, up_and_down)


def num_colors(workers: int) -> int:
    """Return the largest number of colors, up to 4, for which no worker is an inner node of two
    trees. Each of k colors has a tree with k children per node. With p workers it has ceil((p-1)/k)
    inner nodes. All k trees together have at most p of them if p mod k is 0 or 1, as it always is
    for k = 2.
    """
    most = min(_MAX_COLORS, workers)
    return next(k for k in range(most, 0, -1) if workers % k <= 1)


def trees(workers: int) -> list[list[int]]:
    """List the workers of each color's tree by position: the parent of position i is (i - 1) // k,
    and 0 is the root. Inner nodes come first; each color starts after the inner nodes of the one
    before.
    """
    starts = [first for first, _ in shard_bounds(workers, num_colors(workers))]
    return [[(start + position) % workers for position in range(workers)] for start in starts]


def _parts(workers: int, length: int) -> list[Part]:
    return shard_bounds(length, num_colors(workers))


def _all_colors(workers: int, parts: list[list[Part]]) -> Schedule:
    """Return the moves of all trees. `parts`: pieces of each color."""
    orders = trees(workers)
    return together([_color(*each, len(orders)) for each in zip(orders, parts, strict=True)])


def _color(order: list[int], parts: list[Part], children: int) -> Schedule:
    """Return the moves of one color. Piece s leaves the lowest level in round s."""
    if parts[0][0] == parts[-1][1] or len(order) == 1:
        return ()
    levels = _levels(len(order), children)
    rounds: list[list[Move]] = [[] for _ in range(len(parts) + 2 * levels[-1] - 1)]
    for number, part in enumerate(parts):
        at_root = number + levels[-1]
        for position in range(1, len(order)):
            member, parent = order[position], order[(position - 1) // children]
            level = levels[position]
            rounds[at_root - level].append(Move(member, parent, *part, adds=True))
            rounds[at_root + level - 1].append(Move(parent, member, *part, adds=False))
    return tuple(tuple(moves) for moves in rounds)


def _levels(members: int, children: int) -> list[int]:
    """Return the distance of each position from the root."""
    levels = [0]
    for position in range(1, members):
        levels.append(levels[(position - 1) // children] + 1)
    return levels


def _depth(members: int) -> int:
    """Return the distance of the lowest level from the root."""
    return _levels(members, num_colors(members))[-1]


def _sent(members: int) -> float:
    """Return the most that a worker sends, as a multiple of n; another worker receives as much.
    That worker is an inner node of one of k trees. It sends n/k bytes up in each tree (if it is the
    root, in k-1 trees), and n/k to each of its children.
    """
    num_trees = num_colors(members)
    root = num_trees - 1 + min(num_trees, members - 1)
    below = num_trees + max(0, min(num_trees, members - 1 - num_trees))
    return max(root, below) / num_trees
