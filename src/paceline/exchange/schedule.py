"""Schedule of a collective: which worker sends which part of the vector to which other, by
rounds.

It covers all workers and holds no data, so it can be checked without processes. In a round every
worker sends the values that it had when the round began.
"""

from collections import Counter
from itertools import zip_longest
from typing import NamedTuple

from paceline.exchange.shard import shard_bounds

_PIECES_PER_FILLING = 24  # so filling costs 4 %; with more pieces, rounds of some ms add up
_MIN_PIECE = 4096  # elements; a smaller message costs no less


class Move(NamedTuple):
    """Message with the elements [first, last) of the sender's vector to `receiver`, which either
    adds them to its own elements or replaces these by them.
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
    """Merge schedules that run at the same time, round by round."""
    rounds = zip_longest(*schedules, fillvalue=())
    return tuple(tuple(move for moves in at_once for move in moves) for at_once in rounds)


def pieces(first: int, last: int, filling: int) -> list[tuple[int, int]]:
    """Cut [first, last) into equal parts, to within one element, for a pipeline. `filling`: number
    of rounds from the start of the first piece to its arrival.
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
