"""Schedule of a collective: the moves of parts of the vector between workers, round by round.

A schedule is about all workers and holds no data, so that it can be checked without processes. In a
round every worker sends what it had when the round began, and takes in what arrives.
"""

from collections import Counter
from itertools import zip_longest
from typing import NamedTuple

from paceline.exchange.shard import shard_bounds

_PIECES_PER_FILLING = 24  # a round costs some milliseconds, filling 4 % more
_MIN_PIECE = 4096  # elements; a smaller message costs no less


class Move(NamedTuple):
    """The elements [first, last) on their way from `sender` to `receiver`.

    The receiver adds them to its own (`adds`), or replaces its own by them.
    """

    sender: int
    receiver: int
    first: int
    last: int
    adds: bool


Round = tuple[Move, ...]
Schedule = tuple[Round, ...]


class Volume(NamedTuple):
    """Number of elements that one worker sends and receives in one all-reduce."""

    sent: int
    received: int

    def in_bytes(self, element_size: int) -> tuple[int, int]:
        """Return (sent, received) [bytes] for elements of `element_size` bytes."""
        return self.sent * element_size, self.received * element_size


Volumes = tuple[Volume, ...]  # of each worker


def together(schedules: list[Schedule]) -> Schedule:
    """Carry out several schedules at the same time, round by round."""
    rounds = zip_longest(*schedules, fillvalue=())
    return tuple(tuple(move for moves in at_once for move in moves) for at_once in rounds)


def among(members: range, schedule: Schedule) -> Schedule:
    """Give the part of worker n in a schedule to the n-th of `members`."""
    return tuple(
        tuple(
            move._replace(sender=members[move.sender], receiver=members[move.receiver])
            for move in moves
        )
        for moves in schedule
    )


def pieces(first: int, last: int, filling: int) -> list[tuple[int, int]]:
    """Cut [first, last) for a pipeline, into parts that are equal to within one element.

    `filling`: number of rounds between the first piece's start and its arrival, in which not all of
    the pipeline is at work.
    """
    count = max(1, min(_PIECES_PER_FILLING * filling, (last - first) // _MIN_PIECE))
    return [(first + start, first + end) for start, end in shard_bounds(last - first, count)]


def summed(schedule: Schedule, workers: int) -> Volumes:
    """Add up what each of the workers sends and receives in a schedule."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for move in (move for moves in schedule for move in moves):
        sent[move.sender] += move.last - move.first
        received[move.receiver] += move.last - move.first
    return tuple(Volume(sent[worker], received[worker]) for worker in range(workers))
