"""Division of a flat vector of weights among servers."""

import itertools


def shard_bounds(num_weights: int, servers: int) -> list[tuple[int, int]]:
    """[first, last) of each server's part, equal in bytes to within one weight.

    All weights of a point have one dtype, so equal counts are equal bytes.
    """
    cuts = [num_weights * server // servers for server in range(servers + 1)]
    return list(itertools.pairwise(cuts))


def segments(group_sizes: list[int], first: int, last: int) -> list[tuple[int, int]]:
    """Which optimizer groups lie in [first, last): pairs (group, number of weights in it)."""
    found = []
    start = 0
    for group, size in enumerate(group_sizes):
        overlap = min(last, start + size) - max(first, start)
        if overlap > 0:
            found.append((group, overlap))
        start += size
    return found
