"""Five ways to sum a vector over workers, their schedules, and the formulas of their costs.

    ring = collective("ring")
    GroupWire().all_reduce(vector, ring)       # in place; all workers call it
    ring.seconds(num_bytes, workers, profile)  # modelled; needs no torch

Formulas have n bytes, p workers, and a link with bandwidth BW [bytes/s] and a latency [s]. Workers
fill node after node, and the slowest link decides.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from paceline.errors import SettingError
from paceline.exchange.shard import shard_bounds
from paceline.timing.profile import ClusterProfile

_PIECES_PER_FILLING = 24  # so filling costs 4 %; with more pieces, rounds of some ms add up
_MIN_PIECE = 4096  # elements; a smaller message costs no less
_MAX_COLORS = 4  # of Kumar's example: 8 nodes, 4 colors
_NUMBER = 4  # bytes of a number, which is a float32


class Move(NamedTuple):
    """Message with the elements [first, last) of the sender's vector to `receiver`, which either
    adds them to its own elements or replaces these by them.
    """

    sender: int
    receiver: int
    first: int
    last: int
    adds: bool


Part = tuple[int, int]  # [first, last) of the vector
Round = tuple[Move, ...]  # every worker sends the values that it had when the round began
Schedule = tuple[Round, ...]  # of all workers; it holds no data, so it needs no processes


class Volume(NamedTuple):
    """Number of elements that one worker sends and receives in one all-reduce."""

    sent: int
    received: int

    def in_bytes(self, element_size: int) -> tuple[int, int]:
        """Return (sent, received) [bytes] for elements of `element_size` bytes."""
        return self.sent * element_size, self.received * element_size


Volumes = tuple[Volume, ...]  # of each worker


class NodeMessages(NamedTuple):
    """Messages that the workers of one node send in one all-reduce. `num_vectors`: bytes of all
    these messages, divided by the bytes of the vector.
    """

    num_messages: int
    num_vectors: float


class AbstractCollective(ABC):
    """A way to sum a vector over workers, so that all of them end with the same bits."""

    @abstractmethod
    def make_schedule(self, workers: int, length: int) -> Schedule:
        """Return all moves of a vector [length]; no move is empty."""

    @abstractmethod
    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Model the seconds that the links take for `num_bytes` and at least 2 workers. The
        docstring gives the formula and its source.
        """

    @abstractmethod
    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count what a node with `workers_of_node` of all the workers sends."""

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count what each worker sends and receives for a vector [length]."""
        return _summed(self.make_schedule(workers, length), workers)

    @lru_cache(maxsize=128)  # noqa: B019 - a collective lives as long as this module
    def volumes(self, workers: int, length: int) -> Volumes:
        """Return what each worker sends and receives for a vector [length]."""
        return self.count_volumes(workers, length)

    @lru_cache(maxsize=128)  # noqa: B019
    def schedule(self, workers: int, length: int) -> Schedule:
        """Return all moves of a vector [length]."""
        return self.make_schedule(workers, length)

    def seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Model the seconds until every worker has the sum of `num_bytes`; 0 for one worker. It
        takes at least as long as the cores of a node need to pass all its messages.
        """
        if workers == 1:
            return 0.0
        profile, of_node = profile.in_all_reduce, profile.largest_node(workers)
        on_links = self.link_seconds(num_bytes, workers, profile)
        count, vectors = self.node_messages(workers, of_node)
        on_cores = profile.core_seconds(count, vectors * num_bytes, of_node)
        return max(on_links, on_cores) + profile.added_seconds("allreduce")


class Ring(AbstractCollective):
    """Ring all-reduce (Patarasuk & Yuan 2009, J. Parallel Distrib. Comput. 69).

    The vector is cut into one part per worker. In p-1 rounds each worker sends a part to its
    neighbour, which adds it, until each worker has the sum of one part. In p-1 more rounds the sums
    go round. Each worker sends 2 (p-1)/p n bytes.
    """

    def make_schedule(self, workers: int, length: int) -> Schedule:
        bounds = shard_bounds(length, workers)

        def hand_on(offset: int, *, adds: bool) -> Round:
            """Let worker w send part w + offset to its neighbour, unless the part is empty."""
            parts = [bounds[(worker + offset) % workers] for worker in range(workers)]
            moves = (Move(w, (w + 1) % workers, *part, adds) for w, part in enumerate(parts))
            return tuple(move for move in moves if move.last > move.first)

        reduce_scatter = [hand_on(-number, adds=True) for number in range(workers - 1)]
        all_gather = [hand_on(1 - number, adds=False) for number in range(workers - 1)]
        return (*reduce_scatter, *all_gather)

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count without building the schedule, which grows with the square of the workers. Worker w
        sends all parts but w + 1, then all but w + 2.
        """
        sizes = [last - first for first, last in shard_bounds(length, workers)]
        left = [sizes[(w + 1) % workers] + sizes[(w + 2) % workers] for w in range(workers)]
        return tuple(Volume(2 * length - left[w], 2 * length - left[w - 1]) for w in range(workers))

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return 2 (p-1)/p n/BW + 2 (p-1) latency (Patarasuk & Yuan 2009, J. Parallel Distrib.
        Comput. 69). There are 2 (p-1) rounds, each as long as the slowest link takes for n/p bytes.
        Only one worker of a node sends out of it, and only one receives, so no link is shared.
        """
        levels = profile.levels(workers)
        return 2 * (workers - 1) * max(link.seconds(num_bytes / workers) for link, _ in levels)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        num_messages = 2 * (workers - 1) * workers_of_node
        return NodeMessages(num_messages, num_messages / workers)


class Native(Ring):
    """The backend's own all-reduce, which does not report its bytes, modelled as a ring. gloo uses
    a ring (gloo/allreduce.cc), and NCCL does for large vectors; the bytes of gloo were measured
    within 1 % of a ring's.
    """

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count two messages for each of a ring: gloo halves each part, to send one half while it
        adds the other (gloo/allreduce.cc).
        """
        ring = super().node_messages(workers, workers_of_node)
        return NodeMessages(2 * ring.num_messages, ring.num_vectors)


