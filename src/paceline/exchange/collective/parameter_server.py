"""All to one and back: FireCaffe's comparison (Iandola et al. 2016, arXiv:1511.00175).

Worker 0 is the server as well, so p-1 gradients pass its link: (p-1) n bytes (p n where the server
is a process of its own). In pieces, so that sums go out while gradients come in.
"""

from functools import lru_cache

from torch import Tensor

from paceline.exchange.collective.plan import Move, Plan, pieces, together
from paceline.exchange.collective.wire import Wire

_SERVER = 0


def all_reduce(vector: Tensor, wire: Wire) -> None:
    """Sum over workers, in place."""
    wire.carry_out(plan(wire.workers, vector.numel()), vector)


@lru_cache(maxsize=128)
def plan(workers: int, length: int) -> Plan:
    parts = pieces(0, length) if length else []
    others = [worker for worker in range(workers) if worker != _SERVER]
    to_server = tuple(
        tuple(Move(worker, _SERVER, *part, adds=True) for worker in others) for part in parts
    )
    back = tuple(
        tuple(Move(_SERVER, worker, *part, adds=False) for worker in others) for part in parts
    )
    return together([to_server, ((), *back)])  # each sum goes out in the round after it is made
