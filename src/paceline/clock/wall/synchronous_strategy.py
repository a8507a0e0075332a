"""Base class of synchronous strategies: all workers hold the same weights after every step."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import Trainer
from torch import nn
from torch.optim import Optimizer

from paceline.clock.live_options import LiveOptions
from paceline.clock.moving_average import MovingAverage
from paceline.clock.reports import TrainingClock
from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import Schedules, check_schedulers
from paceline.clock.snapshot import Snapshot, flatten, state_of, statistics_of
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.exchange.process_group import count_workers, members, worker_index
from paceline.timing.pace import Pace


class AbstractSynchronousStrategy(AbstractWallStrategy):
    """A strategy whose workers all hold the same weights.

    It counts samples over all workers, sets the rate by them, and keeps a snapshot after those in
    `snapshot_samples`, worker n modulo workers the n-th. All workers meet there, with the clock
    stopped: BatchNorm statistics are averaged, and a run whose weights are not finite is stopped.
    """

    def prepare(
        self,
        run: RunSpec,
        *,
        clock: TrainingClock | None = None,
        pace: Pace | None = None,
        split: SplitWorker | None = None,
    ) -> None:
        """Set the run, which must have an end, before training.

        `pace` emulates the worker's accelerator. `split`: this process's part of a split worker.
        """
        self.run, self.pace, self.split = run, pace, split
        self._snapshots: list[Snapshot] = []
        self._seconds_exposed = 0.0  # communicating after backward had ended, per step
        self._bytes_exchanged = (0, 0)
        self._images_per_update = run.samples_at(run.num_workers)
        self._clock = clock or TrainingClock()
        self._average: MovingAverage | None = None
        self._average_before: list[torch.Tensor] | None = None  # of a run that was resumed

    @property
    def samples(self) -> int:
        return self.updates * self._images_per_update

    @property
    def updates(self) -> int:
        return self.num_steps

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return list(self.whole_module.parameters())

    @property
    def _trained_weights(self) -> list[nn.Parameter]:
        return list(self.trained_module().parameters())

    @property
    def num_batches(self) -> int:
        assert self.run.num_steps is not None
        return self.run.num_steps // self.run.num_workers

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._bytes_exchanged

    @property
    def seconds_communicating(self) -> float:
        return self._seconds_exposed * self.num_steps

    def state(self) -> dict[str, Any]:
        average = None if self._average is None else self._average.weights
        return {**super().state(), "snapshots": state_of(self._snapshots), "average": average}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._snapshots = [Snapshot(**each) for each in state["snapshots"]]
        self._average_before = state["average"]

    def finish(self) -> list[Snapshot]:
        return self._snapshots

    def on_train_start(self) -> None:
        super().on_train_start()
        configs = self.trained_module().trainer.lr_scheduler_configs
        check_schedulers(configs, self.run)
        options = LiveOptions(self.optimizers[0])
        self._schedules = Schedules(configs, options, self.run.epoch_batches)
        self._resume_schedules()
        _without_sigterm_broadcast(self.trained_module().trainer)
        self._average = self.run.average_of(self._average_before or self._trained_weights)
        self.counted = count_workers(self.run.num_workers, is_worker=self._speaks)
        if self.pace is not None:
            self.pace.begin()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        self._schedules.set(self.samples // self.run.batch_size)
        with self._scaled_rates(optimizer, closure) as scaled:
            output = super().optimizer_step(optimizer, scaled, model, **kwargs)
        self.num_steps += 1
        if self._average is not None:
            self._average.update(self._trained_weights, self._images_per_update)
        if self.samples in self.run.snapshot_samples:
            if self.root_device.type == "cuda":
                torch.cuda.synchronize(self.root_device)  # queued work belongs to training
            seconds = self._clock.seconds()
            with self._clock.stopped():
                self._keep_snapshot(seconds)
            if self.pace is not None:
                self.pace.begin()
        return output

    @contextmanager
    def _scaled_rates(
        self, optimizer: Optimizer, closure: Callable[[], Any]
    ) -> Generator[Callable[[], Any]]:
        """Multiply the rates, as they are after backward, for one step of the optimizer."""
        factor = self.run.rate_factor(self.samples)
        rates: list[Any] = []

        def scaled() -> Any:
            output = closure()
            for group in optimizer.param_groups:
                rates.append(group["lr"])
                group["lr"] = group["lr"] * factor
            return output

        yield scaled
        for group, rate in zip(optimizer.param_groups, rates, strict=bool(rates)):
            group["lr"] = rate

    @property
    def _speaks(self) -> bool:
        """True in the first process of a worker."""
        return self.split is None or self.split.is_first

    def _is_finite(self) -> bool:
        """Return True if all weights of the worker are finite."""
        if self.split is not None:
            return self.split.is_finite()
        return all(bool(weight.isfinite().all()) for weight in self._trained_weights)

    def _keep_snapshot(self, seconds: float) -> None:
        self.diverged = not self._is_finite()
        trainer = self.trained_module().trainer
        trainer.should_stop = trainer.should_stop or self.diverged
        index = self.run.snapshot_samples.index(self.samples)
        is_kept_here = self._speaks and index % self.run.num_workers == worker_index()
        weights = [self._whole_weights(is_kept_here)]
        if self._average is not None:
            with self._averages(self._average):
                weights.append(self._whole_weights(is_kept_here))
        if self._speaks:
            statistics = _mean_over_workers(statistics_of(self.whole_module))
            if is_kept_here:
                kept = torch.stack(weights)
                snapshot = Snapshot(self.samples, self.updates, seconds, kept, statistics)
                self._snapshots.append(snapshot)

    @contextmanager
    def _averages(self, average: MovingAverage) -> Generator[None]:
        """Hold the moving averages in place of the weights."""
        held = [weight.data for weight in self._trained_weights]
        for weight, own in zip(self._trained_weights, average.weights, strict=True):
            weight.data = own
        yield
        for weight, own in zip(self._trained_weights, held, strict=True):
            weight.data = own

    def _whole_weights(self, is_kept_here: bool) -> torch.Tensor:
        """Return a copy on the CPU, which is empty unless `is_kept_here`.

        All processes of a split worker must call it.
        """
        if self.split is not None:
            self.split.gather()
        weights = self.held_weights if is_kept_here else []
        size = sum(weight.numel() for weight in weights)
        return flatten(weights, torch.empty(size, dtype=self.held_weights[0].dtype))


def _without_sigterm_broadcast(trainer: Trainer) -> None:
    """Spare the loop a collective per step (Lightning PR 20825): the launcher ends all workers.

    Private to Lightning; where the method is gone, so is its cost.
    """
    loop: Any = trainer.fit_loop.epoch_loop
    if hasattr(loop, "_broadcast_sigterm_tensor"):
        loop._broadcast_sigterm_tensor = lambda: None


def _mean_over_workers(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the mean as one vector on the CPU; all workers must call this."""
    dtype = tensors[0].dtype if tensors else torch.float32
    values = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=dtype)
    if tensors:
        dist.all_reduce(flatten(tensors, values), group=members())
    return values / dist.get_world_size(members())
