"""Division of weights among servers: of a flat vector into equal parts, or of whole tensors."""

import itertools
from collections.abc import Sequence


def shard_bounds(num_weights: int, servers: int) -> list[tuple[int, int]]:
    """Cut a vector into one part [first, last) for each server, equal to within one weight.

    All weights of a point have one dtype, so equal counts are equal bytes.
    """
    cuts = [num_weights * server // servers for server in range(servers + 1)]
    return list(itertools.pairwise(cuts))


def turns(servers: int, begins_with: int) -> list[int]:
    """List the servers in the order in which a worker pushes to them.

    `begins_with`: the first, modulo their number. If it were the same for all workers, the others
    would be idle.
    """
    return [(begins_with + turn) % servers for turn in range(servers)]


def round_robin(num_tensors: int, servers: int) -> list[range]:
    """Give each server every `servers`-th tensor: TensorFlow's replica_device_setter does."""
    return [range(server, num_tensors, servers) for server in range(servers)]


def imbalance(tensors: Sequence[int], servers: int) -> float:
    """Return the largest of the servers' shares by their mean; `tensors`: sizes, in order."""
    shares = [sum(tensors[n] for n in part) for part in round_robin(len(tensors), servers)]
    return max(shares) * servers / sum(shares)


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
