"""Connection of a server to one worker, which never waits for what is not there."""

import socket

from torch import Tensor

from paceline.exchange.wire.header import HEADER_BYTES, Header, pack, unpack
from paceline.exchange.wire.pieces import Pieces, bytes_of


class ServerEnd:
    """The end of a server for one worker.

    `gradient`, `statistics`: where the bodies of pushes are, from a push to its answer.
    `answered`: the worker's own weights, in memory that is shared with it; None where bodies are
    sent over the connection.
    """

    def __init__(
        self,
        connection: socket.socket,
        gradient: Tensor,
        statistics: Tensor,
        answered: Tensor | None,
    ) -> None:
        self.connection, self.gradient, self.statistics = connection, gradient, statistics
        self._answered = answered
        self.landed = bytes_of(statistics)
        self.push_bytes = gradient.nbytes + statistics.nbytes
        self._version: int | None = None  # that the worker may answer to; None: it may not speak
        self._header = bytearray(HEADER_BYTES)
        self._body = [] if answered is not None else [bytes_of(gradient), self.landed]
        self._incoming = self._next_message()
        self._outgoing = Pieces()
        connection.setblocking(False)

    @property
    def closed(self) -> bool:
        """Say whether nothing can be sent any more."""
        return self.connection.fileno() < 0

    def close(self) -> None:
        self.connection.close()

    def receive(self) -> Header | None:
        """Read what is there; return the header of a message that is complete now.

        Raises ConnectionError at the end of the connection, and where the worker says what it
        cannot mean.
        """
        try:
            self._incoming.receive(self.connection)
        except BlockingIOError:
            return None
        except EOFError:
            within = " in the middle of a push" if self._incoming.done else ""
            raise ConnectionError(f"its connection ended{within}") from None
        if self._incoming.done < HEADER_BYTES:
            return None
        header = self._checked()
        if header.proceed and not self._incoming.complete:
            return None
        self._incoming, self._version = self._next_message(), None
        return header

    def answer(self, header: Header, weights: Tensor) -> None:
        """Begin to send the weights, which must not change while this is `pending`.

        Raises OSError.
        """
        self._version = header.version
        if self._answered is not None:
            self._answered.copy_(weights)
            self._outgoing = Pieces(memoryview(pack(header)))
        else:
            self._outgoing = Pieces(memoryview(pack(header)), bytes_of(weights))
        self.flush()

    def flush(self) -> None:
        """Send more of an answer that did not fit. Raises OSError."""
        self._outgoing.send(self.connection)

    @property
    def pending(self) -> bool:
        """Say whether part of an answer is still to be sent."""
        return not self._outgoing.complete

    def _next_message(self) -> Pieces:
        return Pieces(memoryview(self._header), *self._body)

    def _checked(self) -> Header:
        try:
            header = unpack(self._header)
        except ValueError as error:
            raise ConnectionError(f"it broke the protocol: {error}") from None
        if self._version is None or header.version > self._version:
            raise ConnectionError(f"it broke the protocol: an untimely {header}")
        return header
