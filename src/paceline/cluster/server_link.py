"""A worker's side of parameter servers, for every strategy that has them."""

from collections.abc import Sequence
from dataclasses import asdict

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.cluster.run_plan import RunPlan
from paceline.cluster.snapshot import Snapshot, flatten, join_shards, receive_snapshots
from paceline.exchange.message import send_json
from paceline.exchange.push_pull import WorkerWire
from paceline.scheme.scheme import AbstractScheme


class ServerLink:
    """Worker 0's `weights` are the first of all."""

    def __init__(self, scheme: AbstractScheme, plan: RunPlan) -> None:
        self._scheme, self._plan = scheme, plan
        dtype = getattr(torch, plan.dtype)
        self.wire = WorkerWire(
            plan.bounds(scheme.servers), plan.num_statistics, dtype, plan.workers
        )

    def begin(self, weights: Tensor) -> bool:
        """Hand the servers the run, and pull; whether this worker may take a step."""
        if dist.get_rank() == 0:
            for plan in self._plan.server_plans(self._scheme):
                server = self._plan.workers + plan.server
                first, last = self._plan.bounds(self._scheme.servers)[plan.server]
                send_json(asdict(plan), server)
                dist.send(weights[first:last], server)
        return self.wire.pull()

    def push(self, statistics: Sequence[Tensor]) -> bool:
        """What is in the wire's `gradient`; whether this worker may take another step."""
        flatten(statistics, self.wire.statistics)
        return self.wire.push_pull()

    def finish(self) -> list[Snapshot]:
        """Leave the servers; the snapshots that are this worker's to evaluate."""
        self.wire.leave()
        first = self._plan.workers
        servers = range(first, first + self._scheme.servers)
        shards = [receive_snapshots(server) for server in servers]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]
