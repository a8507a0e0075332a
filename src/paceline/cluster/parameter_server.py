"""A worker of a parameter-server scheme, as a Lightning strategy.

Lightning's own world size is 1 in each worker: with more, its loop broadcasts a SIGTERM flag every
step (Lightning PR 20825 and 21487), and an asynchronous scheme would run in lockstep.
"""

import time
from dataclasses import asdict

import torch
import torch.distributed as dist
from pytorch_lightning import Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer

from paceline.cluster.flat_sgd import group_segments
from paceline.cluster.flat_weights import FlatWeights
from paceline.cluster.honoured import check_honoured
from paceline.cluster.pace import Pace
from paceline.cluster.remote_sgd import RemoteSGD
from paceline.cluster.run_plan import RunPlan
from paceline.cluster.snapshot import (
    Snapshot,
    flatten,
    join_shards,
    receive_snapshots,
    statistics_of,
)
from paceline.exchange.message import send_json
from paceline.exchange.process_group import count_workers, join
from paceline.exchange.push_pull import WorkerWire
from paceline.model.learning_rate import LearningRate
from paceline.scheme.scheme import AbstractScheme, Adopt, Push, Turn, next_message


class ParameterServerStrategy(SingleDeviceStrategy):
    """Drives a scheme's rule over real sockets: ranks 0..workers-1 train, the rest are servers.

    Use it under torchrun in `Trainer(devices=1, plugins=[LightningEnvironment()], max_epochs=-1)`;
    the servers' processes `join` the group and call `paceline.cluster.server.serve(scheme)`.
    The run ends when all workers together have taken `num_steps` steps; every worker must then call
    `finish()`, for which the servers wait. `pace` emulates the worker's accelerator;
    `server_seconds`: that a server takes for a push at least.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        *,
        workers: int,
        batch_size: int,
        num_steps: int,
        snapshot_samples: list[int],
        learning_rate: LearningRate | None = None,
        device: torch.device | str = "cpu",
        timeout_seconds: float = 600,
        pace: Pace | None = None,
        server_seconds: float = 0,
    ) -> None:
        super().__init__(device=device)
        self.scheme = scheme
        self.workers = workers
        self.batch_size = batch_size
        self.num_steps = num_steps
        self.snapshot_samples = snapshot_samples
        self.learning_rate = learning_rate
        self.seconds_communicating = 0.0
        self.counted = 0
        self._steps = 0
        self._timeout_seconds = timeout_seconds
        self._pace = pace
        self._server_seconds = server_seconds

    def setup_environment(self) -> None:
        super().setup_environment()
        join(self._timeout_seconds, self.root_device.type)

    def setup(self, trainer: Trainer) -> None:
        """Move the weights into the wire's buffers, agree with the servers, and pull."""
        super().setup(trainer)
        check_honoured(trainer, self.optimizers, "a parameter server")
        module = self.lightning_module
        assert module is not None
        sgd = self.optimizers[0]
        assert isinstance(sgd, torch.optim.SGD)
        self.held = [weight for group in sgd.param_groups for weight in group["params"]]
        self._statistics = statistics_of(module)
        plan = self._plan(sgd)
        dtype = self.held[0].dtype
        bounds = plan.bounds(self.scheme.servers)
        self.wire = WorkerWire(bounds, plan.num_statistics, dtype, self.workers)
        self._flat = FlatWeights(self.held, self.wire.weights, self.wire.gradient)
        remote: Optimizer = RemoteSGD(sgd, self._flat.zero_gradient, self._exchange)
        self.optimizers = [remote]
        if dist.get_rank() == 0:
            self._announce(plan)
        trainer.should_stop = not self.wire.pull()
        self._flat.adopt(self.wire.weights)

    def on_train_start(self) -> None:
        super().on_train_start()
        self.counted = count_workers(self.workers, is_worker=True)
        if self._pace is not None:
            self._pace.begin()

    @property
    def updates(self) -> int:
        """Versions of server 0's weights when this worker read them last."""
        return self.wire.versions[0]

    @property
    def samples(self) -> int:
        """Samples over all workers behind the weights that this worker read last."""
        batches = self.scheme.batches(self.updates, self.workers, self.num_steps)
        return batches * self.batch_size

    def finish(self) -> list[Snapshot]:
        """Leave the servers; the snapshots that are this worker's to evaluate."""
        self.wire.leave()
        servers = range(self.workers, self.workers + self.scheme.servers)
        shards = [receive_snapshots(server) for server in servers]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    def _plan(self, sgd: torch.optim.SGD) -> RunPlan:
        return RunPlan(
            workers=self.workers,
            batch_size=self.batch_size,
            num_steps=self.num_steps,
            snapshot_samples=self.snapshot_samples,
            learning_rate=self.learning_rate,
            segments=group_segments(sgd),
            num_statistics=sum(statistic.numel() for statistic in self._statistics),
            dtype=str(self.held[0].dtype).removeprefix("torch."),
            server_seconds=self._server_seconds,
        )

    def _announce(self, plan: RunPlan) -> None:
        for server_plan in plan.server_plans(self.scheme):
            server = self.workers + server_plan.server
            first, last = plan.bounds(self.scheme.servers)[server_plan.server]
            send_json(asdict(server_plan), server)
            dist.send(self.wire.weights[first:last], server)

    def _exchange(self) -> None:
        """One step of the rule, each communication done as it is asked for."""
        if self._pace is not None:
            self._pace.wait()
        before = time.perf_counter()
        turn = Turn(
            gradient=self._flat.gradient,
            weights=self._flat.weights,
            worker=dist.get_rank(),
            workers=self.workers,
            step=self._steps,
            progress=0,  # servers know
        )
        step, reply = self.scheme.step(turn), None
        while (message := next_message(step, reply)) is not None:
            reply = self._carry_out(message)
        self._steps += 1
        self.seconds_communicating += time.perf_counter() - before
        if self._pace is not None:
            self._pace.begin()

    def _carry_out(self, message: object) -> Tensor | None:
        """What the rule is answered."""
        if isinstance(message, Adopt):
            self._flat.adopt(message.weights)
            return None
        assert isinstance(message, Push)
        self._flat.stage_gradient()
        flatten(self._statistics, self.wire.statistics)
        assert self.lightning_module is not None
        self.lightning_module.trainer.should_stop = not self.wire.push_pull()
        return self.wire.weights
