"""Binary reduction tree and broadcast (FireCaffe, Iandola et al. 2016, arXiv:1511.00175).

In round r pairs of workers at a distance of 2^r add their sums; after ceil(log2 p) rounds worker 0
has the sum, which goes the same way back. The whole vector moves each time: 2 ceil(log2 p) n bytes
pass one after the other.
"""

from functools import lru_cache

from torch import Tensor

from paceline.exchange.collective.plan import Move, Plan
from paceline.exchange.collective.wire import Wire


def all_reduce(vector: Tensor, wire: Wire) -> None:
    """Sum over workers, in place."""
    wire.carry_out(plan(wire.workers, vector.numel()), vector)


@lru_cache(maxsize=128)
def plan(workers: int, length: int) -> Plan:
    return (*reduction(workers, length), *broadcast(workers, length))


def reduction(workers: int, length: int) -> Plan:
    """To worker 0."""
    if length == 0:
        return ()
    distances = [2**level for level in range((workers - 1).bit_length())]
    return tuple(
        tuple(
            Move(far, far - distance, 0, length, adds=True)
            for far in range(distance, workers, 2 * distance)
        )
        for distance in distances
    )


def broadcast(workers: int, length: int) -> Plan:
    """From worker 0: the way of the reduction, back."""
    return tuple(
        tuple(Move(move.receiver, move.sender, 0, length, adds=False) for move in moves)
        for moves in reversed(reduction(workers, length))
    )
