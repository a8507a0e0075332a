"""How much each worker sends and receives in a collective, without carrying it out.

A plan of thousands of workers has millions of moves; these are its sums.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from paceline.exchange.collective import multicolor, tree
from paceline.exchange.shard import shard_bounds


class Volume(NamedTuple):
    """One worker's, in elements of the vector."""

    sent: int
    received: int

    def in_bytes(self, element_size: int) -> tuple[int, int]:
        return self.sent * element_size, self.received * element_size


Edges = Iterable[tuple[int, int, int]]  # two workers, and the elements that go up and come down


@lru_cache(maxsize=128)
def volumes(
    collective: str, workers: int, length: int, workers_per_node: int | None = None
) -> tuple[Volume, ...]:
    """Of each worker, for a vector [length]. `workers_per_node`, for hierarchical: None puts all of
    them on one node.

    native is a ring, as gloo's is to within 1 % of the kernel's count (benchmarks/collectives.py),
    and NCCL's where the vector is not small.
    """
    if collective in ("native", "ring"):
        return tuple(_ring(workers, length))
    if collective == "hierarchical":
        return tuple(_hierarchical(workers, length, workers_per_node or workers))
    edges = {"tree": _tree, "multicolor": _multicolor, "parameter_server": _star}[collective]
    return tuple(_up_and_down(workers, edges(workers, length)))


def _ring(workers: int, length: int) -> list[Volume]:
    """Worker w hands on every part but w + 1, then every part but w + 2."""
    sizes = [last - first for first, last in shard_bounds(length, workers)]
    left = [sizes[(w + 1) % workers] + sizes[(w + 2) % workers] for w in range(workers)]
    return [Volume(2 * length - left[w], 2 * length - left[w - 1]) for w in range(workers)]


def _hierarchical(workers: int, length: int, workers_per_node: int) -> list[Volume]:
    firsts = range(0, workers, workers_per_node)
    inside = [
        (first + one, first + other, count)
        for first in firsts
        for one, other, count in _tree(min(workers_per_node, workers - first), length)
    ]
    found = _up_and_down(workers, inside)
    for first, between in zip(firsts, _ring(len(firsts), length), strict=True):
        sent, received = found[first]
        found[first] = Volume(sent + between.sent, received + between.received)
    return found


def _up_and_down(workers: int, edges: Edges) -> list[Volume]:
    moved: Counter[int] = Counter()
    for one, other, count in edges:
        moved[one] += count
        moved[other] += count
    return [Volume(moved[worker], moved[worker]) for worker in range(workers)]


def _tree(workers: int, length: int) -> Edges:
    moves = (move for moves in tree.reduction(workers, length) for move in moves)
    return [(move.sender, move.receiver, length) for move in moves]


def _star(workers: int, length: int) -> Edges:
    return [(worker, 0, length) for worker in range(1, workers)]


def _multicolor(workers: int, length: int) -> Edges:
    orders = multicolor.trees(workers)
    parts = shard_bounds(length, len(orders))
    return [
        (order[position], order[(position - 1) // len(orders)], last - first)
        for order, (first, last) in zip(orders, parts, strict=True)
        for position in range(1, workers)
    ]
