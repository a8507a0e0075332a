"""Parts of the gradients, in the order in which backward has them: their times, and their places.

Gradients are one vector in the order of the layers, which backward fills from its end.
"""

from collections.abc import Sequence
from typing import NamedTuple

BACKWARD_SHARE = 2 / 3  # of a step's compute; backward does two products for each of forward's


class Bucket(NamedTuple):
    """Part of the gradients that is reduced or pushed at a time.

    `ready`: share of backward after which it is there.
    """

    num_bytes: int
    ready: float


def share_of_step(ready: float) -> float:
    """Return the share of a step's compute after which a share of its backward is done."""
    return 1 - BACKWARD_SHARE * (1 - ready)


def part_sizes(parts: Sequence[Bucket], num_weights: int) -> list[int]:
    """Divide a vector like `parts`, by bytes; return the numbers of weights, from its begin on."""
    total, left = sum(part.num_bytes for part in parts), num_weights
    sizes, behind = list[int](), 0
    for part in parts:
        behind += part.num_bytes
        begin = num_weights - round(num_weights * behind / total)
        sizes.append(left - begin)
        left = begin
    return sizes[::-1]


def parts_within(
    parts: Sequence[Bucket], first: float, last: float, num_bytes: int
) -> list[Bucket]:
    """Return the parts of a piece of the vector, which together have its `num_bytes`.

    `first`, `last`: of the piece, as shares of the vector.
    """
    total = sum(part.num_bytes for part in parts)
    begin, end = first * total, last * total
    found, at, behind = list[Bucket](), total, 0
    for part in parts:
        at -= part.num_bytes
        inside = (end - max(at, begin)) / (end - begin)
        reached = round(num_bytes * min(max(inside, 0.0), 1.0))
        if reached > behind:
            found.append(Bucket(reached - behind, part.ready))
            behind = reached
    return found
