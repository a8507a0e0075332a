"""Division of weights among servers: equal parts of a flat vector, or whole tensors."""

import itertools
from collections.abc import Sequence


def shard_bounds(num_weights: int, servers: int) -> list[tuple[int, int]]:
    """Return [first, last) of each server's part of a vector, equal to within one weight."""
    cuts = [num_weights * server // servers for server in range(servers + 1)]
    return list(itertools.pairwise(cuts))


def turns(servers: int, begins_with: int) -> list[int]:
    """Return the order in which a worker pushes to the servers, from `begins_with` modulo their
    number. Workers begin with different servers, so that none is idle.
    """
    return [(begins_with + turn) % servers for turn in range(servers)]


def round_robin(num_tensors: int, servers: int) -> list[range]:
    """Give each server every `servers`-th tensor, like TensorFlow's replica_device_setter."""
    return [range(server, num_tensors, servers) for server in range(servers)]


def segments(group_sizes: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
    """Return (group, size) of each overlap of [first, last) with an optimizer group."""
    overlaps: list[tuple[int, int]] = []
    start = 0
    for group, size in enumerate(group_sizes):
        overlap = min(last, start + size) - max(first, start)
        if overlap > 0:
            overlaps.append((group, overlap))
        start += size
    return overlaps
