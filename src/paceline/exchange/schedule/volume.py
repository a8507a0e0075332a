"""Number of elements that each worker sends and receives in a collective."""

from collections import Counter
from typing import NamedTuple

from paceline.exchange.schedule.moves import Schedule


class Volume(NamedTuple):
    """Number of elements that one worker sends and receives in one all-reduce."""

    sent: int
    received: int

    def in_bytes(self, element_size: int) -> tuple[int, int]:
        """Return (sent, received) [bytes] for elements of `element_size` bytes."""
        return self.sent * element_size, self.received * element_size


Volumes = tuple[Volume, ...]  # of each worker


def summed(schedule: Schedule, workers: int) -> Volumes:
    """Add up what each of the workers sends and receives in a schedule."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for move in (move for moves in schedule for move in moves):
        sent[move.sender] += move.last - move.first
        received[move.receiver] += move.last - move.first
    return tuple(Volume(sent[worker], received[worker]) for worker in range(workers))
