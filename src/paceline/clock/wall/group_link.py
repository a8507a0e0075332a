"""Link of the first worker of a group that pushes as one; it acts as a server for the others."""

from collections.abc import Sequence

from torch import Tensor

from paceline.exchange.lost import Lost, LostPeerError
from paceline.exchange.wire.header import Header
from paceline.exchange.wire.push_pull import ServerWire


class GroupLink:
    """Link of a group's first worker to the others.

    `others`: their ranks. `weights` [num_weights]: weights that they get, changed by the caller.
    `num_numbers`: options of the optimizer in each push; the first worker's go on to the servers.
    """

    def __init__(
        self, weights: Tensor, num_statistics: int, others: Sequence[int], num_numbers: int
    ) -> None:
        self.wire = ServerWire(weights, num_statistics, others, num_numbers=num_numbers)
        self._others = others

    def take(self, gradient: Tensor, statistics: Tensor) -> None:
        """Wait for the others' pushes; replace both arguments by the group's mean, in place.

        Raises LostPeerError.
        """
        self._receive_all()
        for other in self._others:
            gradient += self.wire.gradient(other)
            statistics += self.wire.statistics(other)
        for vector in (gradient, statistics):
            vector /= len(self._others) + 1

    def hand_on(self, answer: Header) -> None:
        """Send the weights to the others, as the servers answered."""
        for other in self._others:
            self.wire.answer(other, answer)
        self.wire.flush()

    def finish(self) -> None:
        """Wait until the others have left. Raises LostPeerError."""
        self._receive_all()

    def _receive_all(self) -> None:
        """Receive one message of each."""
        for _ in self._others:
            other, message = self.wire.receive()
            if isinstance(message, Lost):
                raise LostPeerError(f"worker {other} is gone: {message.reason}")
