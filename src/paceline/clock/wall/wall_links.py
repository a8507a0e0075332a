"""Links of a worker to others on real processes: for means, to its group, and to servers, with the
copies that a worker on a GPU needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.clock.run_spec import RunSpec
from paceline.clock.snapshot import Snapshot, flatten, join_shards, receive_snapshots
from paceline.clock.vector_spec import VectorSpec, server_specs
from paceline.exchange.collectives import collective
from paceline.exchange.liveness import Lost, LostPeerError
from paceline.exchange.process_group import has_nccl, members, send_json, worker_index
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.shared_memory import pin
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme


class Staging:
    """Copies of a worker on a GPU.

    Buffers in host memory are pinned, and copied on a stream of their own. Buffers on the GPU that
    servers on GPUs share need no copy if the worker computes in them, and nobody waits here: events
    order what follows. `streams`: module of torch with streams of the device. `pinned`: True
    if the buffers in host memory could be pinned.
    """

    def __init__(self, wire: WorkerWire, device: torch.device, streams: Any = torch.cuda) -> None:
        self._wire, self._device, self._streams = wire, device, streams
        self._stream: Any = streams.Stream(device)
        self._weights = wire.weights
        if wire.in_host_memory:
            self._weights = torch.empty_like(wire.weights, device=device)
        self._statistics = torch.zeros_like(wire.statistics, device=device)
        if device.type == "cuda":
            host = (wire.gradient, wire.weights, wire.statistics)
            self.pinned = all([pin(each) for each in host if each.device.type == "cpu"])

    def send(self, value: Tensor, statistics: Sequence[Tensor]) -> None:
        """Copy `value` [num_weights] and BatchNorm's statistics; wait for host memory."""
        flatten(statistics, self._statistics)
        if not self._wire.in_host_memory:
            if value is not self._wire.gradient:
                self._wire.gradient.copy_(value)
            self._wire.statistics.copy_(self._statistics, non_blocking=True)
            return
        self._stream.wait_stream(self._streams.current_stream(self._device))
        with self._streams.stream(self._stream):
            self._wire.gradient.copy_(value, non_blocking=True)
            self._wire.statistics.copy_(self._statistics, non_blocking=True)
        self._stream.synchronize()

    def finish(self) -> None:
        """Wait for all computations of this worker."""
        self._streams.current_stream(self._device).synchronize()

    def receive(self) -> Tensor:
        """Return the weights in the servers' answers, on the device."""
        if self._wire.in_host_memory:
            with self._streams.stream(self._stream):
                self._weights.copy_(self._wire.weights, non_blocking=True)
            self._streams.current_stream(self._device).wait_stream(self._stream)
        return self._weights


def staged(wire: WorkerWire, device: torch.device) -> Staging | None:
    """Return the copies of a worker on this device; None on a CPU, which needs none."""
    return None if device.type == "cpu" else Staging(wire, device)


_HOST = torch.device("cpu")


class MeanLink:
    """Means of vectors [num_weights], by an all-reduce in which all workers take part: on their
    GPUs if each has one, else in host memory, which is pinned if `device` is a GPU.
    """

    def __init__(self, num_weights: int, dtype: torch.dtype, device: torch.device) -> None:
        on_gpus = device.type == "cuda"
        where = device if on_gpus and has_nccl() else _HOST
        pinned = on_gpus and where is _HOST
        self._mean = torch.empty(num_weights, dtype=dtype, device=where, pin_memory=pinned)
        self._num_means = self._sent = self._received = 0

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of all workers' values, valid until the next call."""
        self._mean.copy_(value)
        dist.all_reduce(self._mean, group=members())
        self._num_means += 1
        return self._mean.div_(dist.get_world_size(members())).to(value.device)

    def neighbour_mean(
        self, value: Tensor, receivers: Sequence[int], senders: Sequence[int]
    ) -> Tensor:
        """Send `value` to `receivers`; return its mean with the values of the `senders`."""
        own = value.to(_HOST, copy=True)
        theirs = [torch.empty_like(own) for _ in senders]
        group = members()
        pending = [  # to receive before sending uses both directions of a connection at once
            *(dist.irecv(theirs[n], group=group, group_src=s) for n, s in enumerate(senders)),
            *(dist.isend(own, group=group, group_dst=receiver) for receiver in receivers),
        ]
        for work in pending:
            assert work is not None
            work.wait()
        self._sent += len(receivers) * own.nbytes
        self._received += len(senders) * own.nbytes
        for each in theirs:
            own += each
        return own.div_(1 + len(theirs)).to(value.device)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker."""
        workers = dist.get_world_size(members())
        volume = collective("native").volumes(workers, self._mean.numel())[worker_index()]
        sent, received = volume.in_bytes(self._num_means * self._mean.element_size())
        return sent + self._sent, received + self._received


class GroupLink:
    """Link of a group's first worker to the other workers of the group, whose ranks are `others`.
    `weights` [num_weights]: weights to send to them, changed by the caller. `num_numbers`: options
    of the optimizer in each push; only the first worker's reach the servers.
    """

    def __init__(
        self, weights: Tensor, num_statistics: int, others: Sequence[int], num_numbers: int
    ) -> None:
        self.wire = ServerWire(
            weights, num_statistics, others, num_numbers=num_numbers, at_once=True
        )
        self._others = others

    def take(self, gradient: Tensor, statistics: Tensor) -> None:
        """Replace both arguments by the group's mean, in place. Raises LostPeerError."""
        self.receive_all()
        for other in self._others:
            gradient += self.wire.gradient(other).to(gradient.device)
            statistics += self.wire.statistics(other)
        for vector in (gradient, statistics):
            vector /= len(self._others) + 1

    def hand_on(self, answer: Header) -> None:
        """Send the weights and the servers' answer to the others."""
        for other in self._others:
            self.wire.answer(other, answer)
        self.wire.flush()

    def receive_all(self) -> None:
        """Receive one message of each. Raises LostPeerError."""
        for _ in self._others:
            other, message = self.wire.receive()
            if isinstance(message, Lost):
                raise LostPeerError(f"worker {other} is gone: {message.reason}")


