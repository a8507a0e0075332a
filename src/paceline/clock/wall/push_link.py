"""Link of a worker to parameter servers, on real processes."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.clock.run_spec import RunSpec, VectorSpec, server_specs
from paceline.clock.snapshot import Snapshot, flatten, join_shards, receive_snapshots
from paceline.errors import SettingError
from paceline.exchange.liveness import Lost, LostPeerError
from paceline.exchange.process_group import members, send_json, worker_index
from paceline.exchange.wire.frame import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme


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


class PushLink:
    """Link of this worker to the servers, or to the first of its group.

    `granted`: True if the last answer lets this worker take another step. `numbers()`: the options
    with which a push is to be applied, unless servers take it as it is.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        vectors: VectorSpec,
        numbers: Callable[[], Sequence[float]],
    ) -> None:
        accounting = Accounting(scheme, run.num_workers)
        self._num_numbers = 0 if accounting.own_weights else vectors.num_numbers
        self._numbers = numbers
        self._scheme, self._run, self._vectors = scheme, run, vectors
        self.granted = False
        first, *others = accounting.group_of(worker_index())
        self._speaks = worker_index() == first
        self.wire = WorkerWire(
            vectors.bounds(scheme.servers if self._speaks else 1),
            vectors.num_statistics,
            getattr(torch, vectors.dtype),
            run.num_workers if self._speaks else first,
            parts=vectors.parts,
            begins_with=worker_index() // scheme.group_size,
            num_numbers=self._num_numbers,
        )
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
                dist.send(weights[first:last], group=members(), group_dst=server)
        self._hand_on(self.wire.pull())

    def push(self, value: Tensor, statistics: Sequence[Tensor]) -> Tensor:
        """Push `value` [num_weights]; return the weights in the servers' answers."""
        if value is not self.wire.gradient:
            self.wire.gradient.copy_(value)
        self._check_numbers()
        flatten(statistics, self.wire.statistics)
        if self._group is not None:
            self._group.take(self.wire.gradient, self.wire.statistics)
        self._hand_on(self.wire.push_pull())
        return self.wire.weights

    def send_numbers(self) -> None:
        """Send the present options with the next push."""
        if self._num_numbers:
            self.wire.numbers.copy_(self._present())

    def _check_numbers(self) -> None:
        """Send the present options with this push, unless they have left, and are the same."""
        if not self.wire.sends_early:
            self.send_numbers()
        elif self._num_numbers and not torch.equal(self.wire.numbers, self._present()):
            message = "options of the optimizer changed in a step of which parts had left; "
            raise SettingError("scheme.overlap", message + "false is needed")

    def _present(self) -> Tensor:
        return torch.tensor(self._numbers(), dtype=torch.float64)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker."""
        wires = [self.wire, *([self._group.wire] if self._group else [])]
        return sum(wire.bytes_sent for wire in wires), sum(wire.bytes_received for wire in wires)

    def keep(self) -> None:
        """Tell the servers to keep their state; only worker 0 does, when no worker pushes."""
        self.wire.keep()

    def finish(self) -> list[Snapshot]:
        """Leave the servers; return the snapshots that this worker evaluates."""
        self.wire.leave()
        if self._group is not None:
            self._group.finish()
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
