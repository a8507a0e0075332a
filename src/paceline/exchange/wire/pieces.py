"""Buffers that are sent or filled one after another, in as many calls as a socket needs."""

import socket

import torch
from torch import Tensor


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor as bytes, without a copy."""
    return tensor.view(torch.uint8).numpy().data


class Pieces:
    """A sequence of buffers. `done`: number of bytes that are sent or received."""

    def __init__(self, *buffers: memoryview) -> None:
        self._buffers = buffers
        self._num_bytes = sum(len(buffer) for buffer in buffers)
        self.done = 0

    @property
    def complete(self) -> bool:
        return self.done == self._num_bytes

    def send(self, connection: socket.socket) -> None:
        """Send as much as the socket takes now, or all if it blocks. Raises OSError."""
        while not self.complete:
            try:
                self.done += connection.sendmsg(self._rest())
            except BlockingIOError:
                return

    def receive(self, connection: socket.socket) -> None:
        """Read once from the socket. Raises OSError, or EOFError at the end of the connection."""
        more = connection.recvmsg_into(self._rest())[0]
        if more == 0:
            raise EOFError
        self.done += more

    def _rest(self) -> list[memoryview]:
        rest: list[memoryview] = []
        done = self.done
        for buffer in self._buffers:
            if done < len(buffer):
                rest.append(buffer[done:])
            done = max(0, done - len(buffer))
        return rest
