"""Lightning strategy by which one Trainer trains all workers: each batch is one worker's step."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.clock.flat_weights import gather_gradients, held_weights, zero_gradients
from paceline.clock.reports import StrategyReport
from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.snapshot import Snapshot, counters_of, flatten, statistics_of
from paceline.clock.training_strategy import (
    AbstractTrainingStrategy,
    DrawAll,
    DrawOne,
    RemoteOptimizer,
    SizedBatches,
    random_state,
    set_random_state,
)
from paceline.clock.virtual.clock import VirtualClock
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.virtual_data import VirtualBatches, draw_from
from paceline.clock.virtual.virtual_worker import Buffer, VirtualWorker
from paceline.errors import SettingError
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme, Message
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes

_FREE_LINK = Link(latency=0, bandwidth=math.inf)
FREE = ClusterProfile(_FREE_LINK, _FREE_LINK, None, server_seconds=0, server_bandwidth=math.inf)


class VirtualStrategy(AbstractTrainingStrategy, SingleDeviceStrategy):
    """Strategy that trains many workers on a virtual clock.

    `Trainer(strategy=VirtualStrategy(SyncAllReduce(), RunSpec(num_workers=64)))` trains any
    LightningModule with automatic optimization and one optimizer, from a DataLoader over map-style
    data.

    Every worker's gradient is computed on the weights that it would have, on the one device; time
    is modelled by `step_times` and `profile`. `run` needs a num_steps for schemes that switch in
    the middle, and a batch_size if no DataLoader sets it.

    During validation and after training the module has the shared weights and the mean of the
    workers' BatchNorm statistics; buffers of integers are the first worker's. Random numbers
    (dropout) are one stream for all workers. Raises SettingError before training starts for options
    that it does not support.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        *,
        step_times: StepTimes | None = None,
        profile: ClusterProfile | None = None,
        device: torch.device | str = "cpu",
        recycled: bool = True,
        real_seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(device=device)  # pyright: ignore[reportUnknownMemberType]
        check_scheme(scheme, run)
        self.scheme, self.run = scheme, run
        self._step_times = step_times or StepTimes(seed=run.seed)
        self._profile, self._recycled = profile or FREE, recycled
        self._draw: DrawOne | None = None
        self._current_worker: VirtualWorker | None = None
        self._gradient: Buffer | None = None  # of the step under way
        self._now = real_seconds
        self._snapshots_at: list[float] = []  # real seconds
        self._resumed: Mapping[str, Any] | None = None  # state of the checkpoint to go on from

    def batches(self, draw: DrawOne, batch_size: int, length: int) -> VirtualBatches:
        """Return at most `length` batches for `fit`; `draw(worker, n)`: n-th batch of a worker."""
        self._draw, self.run = draw, replace(self.run, batch_size=batch_size)
        return VirtualBatches(self._next_batch, length)

    def process_dataloader(self, dataloader: Any) -> Any:
        trainer = self._module.trainer
        if not trainer.training or self._draw is not None:
            return dataloader
        draw, length = draw_from(dataloader, self.run)
        return self.batches(draw, dataloader.batch_size, length)

    # called by the runner

    @property
    def samples(self) -> int:
        return self.clock.holder.samples

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return self._weights

    def training_batches(self, train: DrawAll, batch: DrawOne) -> SizedBatches:
        assert self.run.num_steps is not None
        length = Accounting(self.scheme, self.run.num_workers).most_batches(self.run.num_steps)
        return self.batches(batch, self.run.batch_size, length)

    def batches_drawn(self) -> Iterable[tuple[int, int]]:
        return ((each.index, n) for each in self.clock.workers for n in range(each.num_steps))

    def report(self, step_ends: np.ndarray, seconds_data: float) -> StrategyReport:
        return self.clock.report()

    def finish(self) -> list[Snapshot]:
        return self.clock.holder.snapshots

    def seconds(self, real: float) -> float:
        return self.clock.kernel.now

    def real_seconds(self, snapshots: Sequence[Snapshot]) -> list[float]:
        return self._snapshots_at

    # called by Lightning

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        options: Any = trainer  # some of which it sets without declaring them
        if options.overfit_batches:
            message = "workers draw from all samples; a small torch.utils.data.Subset is needed"
            raise SettingError("overfit_batches", message)
        if options.reload_dataloaders_every_n_epochs:
            message = "the virtual clock draws from one DataLoader, throughout the run"
            raise SettingError("reload_dataloaders_every_n_epochs", message)
        self.check_honoured(trainer, "the virtual clock", again=hasattr(self, "clock"))
        own = self.optimizers[0]
        self._options, self._statistics = LiveOptions(own), statistics_of(self._module)
        self._counters = counters_of(self._module)
        held = held_weights(own, self.scheme, self._statistics, self._options)
        self._weights, self._vectors = held
        remote: Optimizer = RemoteOptimizer(own, self._zero_gradient, self._finish_step)
        self.optimizers = [remote]

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of the clock, which applies all updates, for a checkpoint."""
        return {
            "clock": self.clock.state(),
            "snapshots_at": self._snapshots_at,
            "random": random_state(),
            "schedules": self._schedules.state(),
        }

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return what all workers share, not what one of them has, between two steps."""
        if hasattr(self, "clock") and self._current_worker is None:
            self._hold_shared()
        return super().lightning_module_state_dict()

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        (self._resumed,) = checkpoint["optimizer_states"]

    def on_train_start(self) -> None:
        super().on_train_start()
        weights, statistics = self._flat(self._weights), self._flat(self._statistics)
        configs = self._module.trainer.lr_scheduler_configs
        self._schedules = Schedules(configs, self._options, self.run)
        if self._resumed:
            weights.zero_()  # no value of the repeated steps may grow
        parts = ClockParts(
            self.scheme,
            self.run,
            profile=self._profile,
            step_times=self._step_times,
            weights=weights,
            statistics=statistics,
            counters=self._counters,
            recycled=self._recycled,
        )
        self.clock = VirtualClock(parts, self._vectors, weights)
        for worker in self.clock.workers:
            worker.numbers = torch.tensor(self._options.first, dtype=torch.float64)
        if self._resumed:
            self.clock.resume(self._resumed["clock"])
            self._snapshots_at = list(self._resumed["snapshots_at"])
            set_random_state(self._resumed["random"])
            self._schedules.load_state(self._resumed["schedules"])
            self._resumed = None

    def on_validation_start(self) -> None:
        super().on_validation_start()
        if hasattr(self, "clock"):
            self._hold_shared()

    def on_train_end(self) -> None:
        super().on_train_end()
        self.clock.end()
        self._note_snapshots()
        self._hold_shared()

    @property
    def _module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module

    def _hold_shared(self) -> None:
        """Give the module what all workers share, and the first one's other buffers."""
        shared = self.clock.shared()
        weights, statistics = Buffer(shared.weights[0]), Buffer(shared.statistics)
        self._refer_to(weights, statistics, self.clock.workers[0].counters)

    def _refer_to(self, weights: Buffer, statistics: Buffer, counters: Sequence[Tensor]) -> None:
        """Make the module's tensors refer to these, without a copy."""
        held = [*self._weights, *self._statistics, *self._counters]
        views = [*weights.views(self._weights), *statistics.views(self._statistics), *counters]
        for tensor, view in zip(held, views, strict=True):
            tensor.data = view

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return a copy of tensors as one vector."""
        size = sum(tensor.numel() for tensor in tensors)
        dtype = tensors[0].dtype if tensors else torch.get_default_dtype()
        return flatten(tensors, torch.empty(size, dtype=dtype, device=self.root_device))

    def _next_batch(self) -> Any:
        if self._current_worker is not None:
            raise RuntimeError("a batch was asked for before the step of the one before had ended")
        worker = self._current_worker = self.clock.next_worker()
        if worker is None:
            raise StopIteration
        assert self._draw is not None
        self._schedules.set(self.clock.batches_behind(worker))
        self._gradient = self.clock.pool.take()
        assert worker.weights is not None
        self._refer_to(worker.weights, worker.statistics, worker.counters)
        return self._draw(worker.index, worker.num_steps)

    def _zero_gradient(self) -> None:
        """Make backward add to a vector of the pool, so that gradients exist once."""
        assert self._gradient is not None
        views = self._gradient.views(self._weights)
        zero_gradients(self._gradient.vector, self._weights, views)

    def _finish_step(self) -> None:
        """Pass the gradient to the clock, which continues the worker's rule."""
        assert self._current_worker is not None
        assert self._gradient is not None
        gather_gradients(self._weights, self._gradient.views(self._weights))
        for weight in self._weights:
            weight.grad = None  # the clock's from now on
        worker, self._current_worker = self._current_worker, None
        gradient, self._gradient = self._gradient, None
        if (numbers := self._options.read()) != worker.take_numbers():
            worker.numbers = torch.tensor(numbers, dtype=torch.float64)
        self.clock.finish_step(worker, gradient)
        self._note_snapshots()
        if self.clock.holder.diverged:
            self._module.trainer.should_stop = True

    def _note_snapshots(self) -> None:
        while len(self._snapshots_at) < self.clock.holder.num_snapshots:
            self._snapshots_at.append(self._now())


def check_scheme(scheme: object, run: RunSpec) -> None:
    """Raise SettingError for a scheme that is no rule, or sends messages unknown to the clock."""
    workers: Any = run.num_workers  # anybody may have given anything
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SettingError("workers", f"a whole number of at least 1 is needed, not {workers!r}")
    if not isinstance(scheme, AbstractScheme):
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: no rule")
    accounting = Accounting(scheme, workers)  # refuses what cannot have so many workers
    if scheme.needs_end and run.num_steps is None:
        message = f"{type(scheme).__name__} changes its rule during a run: its length is needed"
        raise SettingError("num_steps", message)
    first = next(accounting.messages(), None)
    if not isinstance(first, Message):
        name = type(first).__name__
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: {name}")
