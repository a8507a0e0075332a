"""The first of a group of workers, which push as one: to the others it is their server."""

from collections.abc import Sequence

from torch import Tensor

from paceline.exchange.lost import Lost, LostPeerError
from paceline.exchange.wire.header import Header
from paceline.exchange.wire.push_pull import ServerWire


class GroupLink:
    """`others`: ranks of those who push to this worker. `weights` [num_weights]: what it hands on
    to them.
    """

    def __init__(self, weights: Tensor, num_statistics: int, others: Sequence[int]) -> None:
        self.wire = ServerWire(weights, num_statistics, others)
        self._others = others

    def take(self, gradient: Tensor, statistics: Tensor) -> None:
        """Wait for all, and replace both vectors by the group's mean. Raises LostPeerError."""
        self._hear_all()
        for other in self._others:
            gradient += self.wire.gradient(other)
            statistics += self.wire.statistics(other)
        for vector in (gradient, statistics):
            vector /= len(self._others) + 1

    def hand_on(self, version: int, granted: bool) -> None:
        """Pass the weights on to the others, as the servers answered."""
        for other in self._others:
            self.wire.answer(other, Header(version, granted))

    def finish(self) -> None:
        """Wait until the others, which take no other step, have left."""
        self._hear_all()

    def _hear_all(self) -> None:
        """Receive one message of each."""
        for _ in self._others:
            other, message = self.wire.receive()
            if isinstance(message, Lost):
                raise LostPeerError(f"worker {other} is gone: {message.reason}")
