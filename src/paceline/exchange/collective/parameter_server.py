"""Reduction at one server: FireCaffe's comparison (Iandola et al. 2016, arXiv:1511.00175).

Worker 0 is also the server, so p-1 gradients pass its link: (p-1) n bytes, or p n if the server is
a separate process. Vectors are cut into pieces, so that sums of some pieces leave while other
pieces of the gradients arrive.

Pushes of up to 16 processes of ours to one at the same time, over shaped links, take about as long
as their bytes do from 3 MB on; those of 30 KB and 300 KB took 2.96 and 3.58 times as long. `python
-m benchmarks links` holds this formula to all-reduces of 54 MB.
"""

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Schedule, Volume, Volumes, pieces, together
from paceline.timing.profile import ClusterProfile

_SERVER = 0
_NUMBER = 4  # bytes of a number, which is a float32


class ParameterServer(AbstractScheduledCollective):
    """One worker receives all vectors and sends their sum to all."""

    def make_schedule(self, workers: int, length: int) -> Schedule:
        parts = _pieces(length) if length else []
        others = [worker for worker in range(workers) if worker != _SERVER]
        to_server = tuple(
            tuple(Move(worker, _SERVER, *part, adds=True) for worker in others) for part in parts
        )
        back = tuple(
            tuple(Move(_SERVER, worker, *part, adds=False) for worker in others) for part in parts
        )
        return together([to_server, ((), *back)])  # each sum goes out in the round after it is made

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count without building the schedule, which has two moves for each piece and worker."""
        counts = [(workers - 1) * length if w == _SERVER else length for w in range(workers)]
        return tuple(Volume(count, count) for count in counts)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return (1 + 1/c) (p-1) n/BW + (c+1) latency, for c pieces, of the slower of two levels:
        the workers of the other nodes, whose gradients all pass the link of the server's node, and
        those of its own node. (Ours, from the schedule. Iandola et al. 2016, arXiv:1511.00175, have
        p n/BW, for a server that is a separate process.)
        """
        of_node = profile.largest_node(workers)
        count = len(_pieces(num_bytes // _NUMBER))
        levels = ((profile.link, workers - of_node), (profile.node_link, of_node - 1))
        return max(
            (count + 1) * link.seconds(others * num_bytes / count)
            for link, others in levels
            if others
        )

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count for the server's node: a push of each of its other workers, and all answers."""
        count = workers_of_node - 1 + workers - 1
        return NodeMessages(count, count)


def _pieces(length: int) -> list[tuple[int, int]]:
    return pieces(0, length, filling=1)
