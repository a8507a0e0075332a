"""Connection of a server to one worker, which never blocks."""

import socket
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.exchange.wire.header import HEADER_BYTES, Header, pack, unpack
from paceline.exchange.wire.pieces import Pieces, bytes_of


class ServerEnd:
    """Server's end of a connection to one worker.

    `gradient`, `statistics`: body of a push, valid until its answer. `answered`: the worker's own
    weights in shared memory; None if bodies are sent over the connection. `parts`: each [first,
    last) of the gradient, in the order in which they come over it; none if it comes as a whole.
    `numbers`: those that follow the header of a push.
    """

    def __init__(
        self,
        connection: socket.socket,
        gradient: Tensor,
        statistics: Tensor,
        answered: Tensor | None,
        parts: Sequence[tuple[int, int]] = (),
        num_numbers: int = 0,
    ) -> None:
        self.numbers = torch.zeros(num_numbers, dtype=torch.float64)
        self.connection, self.gradient, self.statistics = connection, gradient, statistics
        self._answered = answered
        self.landed = bytes_of(statistics)
        self.push_bytes = gradient.nbytes + statistics.nbytes
        self._version: int | None = None  # latest that was answered; None: no message may come
        self._header = bytearray(HEADER_BYTES)
        parts = parts or [(0, len(gradient))]
        landing = [*(bytes_of(gradient[first:last]) for first, last in parts), self.landed]
        body = landing if answered is None else []
        self._body = [bytes_of(self.numbers), *body] if num_numbers else body
        self._incoming = self._next_message()
        self._outgoing = Pieces()
        connection.setblocking(False)

    @property
    def closed(self) -> bool:
        """True if the connection is closed."""
        return self.connection.fileno() < 0

    def close(self) -> None:
        self.connection.close()

    def receive(self) -> Header | None:
        """Read available bytes; return the header once a message is complete, else None.

        Raises ConnectionError at the end of the connection, and for an invalid header.
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
        self._incoming = self._next_message()
        if not header.keep:
            self._version = None
        return header

    def answer(self, header: Header, weights: Tensor) -> None:
        """Begin to send the weights; while the answer is `pending`, they must not change.

        Raises OSError.
        """
        self._version = header.version
        if self._answered is not None:
            self._answered.copy_(weights)
            self._outgoing = Pieces(memoryview(pack(header)))
        else:
            self._outgoing = Pieces(memoryview(pack(header)), bytes_of(weights))
        self.flush()

    def keep(self, header: Header, weights: Tensor) -> None:
        """Send the rest of an answer that is `pending` from a copy of its weights."""
        done = self._outgoing.done
        self._outgoing = Pieces(memoryview(pack(header)), bytes_of(weights))
        self._outgoing.done = done

    def flush(self) -> None:
        """Continue to send an answer that is `pending`. Raises OSError."""
        self._outgoing.send(self.connection)

    @property
    def pending(self) -> bool:
        """True if part of an answer is not sent yet."""
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
