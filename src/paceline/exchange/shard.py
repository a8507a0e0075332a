"""Division of a flat vector into parts that are equal to within one element."""

import itertools
from collections.abc import Sequence


def shard_bounds(num_weights: int, servers: int) -> list[tuple[int, int]]:
    """Cut a vector into one part [first, last) for each server, equal to within one weight.

    All weights of a point have one dtype, so equal counts are equal bytes.
    """
    cuts = [num_weights * server // servers for server in range(servers + 1)]
    return list(itertools.pairwise(cuts))


def segments(group_sizes: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
    """List the optimizer groups that overlap [first, last), and the size of each overlap."""
    overlaps: list[tuple[int, int]] = []
    start = 0
    for group, size in enumerate(group_sizes):
        overlap = min(last, start + size) - max(first, start)
        if overlap > 0:
            overlaps.append((group, overlap))
        start += size
    return overlaps


def backwards(sizes: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
    """Cut [first, last) between the parts of a vector, which have these sizes in order.

    The pieces come from the last to the first; without sizes there is one.
    """
    ends = [end for end in itertools.accumulate(sizes) if first < end < last]
    return list(itertools.pairwise([first, *ends, last]))[::-1]
