"""A worker's side of parameter servers, for every strategy that has them."""

from collections.abc import Sequence
from dataclasses import asdict

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.engine.run_spec import RunPlan
from paceline.engine.snapshot import Snapshot, flatten, join_shards, receive_snapshots
from paceline.exchange.message import send_json
from paceline.exchange.wire.push_pull import WorkerWire
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.wall_clock.group_link import GroupLink


class ServerLink:
    """To the servers, or to the first of this worker's group. Worker 0's `weights` are the first of
    all.
    """

    def __init__(self, scheme: AbstractScheme, plan: RunPlan) -> None:
        self._scheme, self._plan = scheme, plan
        first, *others = Accounting(scheme, plan.workers).group_of(dist.get_rank())
        self._speaks = dist.get_rank() == first
        self.wire = WorkerWire(
            plan.bounds(scheme.servers if self._speaks else 1),
            plan.num_statistics,
            getattr(torch, plan.dtype),
            plan.workers if self._speaks else first,
        )
        self._group: GroupLink | None = None
        if others and self._speaks:
            self._group = GroupLink(self.wire.weights, plan.num_statistics, others)

    def begin(self, weights: Tensor) -> bool:
        """Hand the servers the run, and pull; whether this worker may take a step."""
        if dist.get_rank() == 0:
            for plan in self._plan.server_plans(self._scheme):
                server = self._plan.workers + plan.server
                first, last = self._plan.bounds(self._scheme.servers)[plan.server]
                send_json(asdict(plan), server)
                dist.send(weights[first:last], server)
        return self._hand_on(self.wire.pull())

    def push(self, statistics: Sequence[Tensor]) -> bool:
        """What is in the wire's `gradient`; whether this worker may take another step."""
        flatten(statistics, self.wire.statistics)
        if self._group is not None:
            self._group.take(self.wire.gradient, self.wire.statistics)
        return self._hand_on(self.wire.push_pull())

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Sent and received."""
        wires = [self.wire, *([self._group.wire] if self._group else [])]
        return sum(wire.bytes_sent for wire in wires), sum(wire.bytes_received for wire in wires)

    def finish(self) -> list[Snapshot]:
        """Leave the servers; the snapshots that are this worker's to evaluate."""
        self.wire.leave()
        if self._group is not None:
            self._group.finish()
        if not self._speaks:
            return []
        first = self._plan.workers
        servers = range(first, first + self._scheme.servers)
        shards = [receive_snapshots(server) for server in servers]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    def _hand_on(self, granted: bool) -> bool:
        if self._group is not None:
            self._group.hand_on(self.wire.versions[0], granted)
        return granted
