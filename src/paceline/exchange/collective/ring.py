"""Ring all-reduce (Patarasuk & Yuan 2009, J. Parallel Distrib. Comput. 69).

The vector is cut into one part per worker. In p-1 rounds each worker hands a part on to its
neighbour, who adds it; then one part is complete at each, and in p-1 rounds these go round.
Each worker sends 2 (p-1)/p n bytes.
"""

from functools import lru_cache

from torch import Tensor

from paceline.exchange.collective.plan import Move, Plan, Round
from paceline.exchange.collective.wire import Wire
from paceline.exchange.shard import shard_bounds


def all_reduce(vector: Tensor, wire: Wire) -> None:
    """Sum over workers, in place."""
    wire.carry_out(plan(wire.workers, vector.numel()), vector)


@lru_cache(maxsize=128)
def plan(workers: int, length: int) -> Plan:
    bounds = shard_bounds(length, workers)
    reduce_scatter = [_hand_on(bounds, -turn, adds=True) for turn in range(workers - 1)]
    all_gather = [_hand_on(bounds, 1 - turn, adds=False) for turn in range(workers - 1)]
    return (*reduce_scatter, *all_gather)


def _hand_on(bounds: list[tuple[int, int]], offset: int, *, adds: bool) -> Round:
    """Worker w sends part w + offset to its neighbour; no message where the part is empty."""
    workers = len(bounds)
    moves = (
        Move(worker, (worker + 1) % workers, *bounds[(worker + offset) % workers], adds)
        for worker in range(workers)
    )
    return tuple(move for move in moves if move.last > move.first)
