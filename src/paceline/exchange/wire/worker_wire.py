"""Worker's end of the wire to servers, or to workers with which it averages, which answer like
servers. server_wire.py describes what is sent.
"""

import os
import socket
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from paceline.exchange.liveness import LostPeerError
from paceline.exchange.process_group import joined, receive_json, this_node, worker_index
from paceline.exchange.shard import turns
from paceline.exchange.wire.connection import (
    HEADER_BYTES,
    Address,
    Header,
    Hello,
    Pieces,
    bytes_of,
    connect,
    pack,
    unpack,
)
from paceline.exchange.wire.shared_memory import (
    Places,
    Signals,
    allocate,
    other_node,
    part,
    share,
    share_on_gpu,
    whole_pages,
)

_HOST = torch.device("cpu")
_ALIGNED = 64  # numbers; kernels are slower on vectors that begin elsewhere
_NO_NUMBERS = memoryview(b"")
_TIMEVAL = struct.Struct("ll")  # seconds, microseconds


class WorkerEnd:
    """Worker's end of a connection to one server.

    `name`: of the server, for messages. `pushed`, `pulled`: buffers to send and to receive; empty
    if memory is `shared`. `numbers`: buffer that follows the header of each push.
    `timeout_seconds`: longest silence of the server. `signals`: of memory that is shared on a GPU,
    else None. Sending and receiving raise LostPeerError and TimeoutError.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        pushed: list[memoryview],
        pulled: list[memoryview],
        timeout_seconds: float,
        numbers: memoryview = _NO_NUMBERS,
        signals: Signals | None = None,
    ) -> None:
        self._signals = signals
        self._name, self._timeout_seconds = name, timeout_seconds
        self._connection = connection
        self.shared = not pulled
        self._header, self._packed = bytearray(HEADER_BYTES), bytearray(HEADER_BYTES)
        self._incoming = Pieces(memoryview(self._header), *pulled)
        first = [memoryview(self._packed), *([numbers] if len(numbers) else [])]
        self._whole_push = Pieces(*first, *pushed)
        connection.setblocking(True)  # the kernel's time limit needs no system call per message
        limit = _TIMEVAL.pack(int(timeout_seconds), int(timeout_seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def push(self, version: int) -> None:
        """Send a push computed on weights of `version`."""
        if self._signals is not None:
            self._signals.push()
        self._packed[:] = pack(Header(version, True))
        self._send(self._whole_push.begin_again())

    def pull(self) -> Header:
        """Wait for an answer."""
        incoming = self._incoming.begin_again()
        try:
            while not incoming.complete:
                incoming.receive(self._connection)
        except BlockingIOError:
            raise self._too_late() from None
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        if self._signals is not None:
            self._signals.await_answer()
        return unpack(self._header)

    def keep(self, version: int) -> None:
        """Tell the server to save its state for a checkpoint; it sends no answer."""
        self._send(Pieces(memoryview(pack(Header(version, False, keep=True)))))

    def leave(self, version: int) -> None:
        """Tell the server that no push follows, and close the connection."""
        self._send(Pieces(memoryview(pack(Header(version, False)))))
        self._connection.close()

    def _send(self, outgoing: Pieces) -> None:
        try:
            outgoing.send(self._connection)
        except OSError as error:
            raise self._lost(error) from None
        if not outgoing.complete:
            raise self._too_late()

    def _lost(self, error: Exception) -> LostPeerError:
        reason = str(error) or "its connection ended"
        return LostPeerError(f"{self._name} is gone: {reason}")

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"{self._name} is silent for {self._timeout_seconds} s")


def reach(
    name: str,
    address: Address,
    pushed: list[memoryview],
    pulled: memoryview,
    descriptor: int,
    places: Places,
    node: str,
    numbers: memoryview = _NO_NUMBERS,
    share_more: Callable[[socket.socket], Signals] | None = None,
) -> WorkerEnd:
    """Connect this worker on `node` to the process `name` at `address`. `descriptor`,
    `places`: memory of `pushed` and `pulled`, and the offsets in it, which both processes share if
    they are on one node. `numbers`: buffer that follows each header. `share_more`: shares memory of
    a GPU as well, which only processes of one node can. Raises LostPeerError if the process cannot
    be reached, and SettingError if it is to share a GPU and is on another node.
    """
    token, timeout = joined()
    hello = Hello(worker_index(), sum(map(len, pushed)), len(pulled))
    try:
        connected = connect(token, address, hello, node=node, timeout_seconds=timeout)
    except ConnectionError as error:
        raise LostPeerError(f"{name} cannot be reached: {error}") from None
    _, connection, shared = connected
    if not shared:
        if share_more is not None:
            raise other_node(name)
        return WorkerEnd(name, connection, pushed, [pulled], timeout, numbers)
    share(connection, descriptor, places)
    signals = share_more(connection) if share_more is not None else None
    return WorkerEnd(name, connection, [], [], timeout, numbers, signals=signals)


class WorkerWire:
    """Connections of a worker to all servers.

    A push goes to one server after another while earlier ones answer. To a server on the same node
    only headers are sent, since it shares the worker's buffers.

    `bounds`: each server's [first, last) of the flat weights. The wire owns `weights`, `gradient`
    [num_weights] and `statistics` [num_statistics]. `node`: node to claim instead of this one;
    servers of another node are reached over TCP. `begins_with`: first server to push to, see
    `turns`. `numbers` [num_numbers]: options of the optimizer, float64, sent with each push.
    `device`: a GPU if the servers are on GPUs of this machine; they share `weights` and `gradient`
    there. Else these are `in_host_memory`.
    """

    def __init__(
        self,
        bounds: list[tuple[int, int]],
        num_statistics: int,
        dtype: torch.dtype,
        first_server: int,
        node: str | None = None,
        begins_with: int = 0,
        num_numbers: int = 0,
        device: torch.device = _HOST,
    ) -> None:
        self.numbers = torch.zeros(num_numbers, dtype=torch.float64)
        self._bounds, self._size = bounds, dtype.itemsize
        self._first_server, self._node = first_server, node or this_node()
        num_weights = bounds[-1][1]
        self._weights_at = whole_pages(num_weights * self._size)
        self._statistics_at = 2 * self._weights_at
        memory_bytes = self._statistics_at + num_statistics * self._size
        self._descriptor, memory = allocate(memory_bytes)
        self._sent = self.gradient = part(memory, 0, num_weights, dtype)
        self._received = self.weights = part(memory, self._weights_at, num_weights, dtype)
        self._on_gpu: Tensor | None = None
        self.in_host_memory = device.type == "cpu"
        if not self.in_host_memory:  # the parts in host memory are never touched then
            width = -(-num_weights // _ALIGNED) * _ALIGNED
            self._on_gpu = torch.zeros(2, width, dtype=dtype, device=device)
            self.gradient, self.weights = self._on_gpu[:, :num_weights]
        self.statistics = part(memory, self._statistics_at, num_statistics, dtype)
        self._ends: list[WorkerEnd] = []
        self._thread: ThreadPoolExecutor | None = None  # that pushes, if answers cross pushes
        self._turns = turns(len(bounds), begins_with)
        self.versions = [0] * len(bounds)  # of the latest weights, by server
        self.stops = False  # before the next step, for a checkpoint: so says server 0
        self.bytes_sent = 0
        self.bytes_received = 0

    def connect(self, addresses: list[Address]) -> None:
        """Connect to all servers in order; the first `pull` calls this."""
        self._ends += [self._connect(*each) for each in enumerate(addresses)]
        if len(self._ends) > 1 and not all(end.shared for end in self._ends):
            self._thread = ThreadPoolExecutor(max_workers=1)
        os.close(self._descriptor)

    def pull(self) -> bool:
        """Receive the first weights, or those of an answer; return True if a step may follow."""
        if not self._ends:
            ranks = range(self._first_server, self._first_server + len(self._bounds))
            self.connect([Address(*receive_json(rank)) for rank in ranks])
        return self._take([self._ends[server].pull() for server in self._turns])

    def push_pull(self) -> bool:
        """Push the gradient to all servers, receive weights; return True if a step may follow."""
        self.bytes_sent += self.gradient.nbytes + self.statistics.nbytes
        if self._thread is None:
            self._push(self.versions)
            return self.pull()
        pushed = self._thread.submit(self._push, self.versions)
        try:
            return self.pull()
        finally:
            pushed.result()  # its error first: servers that have their push may wait for the others

    def _push(self, versions: Sequence[int]) -> None:
        for server in self._turns:
            self._ends[server].push(versions[server])

    def keep(self) -> None:
        """Tell the servers to save their state for a checkpoint; they send no answer."""
        for end, version in zip(self._ends, self.versions, strict=True):
            end.keep(version)

    def leave(self) -> None:
        """Tell the servers that no push follows, and disconnect."""
        for end, version in zip(self._ends, self.versions, strict=True):
            end.leave(version)

    def _take(self, in_turn: list[Header]) -> bool:
        """Store versions from the headers of the answers; return True if a step may follow."""
        headers = dict(zip(self._turns, in_turn, strict=True))
        self.versions = [headers[server].version for server in range(len(self._ends))]
        self.bytes_received += self.weights.nbytes
        self.stops = headers[0].stop
        return headers[0].proceed

    def _connect(self, server: int, address: Address) -> WorkerEnd:
        first, last = self._bounds[server]
        pushed = [bytes_of(self._sent[first:last])]
        if server == 0:
            pushed.append(bytes_of(self.statistics))
        at, share_more = first * self._size, None
        if self._on_gpu is not None:
            share_more = partial(share_on_gpu, vectors=self._on_gpu, first=first, last=last)
        return reach(
            f"server {server}",
            address,
            pushed,
            bytes_of(self._received[first:last]),
            self._descriptor,
            Places(at, self._statistics_at, self._weights_at + at),
            self._node,
            bytes_of(self.numbers),
            share_more,
        )


class PairWire:
    """Connections of a worker to those that it asks for the mean of both workers' weights.
    `partners`: their ranks. `weights` [num_weights]: the worker's weights, which the mean replaces.
    A partner has a ServerWire: the push is the worker's weights, the answer is the mean.
    """

    def __init__(self, num_weights: int, dtype: torch.dtype, partners: Sequence[int]) -> None:
        self._descriptor, memory = allocate(num_weights * dtype.itemsize)
        self.weights = part(memory, 0, num_weights, dtype)
        self._partners = partners
        self._ends: dict[int, WorkerEnd] = {}
        self.bytes_sent = 0
        self.bytes_received = 0

    def connect(self) -> None:
        """Connect to all partners, which send their addresses, and receive the first weights."""
        addresses = [Address(*receive_json(partner)) for partner in self._partners]
        body, places, node = bytes_of(self.weights), Places(0, 0, 0), this_node()
        for partner, address in zip(self._partners, addresses, strict=True):
            self._ends[partner] = reach(
                f"worker {partner}", address, [body], body, self._descriptor, places, node
            )
        os.close(self._descriptor)
        for partner in self._partners:
            self._pull(partner)

    def average(self, partner: int) -> None:
        """Replace `weights` by the mean with the partner's. Raises LostPeerError, TimeoutError."""
        self._ends[partner].push(version=0)
        self.bytes_sent += self.weights.nbytes
        self._pull(partner)

    def leave(self) -> None:
        """Tell the partners that no request follows, and disconnect."""
        for end in self._ends.values():
            end.leave(version=0)

    def _pull(self, partner: int) -> None:
        self._ends[partner].pull()
        self.bytes_received += self.weights.nbytes
