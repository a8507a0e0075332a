"""Reduction at one server: FireCaffe's comparison (Iandola et al. 2016, arXiv:1511.00175).

Worker 0 is also the server, so p-1 gradients pass its link: (p-1) n bytes, or p n if the server is
a separate process. Vectors are cut into pieces, so that sums of some pieces leave while other
pieces of the gradients arrive.
"""

from paceline.exchange.abstract_collective import AbstractScheduledCollective, NodeMessages
from paceline.exchange.schedule import Move, Schedule, Volume, Volumes, pieces, together
from paceline.timing.profile import ClusterProfile

_SERVER = 0


class ParameterServer(AbstractScheduledCollective):
    """One worker receives all vectors and sends their sum to all."""

    def make_schedule(self, workers: int, length: int, workers_per_node: int) -> Schedule:
        parts = pieces(0, length, filling=1) if length else []
        others = [worker for worker in range(workers) if worker != _SERVER]
        to_server = tuple(
            tuple(Move(worker, _SERVER, *part, adds=True) for worker in others) for part in parts
        )
        back = tuple(
            tuple(Move(_SERVER, worker, *part, adds=False) for worker in others) for part in parts
        )
        return together([to_server, ((), *back)])  # each sum goes out in the round after it is made

    def count_volumes(self, workers: int, length: int, workers_per_node: int) -> Volumes:
        """Count without building the schedule, which has two moves for each piece and worker."""
        counts = [(workers - 1) * length if w == _SERVER else length for w in range(workers)]
        return tuple(Volume(count, count) for count in counts)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return p n/BW + 2 latency (Iandola et al. 2016, arXiv:1511.00175; we added the latency of
        both ways). All p gradients pass the link of the one server, which is on its own node if
        there are several. A worker's node sends and receives no more than that.
        """
        link = profile.node_link if profile.one_machine else profile.link
        return workers * num_bytes / link.bandwidth + 2 * link.latency

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count a push and an answer for each worker; the server is a separate process."""
        return NodeMessages(2 * workers_of_node, 2 * workers_of_node)