class PushLink:
    """Link of this worker to the servers, or to the first of its group. `granted`: True if the
    servers' last answer allows this worker another step. `numbers()`: options of the optimizer, for
    a push to servers that have one. `statistics`: BatchNorm statistics, sent with each push.
    `device`: the worker's.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        vectors: VectorSpec,
        numbers: Callable[[], Sequence[float]],
        statistics: Sequence[Tensor],
        device: torch.device = _HOST,
    ) -> None:
        self._statistics = statistics
        counts = Counts(scheme, run.num_workers)
        self._num_numbers = 0 if scheme.own_weights else vectors.num_numbers
        self._scheme, self._run, self._vectors, self._numbers = scheme, run, vectors, numbers
        self.granted = False
        first, *others = counts.group_of(worker_index())
        self._speaks = worker_index() == first
        self.wire = WorkerWire(
            vectors.bounds(scheme.servers if self._speaks else 1),
            vectors.num_statistics,
            getattr(torch, vectors.dtype),
            run.num_workers if self._speaks else first,
            begins_with=worker_index() // scheme.group_size,
            num_numbers=self._num_numbers,
            device=device if run.servers_on_gpus else _HOST,
        )
        self._staging = staged(self.wire, device)
        self._group: GroupLink | None = None
        if others and self._speaks:
            self._group = GroupLink(
                self.wire.weights, vectors.num_statistics, others, self._num_numbers
            )

    def begin(self, weights: Tensor) -> None:
        """Send the run's specification and worker 0's `weights` to the servers, then pull."""
        if worker_index() == 0:
            specs = server_specs(self._scheme, self._run, self._vectors)
            bounds = self._vectors.bounds(self._scheme.servers)
            for spec, (first, last) in zip(specs, bounds, strict=True):
                server = self._run.num_workers + spec.server
                send_json(asdict(spec), server)
                dist.send(weights[first:last].cpu(), group=members(), group_dst=server)
        self._hand_on(self.wire.pull())

    def push(self, value: Tensor) -> Tensor:
        """Push `value` [num_weights]; return the weights in the servers' answers."""
        if self._staging is None and value is not self.wire.gradient:
            self.wire.gradient.copy_(value)
        if self._num_numbers:
            self.wire.numbers.copy_(torch.tensor(self._numbers(), dtype=torch.float64))
        if self._staging is None:
            flatten(self._statistics, self.wire.statistics)
        else:
            self._staging.send(value, self._statistics)
        if self._group is not None:
            if self._staging is not None:
                self._staging.finish()  # the statistics have to be there
            self._group.take(self.wire.gradient, self.wire.statistics)
        self._hand_on(self.wire.push_pull())
        return self.wire.weights if self._staging is None else self._staging.receive()

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker."""
        wires = [self.wire, *([self._group.wire] if self._group else [])]
        return sum(wire.bytes_sent for wire in wires), sum(wire.bytes_received for wire in wires)

    def finish(self) -> list[Snapshot]:
        """Leave the servers; return the snapshots that this worker evaluates."""
        self.wire.leave()
        if self._group is not None:
            self._group.receive_all()  # they leave
        if not self._speaks:
            return []
        first = self._run.num_workers
        servers = range(first, first + self._scheme.servers)
        shards = [receive_snapshots(server) for server in servers]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    def _hand_on(self, granted: bool) -> None:
        self.granted = granted
        if self._group is not None:
            self._group.hand_on(Header(self.wire.versions[0], granted, stop=self.wire.stops))