class Tree(AbstractCollective):
    """Binary reduction tree and broadcast (FireCaffe, Iandola et al. 2016, arXiv:1511.00175).

    In round r pairs of workers at a distance of 2^r add their sums. After ceil(log2 p) rounds
    worker 0 has the total, which returns the same way. Each message is the whole vector, so
    2 ceil(log2 p) n bytes follow each other.
    """

    def make_schedule(self, workers: int, length: int) -> Schedule:
        if length == 0:
            return ()
        distances = [2**level for level in range((workers - 1).bit_length())]
        reduction = [
            tuple(
                Move(far, far - distance, 0, length, adds=True)
                for far in range(distance, workers, 2 * distance)
            )
            for distance in distances
        ]
        broadcast = [
            tuple(Move(move.receiver, move.sender, 0, length, adds=False) for move in moves)
            for moves in reversed(reduction)
        ]
        return (*reduction, *broadcast)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return 2 ceil(log2 p) (n/BW + latency) (Iandola et al. 2016, arXiv:1511.00175; latency
        ours). Workers of a node are summed first; then one of each node uses its interface.
        """
        return sum(
            2 * math.ceil(math.log2(count)) * link.seconds(num_bytes)
            for link, count in profile.levels(workers)
        )

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        up_and_down = 2 * (workers_of_node - 1)
        return NodeMessages(up_and_down, up_and_down)


class ParameterServer(AbstractCollective):
    """Reduction at one server: FireCaffe's comparison (Iandola et al. 2016, arXiv:1511.00175).

    Worker 0 is also the server, so p-1 gradients pass its link: (p-1) n bytes, or p n if the server
    is a separate process. Vectors are cut into pieces, so that sums of some pieces leave while
    other pieces of the gradients arrive.

    Pushes of up to 16 processes of ours to one at the same time, over shaped links, take about as
    long as their bytes do from 3 MB on; those of 30 KB and 300 KB took 2.96 and 3.58 times as long.
    `python -m benchmarks links` holds this formula to all-reduces of 54 MB.
    """

    def make_schedule(self, workers: int, length: int) -> Schedule:
        parts = pieces(0, length, filling=1) if length else []
        others = range(1, workers)
        pushes = [tuple(Move(worker, 0, *part, adds=True) for worker in others) for part in parts]
        answers = [tuple(Move(0, worker, *part, adds=False) for worker in others) for part in parts]
        # each sum leaves in the round after it is made
        return tuple((*p, *a) for p, a in zip([*pushes, ()], [(), *answers], strict=True))

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count without building the schedule, which has two moves for each piece and worker."""
        others = workers - 1
        return (Volume(others * length, others * length), *[Volume(length, length)] * others)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return (1 + 1/c) (p-1) n/BW + (c+1) latency, for c pieces, of the slower of two levels:
        the workers of the other nodes, whose gradients all pass the link of the server's node, and
        those of its own node. (Ours, from the schedule. Iandola et al. 2016, arXiv:1511.00175, have
        p n/BW, for a server that is a separate process.)
        """
        of_node = profile.largest_node(workers)
        count = len(pieces(0, num_bytes // _NUMBER, filling=1))
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


class Multicolor(AbstractCollective):
    """Multicolor all-reduce (Kumar et al. 2017, arXiv:1711.00705; trees reconstructed by us).

    The vector is cut into k parts, called colors. Each color has a k-ary tree over all workers,
    along which its part is reduced and then broadcast in pieces. All colors are active at once. No
    worker is an inner node of two trees, so a worker sends at most 2 n bytes, and a piece passes
    about 2 log_k p links instead of a ring's 2 (p-1).
    """

    def make_schedule(self, workers: int, length: int) -> Schedule:
        filling = 2 * _depth(workers) - 2  # the first and the last round carry half of others
        parts = shard_bounds(length, num_colors(workers))
        return _pipelined(workers, [pieces(*part, filling) for part in parts])

    def count_volumes(self, workers: int, length: int) -> Volumes:
        """Count for uncut parts, since cutting them into pieces does not change the volume."""
        whole = [[part] for part in shard_bounds(length, num_colors(workers))]
        return _summed(_pipelined(workers, whole), workers)

    def link_seconds(self, num_bytes: int, workers: int, profile: ClusterProfile) -> float:
        """Return share n/BW + 2 depth latency, with share <= 2 (Kumar et al. 2017,
        arXiv:1711.00705; formula ours).

        There are k trees of n/k bytes, each k-ary, with disjoint inner nodes. They are pipelined in
        segments so small that filling the pipeline costs only latency. As with Kumar's GPUs,
        workers of a node are summed first; then one worker of each node uses its interface.
        """
        levels = profile.levels(workers)
        latency = sum(2 * _depth(count) * link.latency for link, count in levels)
        return latency + max(_sent(count) * num_bytes / link.bandwidth for link, count in levels)

    def node_messages(self, workers: int, workers_of_node: int) -> NodeMessages:
        """Count a message up and one down for each color and worker except the root."""
        up_and_down = 2 * (workers_of_node - 1)
        return NodeMessages(num_colors(workers_of_node) * up_and_down, up_and_down)


def num_colors(workers: int) -> int:
    """Return the largest number of colors, up to 4, for which no worker is an inner node of two
    trees. Each of k colors has a tree with k children per node. With p workers it has ceil((p-1)/k)
    inner nodes. All k trees have at most p of them if p mod k is 0 or 1, as always for k = 2.
    """
    most = min(_MAX_COLORS, workers)
    return next(k for k in range(most, 0, -1) if workers % k <= 1)


def trees(workers: int) -> list[list[int]]:
    """List the workers of each color's tree by position: the parent of position i is (i - 1) // k,
    and 0 is the root. Inner nodes come first; each color starts after those of the one before.
    """
    starts = [first for first, _ in shard_bounds(workers, num_colors(workers))]
    return [[(start + position) % workers for position in range(workers)] for start in starts]


def _pipelined(workers: int, parts: list[list[Part]]) -> Schedule:
    """Return the moves of all trees. `parts`: pieces of each color; piece s leaves the lowest level
    in round s.
    """
    orders, rounds = trees(workers), defaultdict[int, list[Move]](list)
    levels = _levels(workers, len(orders))
    for order, of_color in zip(orders, parts, strict=True):
        for number, part in enumerate(part for part in of_color if part[0] < part[1]):
            at_root = number + levels[-1]
            for position in range(1, workers):
                member, parent = order[position], order[(position - 1) // len(orders)]
                level = levels[position]
                rounds[at_root - level].append(Move(member, parent, *part, adds=True))
                rounds[at_root + level - 1].append(Move(parent, member, *part, adds=False))
    return tuple(tuple(rounds[number]) for number in range(len(rounds)))


def _levels(members: int, children: int) -> list[int]:
    """Return the distance of each position from the root."""
    levels = [0]
    for position in range(1, members):
        levels.append(levels[(position - 1) // children] + 1)
    return levels


def _depth(members: int) -> int:
    """Return the distance of the lowest level from the root."""
    return _levels(members, num_colors(members))[-1]


def _sent(members: int) -> float:
    """Return the most that a worker sends, as a multiple of n; another worker receives as much.
    That worker is an inner node of one of k trees. It sends n/k bytes up in each tree (if it is the
    root, in k-1 trees), and n/k to each of its children.
    """
    num_trees = num_colors(members)
    root = num_trees - 1 + min(num_trees, members - 1)
    below = num_trees + max(0, min(num_trees, members - 1 - num_trees))
    return max(root, below) / num_trees


def pieces(first: int, last: int, filling: int) -> list[Part]:
    """Cut [first, last) into equal parts, to within one element, for a pipeline. `filling`: number
    of rounds from the start of the first piece to its arrival.
    """
    count = max(1, min(_PIECES_PER_FILLING * filling, (last - first) // _MIN_PIECE))
    return [(first + start, first + end) for start, end in shard_bounds(last - first, count)]


def _summed(schedule: Schedule, workers: int) -> Volumes:
    """Add up what each of the workers sends and receives in a schedule."""
    sent, received = Counter[int](), Counter[int]()
    for move in chain.from_iterable(schedule):
        sent[move.sender] += move.last - move.first
        received[move.receiver] += move.last - move.first
    return tuple(Volume(sent[worker], received[worker]) for worker in range(workers))


COLLECTIVES: dict[str, AbstractCollective] = {
    "multicolor": Multicolor(),
    "native": Native(),
    "parameter_server": ParameterServer(),
    "ring": Ring(),
    "tree": Tree(),
}


def collective(name: str) -> AbstractCollective:
    """Return a collective. Raises SettingError("scheme.collective") for an unknown name."""
    if name not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise SettingError("scheme.collective", f"there is no {name}; there are: {known}")
    return COLLECTIVES[name]
