"""Multicolor all-reduce (Kumar et al. 2017, arXiv:1711.00705; trees reconstructed by us).

The vector is cut into k parts, the colors. Each color has a k-ary tree over all workers: up it the
part is reduced, down it the sum is broadcast, both in pieces, one after the other; all colors at
once. The trees are such that no worker is an inner member of two of them, so that a worker sends
at most 2 n bytes, and a piece passes about 2 log_k p links instead of a ring's 2 (p-1).
"""

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Schedule, Volumes, pieces, summed, together
from paceline.exchange.shard import shard_bounds
from paceline.timing.profile import ClusterProfile

_MAX_COLORS = 4  # of Kumar's example: 8 nodes, 4 colors
Part = tuple[int, int]  # [first, last) of the vector


class Multicolor(AbstractScheduledCollective):
    """A tree for each part of the vector, every worker an inner member of one tree at most."""

    def make_schedule(self, workers: int, length: int, workers_per_node: int) -> Schedule:
        filling = 2 * _depth(workers) - 2  # the first and the last round carry half of others
        return _all_colors(workers, [pieces(*part, filling) for part in _parts(workers, length)])

    def count_volumes(self, workers: int, length: int, workers_per_node: int) -> Volumes:
        """Count what moves when no part is cut into pieces, which is the same."""
        whole = [[part] for part in _parts(workers, length)]
        return summed(_all_colors(workers, whole), workers)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return share n/BW + 2 depth latency, share <= 2 (Kumar et al. 2017, arXiv:1711.00705;
        formula ours).

        k trees, each k-ary and for n/k bytes, whose inner members are disjoint; pipelined, in
        segments so small that filling the pipe costs nothing but latency. Inside the nodes first,
        as Kumar's GPUs; then one worker of each, by itself on its interface.
        """
        levels = profile.levels(workers)
        latency = sum(2 * _depth(count) * link.latency for link, count in levels)
        return latency + max(_sent(count) * num_bytes / link.bandwidth for link, count in levels)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count a message up and one down for each color and worker, a root's excepted."""
        up_and_down = 2 * (workers_of_node - 1)
        return NodeMessages(num_colors(workers_of_node) * up_and_down, up_and_down)


def num_colors(workers: int) -> int:
    """Choose the most, up to 4, for which no worker needs to be an inner member of two trees.

    A k-ary tree of p has ceil((p-1)/k) inner members; k times that is at most p where p divided by
    k leaves 0 or 1, which for k = 2 is always so.
    """
    most = min(_MAX_COLORS, workers)
    return next(k for k in range(most, 0, -1) if workers % k <= 1)


def trees(workers: int) -> list[list[int]]:
    """List for each color the workers by position: i hangs below (i - 1) // k, 0 is the root.

    Inner members come first; each color begins where the one before has no more of them.
    """
    starts = [first for first, _ in shard_bounds(workers, num_colors(workers))]
    return [[(start + position) % workers for position in range(workers)] for start in starts]


def _parts(workers: int, length: int) -> list[Part]:
    return shard_bounds(length, num_colors(workers))


def _all_colors(workers: int, parts: list[list[Part]]) -> Schedule:
    """Lay down the moves of all trees; `parts`: the pieces of each color."""
    orders = trees(workers)
    return together([_color(*each, len(orders)) for each in zip(orders, parts, strict=True)])


def _color(order: list[int], parts: list[Part], children: int) -> Schedule:
    """Lay down the moves of one color: piece s leaves the lowest level in round s."""
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
    """List how far from the root each position is."""
    levels = [0]
    for position in range(1, members):
        levels.append(levels[(position - 1) // children] + 1)
    return levels


def _depth(members: int) -> int:
    """Return how far from the root the lowest level is."""
    return _levels(members, num_colors(members))[-1]


def _sent(members: int) -> float:
    """Return what the member that sends most sends, as a multiple of n; another receives as much.

    It is inner in one tree of k. The root of that sends up in k-1 trees, an inner member below it
    in all k, each n/k; and down to its children, n/k each.
    """
    num_trees = num_colors(members)
    root = num_trees - 1 + min(num_trees, members - 1)
    below = num_trees + max(0, min(num_trees, members - 1 - num_trees))
    return max(root, below) / num_trees
