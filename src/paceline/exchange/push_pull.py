"""The wire between workers and parameter servers: gloo, point to point, no copies.

Every message is a header of two int64 (float32 counts exactly only to 2^24) and a body.
A push's body is the server's part of the gradient, on server 0 behind the worker's BatchNorm
statistics; an answer's body is the server's part of the weights.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Header(NamedTuple):
    """`version`: of the weights, read by the worker or sent by the server.

    `proceed`, to a server: this is a push (else the worker leaves, and no body follows);
    to a worker: take another step (else the budget is used up).
    """

    version: int
    proceed: bool


def _to_tensor(header: Header) -> Tensor:
    return torch.tensor([header.version, int(header.proceed)])


def _from_tensor(content: Tensor) -> Header:
    version, proceed = content.tolist()
    return Header(version, bool(proceed))


class WorkerWire:
    """A worker's end. `bounds`: each server's [first, last) of the flat weights.

    Owns what is sent and received: `weights`, `gradient` [num_weights] and `statistics`.
    """

    def __init__(
        self,
        bounds: list[tuple[int, int]],
        num_statistics: int,
        dtype: torch.dtype,
        first_server: int,
    ) -> None:
        outgoing = torch.zeros(num_statistics + bounds[-1][1], dtype=dtype)
        self.statistics = outgoing[:num_statistics]
        self.gradient = outgoing[num_statistics:]
        self.weights = torch.zeros_like(self.gradient)
        self._servers = list(range(first_server, first_server + len(bounds)))
        self._pushes = [self.gradient[first:last] for first, last in bounds]
        self._pushes[0] = outgoing[: num_statistics + bounds[0][1]]
        self._pulls = [self.weights[first:last] for first, last in bounds]
        self._headers = [torch.zeros(2, dtype=torch.int64) for _ in bounds]
        self.versions = [0] * len(bounds)  # read last, per server
        self.bytes_sent = 0
        self.bytes_received = 0

    def pull(self) -> bool:
        """Receive what the servers send at the start or in answer to a push; may we proceed?"""
        works = []
        for server, header, body in zip(self._servers, self._headers, self._pulls, strict=True):
            works += [dist.irecv(header, server), dist.irecv(body, server)]
        _wait(works)
        headers = [_from_tensor(header) for header in self._headers]
        self.versions = [header.version for header in headers]
        self.bytes_received += sum(body.nbytes for body in self._pulls)
        return headers[0].proceed

    def push_pull(self) -> bool:
        """Send the gradient to all servers and wait for the weights of each; may we proceed?"""
        works = []
        for server, version, body in zip(self._servers, self.versions, self._pushes, strict=True):
            works += [
                dist.isend(_to_tensor(Header(version, True)), server),
                dist.isend(body, server),
            ]
        self.bytes_sent += sum(body.nbytes for body in self._pushes)
        proceed = self.pull()
        _wait(works)
        return proceed

    def leave(self) -> None:
        """Tell the servers that no push will follow."""
        for server, version in zip(self._servers, self.versions, strict=True):
            dist.send(_to_tensor(Header(version, False)), server)


class ServerWire:
    """A server's end: `weights` is its part."""

    def __init__(
        self, num_weights: int, num_statistics: int, dtype: torch.dtype, workers: int
    ) -> None:
        self.weights = torch.zeros(num_weights, dtype=dtype)
        self._num_statistics = num_statistics
        self._pushes = torch.zeros(workers, num_statistics + num_weights, dtype=dtype)
        self._header = torch.zeros(2, dtype=torch.int64)
        self.bytes_sent = 0
        self.bytes_received = 0

    def gradient(self, worker: int) -> Tensor:
        """Of the worker's last push [num_weights]."""
        return self._pushes[worker, self._num_statistics :]

    def statistics(self, worker: int) -> Tensor:
        """BatchNorm statistics of the worker's last push [num_statistics]."""
        return self._pushes[worker, : self._num_statistics]

    def receive(self) -> tuple[int, Header]:
        """Wait for the next message of any worker. A push is then in `gradient(worker)`."""
        worker = dist.recv(self._header)
        header = _from_tensor(self._header)
        if header.proceed:
            dist.recv(self._pushes[worker], worker)
            self.bytes_received += self._pushes[worker].nbytes
        return worker, header

    def answer(self, worker: int, header: Header) -> None:
        """Send the weights as they are now."""
        dist.send(_to_tensor(header), worker)
        dist.send(self.weights, worker)
        self.bytes_sent += self.weights.nbytes


def _wait(works: list) -> None:
    for work in works:
        work.wait()
