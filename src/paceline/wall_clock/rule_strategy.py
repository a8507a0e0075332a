"""What drives a scheme's rule on a real process, as a Lightning strategy.

Lightning's own world size is 1 in each worker: with more, its loop broadcasts a SIGTERM flag every
step (Lightning PR 20825 and 21487), and an asynchronous scheme would run in lockstep.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.distributed as dist
from pytorch_lightning import Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer

from paceline.engine.flat_sgd import group_segments
from paceline.engine.flat_weights import FlatWeights
from paceline.engine.remote_sgd import RemoteSGD
from paceline.engine.run_spec import RunPlan
from paceline.engine.snapshot import Snapshot, statistics_of
from paceline.engine.supported_options import check_honoured
from paceline.engine.training_clock import TrainingClock
from paceline.exchange.process_group import count_workers, join
from paceline.model.learning_rate import LearningRate
from paceline.scheme.rule import AbstractScheme, Message, WorkerView, drive
from paceline.timing.pace import Pace


class AbstractRuleStrategy(SingleDeviceStrategy, ABC):
    """Ranks 0..workers-1 of the process group train; where the scheme has servers, they follow.

    Use it under torchrun in `Trainer(devices=1, plugins=[LightningEnvironment()], max_epochs=-1)`;
    the servers' processes `join` the group and call `paceline.wall_clock.server.serve(scheme)`.
    The run ends when all workers together have taken `num_steps` steps; every worker must then call
    `finish()`, for which the others wait. `clock`: that snapshots are timed by, where servers do
    not. `pace` emulates the worker's accelerator; `server_seconds`: that a server takes for a push
    at least.
    """

    by: str  # who applies updates, for messages

    def __init__(
        self,
        scheme: AbstractScheme,
        *,
        workers: int,
        batch_size: int,
        num_steps: int,
        snapshot_samples: Sequence[int],
        learning_rate: LearningRate | None = None,
        device: torch.device | str = "cpu",
        clock: TrainingClock | None = None,
        timeout_seconds: float = 600,
        pace: Pace | None = None,
        server_seconds: float = 0,
    ) -> None:
        super().__init__(device=device)
        self.scheme, self.workers = scheme, workers
        self.seconds_communicating = 0.0
        self.counted = 0
        self.steps = 0  # of this worker
        self.numbers = [0]  # of its steps, and the next, among all; where servers grant them, none
        self._batch_size, self._num_steps = batch_size, num_steps
        self._snapshot_samples, self._learning_rate = snapshot_samples, learning_rate
        self._clock = clock or TrainingClock()
        self._timeout_seconds, self._pace = timeout_seconds, pace
        self._server_seconds = server_seconds

    def setup_environment(self) -> None:
        super().setup_environment()
        join(self._timeout_seconds, self.root_device.type)

    def setup(self, trainer: Trainer) -> None:
        """Make weights and gradients one vector each, and agree with the others."""
        super().setup(trainer)
        check_honoured(trainer, self.optimizers, self.by, self.scheme, self.workers)
        module = self.lightning_module
        assert module is not None
        sgd = self.optimizers[0]
        assert isinstance(sgd, torch.optim.SGD)
        self.held = [weight for group in sgd.param_groups for weight in group["params"]]
        self._statistics = statistics_of(module)
        self.plan = RunPlan(
            workers=self.workers,
            batch_size=self._batch_size,
            num_steps=self._num_steps,
            snapshot_samples=self._snapshot_samples,
            learning_rate=self._learning_rate,
            segments=group_segments(sgd),
            num_statistics=sum(statistic.numel() for statistic in self._statistics),
            dtype=str(self.held[0].dtype).removeprefix("torch."),
            server_seconds=self._server_seconds,
        )
        self._flat = self._connect(trainer)
        remote: Optimizer = RemoteSGD(sgd, self._flat.zero_gradient, self._step)
        self.optimizers = [remote]

    def on_train_start(self) -> None:
        super().on_train_start()
        self.counted = count_workers(self.workers, is_worker=True)
        if self._pace is not None:
            self._pace.begin()

    @property
    @abstractmethod
    def updates(self) -> int:
        """Behind the weights that this worker holds."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """Over all workers, behind the weights that this worker holds, as far as it knows."""

    @property
    @abstractmethod
    def bytes_exchanged(self) -> tuple[int, int]:
        """Sent and received."""

    @property
    def averages(self) -> list[tuple[int, int]]:
        """With other workers, in pairs: this worker's steps before, and the partner, in order."""
        return []

    @abstractmethod
    def finish(self) -> list[Snapshot]:
        """The snapshots that are this worker's to evaluate, when all have ended."""

    @abstractmethod
    def _connect(self, trainer: Trainer) -> FlatWeights:
        """Agree with the others on the first weights."""

    @abstractmethod
    def _carry_out(self, message: Message) -> Tensor | None:
        """What the rule is answered."""

    def _step(self) -> None:
        """One step of the rule, each communication done as it is asked for."""
        if self._pace is not None:
            self._pace.wait()
        before = time.perf_counter()
        self._flat.gather_gradient()
        view = WorkerView(
            gradient=self._flat.gradient,
            weights=self._flat.weights,
            index=dist.get_rank(),
            num_workers=self.workers,
            num_steps=self.steps,
            progress=self.plan.progress(self.numbers[-1]),
        )
        drive(self.scheme.step(view), self._carry_out)
        self.steps += 1
        self._go_on()
        self.seconds_communicating += time.perf_counter() - before
        if self._pace is not None:
            self._pace.begin()

    def _go_on(self) -> None:
        """To the next step, if there is one."""
