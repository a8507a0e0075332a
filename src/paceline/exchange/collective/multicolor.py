"""Multicolor all-reduce (Kumar et al. 2017, arXiv:1711.00705; trees reconstructed by us).

The vector is cut into k parts, the colors. Each color has a k-ary tree over all workers: up it the
part is reduced, down it the sum is broadcast, both in pieces, one behind the other; all colors at
once. The trees are such that no worker is an inner member of two of them, so that a worker sends
at most 2 n bytes, and a piece passes about 2 log_k p links instead of a ring's 2 (p-1).
"""

from functools import lru_cache

from torch import Tensor

from paceline.exchange.collective.plan import Move, Plan, pieces, together
from paceline.exchange.collective.wire import Wire
from paceline.exchange.shard import shard_bounds

_MOST_COLORS = 4  # of Kumar's example: 8 nodes, 4 colors


def all_reduce(vector: Tensor, wire: Wire) -> None:
    """Sum over workers, in place."""
    wire.carry_out(plan(wire.workers, vector.numel()), vector)


@lru_cache(maxsize=128)
def plan(workers: int, length: int) -> Plan:
    orders = trees(workers)
    parts = shard_bounds(length, len(orders))
    return together(
        [_color(order, len(orders), *part) for order, part in zip(orders, parts, strict=True)]
    )


def num_colors(workers: int) -> int:
    """The most, up to 4, for which no worker needs to be an inner member of two trees.

    A k-ary tree of p has ceil((p-1)/k) inner members; k times that is at most p where p divided by
    k leaves 0 or 1, which for k = 2 is always so.
    """
    most = min(_MOST_COLORS, workers)
    return next(k for k in range(most, 0, -1) if workers % k <= 1)


def trees(workers: int) -> list[list[int]]:
    """Of each color, the workers by position: position i hangs below (i - 1) // k, 0 is the root.

    Inner members come first; each color begins where the one before has no more of them.
    """
    starts = [first for first, _ in shard_bounds(workers, num_colors(workers))]
    return [[(start + turn) % workers for turn in range(workers)] for start in starts]


def _color(order: list[int], children: int, first: int, last: int) -> Plan:
    """One color's part: piece s leaves the lowest level in round s."""
    if last == first or len(order) == 1:
        return ()
    levels = _levels(len(order), children)
    parts = pieces(first, last)
    rounds: list[list[Move]] = [[] for _ in range(len(parts) + 2 * levels[-1] - 1)]
    for turn, part in enumerate(parts):
        at_root = turn + levels[-1]
        for position in range(1, len(order)):
            member, parent = order[position], order[(position - 1) // children]
            level = levels[position]
            rounds[at_root - level].append(Move(member, parent, *part, adds=True))
            rounds[at_root + level - 1].append(Move(parent, member, *part, adds=False))
    return tuple(tuple(moves) for moves in rounds)


def _levels(members: int, children: int) -> list[int]:
    """By position, how far from the root."""
    levels = [0]
    for position in range(1, members):
        levels.append(levels[(position - 1) // children] + 1)
    return levels
