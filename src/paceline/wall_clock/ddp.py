"""Synchronous all-reduce on real processes: Lightning's own DDP with overlapped buckets."""

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from paceline.engine.snapshot import Snapshot, flatten, statistics_of
from paceline.engine.training_clock import TrainingClock
from paceline.engine.training_strategy import TrainerOptions
from paceline.errors import SettingError
from paceline.exchange.ddp_hook import BucketMean
from paceline.exchange.find_collective import collective
from paceline.exchange.process_group import count_workers, join
from paceline.model.learning_rate import LearningRate
from paceline.timing.pace import Pace
from paceline.wall_clock.paced_backward import paced_closure, reduce_bucket
from paceline.wall_clock.wall_strategy import AbstractWallStrategy


class _DDPTiming(TypedDict, total=False):
    """Mean times of a step [nanoseconds] in torch's logging data, absent before it samples."""

    avg_backward_comm_time: int
    avg_backward_compute_comm_overlap_time: int


class AbstractSynchronousStrategy(AbstractWallStrategy, Strategy):
    """Additions to a Lightning strategy whose workers all have the same weights.

    It counts samples over all workers, sets the rate by them, and keeps a snapshot after those in
    `snapshot_samples`, the n-th on worker n modulo workers. For a snapshot all workers wait with
    stopped clocks while BatchNorm statistics are averaged; weights that are not finite end the run.
    `pace` emulates the worker's accelerator.
    """

    def prepare(
        self,
        *,
        workers: int,
        batch_size: int,
        num_steps: int,
        snapshot_samples: Sequence[int],
        learning_rate: LearningRate | None = None,
        clock: TrainingClock | None = None,
        timeout_seconds: float = 600,
        pace: Pace | None = None,
    ) -> None:
        self._snapshots: list[Snapshot] = []
        self._seconds_exposed = 0.0  # of communication after the end of backward, per step
        self._bytes_exchanged = (0, 0)
        self._num_batches = num_steps // workers
        self._workers = workers
        self._images_per_update = workers * batch_size
        self._snapshot_samples = snapshot_samples
        self._learning_rate = learning_rate
        self._clock = clock or TrainingClock()
        self._timeout_seconds = timeout_seconds
        self.pace = pace

    @property
    def samples(self) -> int:
        return self.updates * self._images_per_update

    @property
    def updates(self) -> int:
        return self.num_steps

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return list(self.trained_module().parameters())

    @property
    def num_batches(self) -> int:
        return self._num_batches

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._bytes_exchanged

    @property
    def seconds_communicating(self) -> float:
        return self._seconds_exposed * self.num_steps

    def trained_module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module

    def trainer_options(self) -> TrainerOptions:
        plugins = [LightningEnvironment()] if self._workers == 1 else []
        return {"strategy": self, "devices": self._workers, "plugins": plugins}

    def finish(self) -> list[Snapshot]:
        return self._snapshots

    def setup_environment(self) -> None:
        join(self._timeout_seconds, self.root_device.type)
        super().setup_environment()

    def on_train_start(self) -> None:
        super().on_train_start()
        for group in self.optimizers[0].param_groups:
            group.setdefault("initial_lr", group["lr"])
        if self.trained_module().trainer.lr_scheduler_configs:
            self._leave_rate_to_module()
        _without_sigterm_broadcast(self.trained_module().trainer)
        self.counted = count_workers(self._workers, is_worker=True)
        if self.pace is not None:
            self.pace.begin()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        if self._learning_rate is not None:
            factor = self._learning_rate.factor(self.samples)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
        output = super().optimizer_step(optimizer, closure, model, **kwargs)
        self.num_steps += 1
        if self.samples in self._snapshot_samples:
            if self.root_device.type == "cuda":
                torch.cuda.synchronize(self.root_device)  # queued work belongs to training
            seconds = self._clock.seconds()
            with self._clock.stopped():
                self._keep_snapshot(seconds)
            if self.pace is not None:
                self.pace.begin()
        return output

    def _leave_rate_to_module(self) -> None:
        rate = self._learning_rate
        if rate is not None and (rate.rule, rate.schedule) != ("none", "constant"):
            raise SettingError("training.schedule", "the module brings a scheduler of its own")
        self._learning_rate = None

    def _keep_snapshot(self, seconds: float) -> None:
        statistics = _mean_over_workers(statistics_of(self.trained_module()))
        weights = list(self.trained_module().parameters())
        self.diverged = not all(bool(weight.isfinite().all()) for weight in weights)
        trainer = self.trained_module().trainer
        trainer.should_stop = trainer.should_stop or self.diverged
        index = self._snapshot_samples.index(self.samples)
        if index % self._workers == dist.get_rank():
            size = sum(weight.numel() for weight in weights)
            kept = flatten(weights, torch.empty(size, dtype=weights[0].dtype))
            self._snapshots.append(Snapshot(self.samples, self.updates, seconds, kept, statistics))


class OneWorkerStrategy(AbstractSynchronousStrategy, SingleDeviceStrategy):
    """Strategy of a single worker, without DDP: speed-up is relative to the best such run."""

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        computed = closure if self.pace is None else paced_closure(closure, self.pace)
        return super().optimizer_step(optimizer, computed, model, **kwargs)


class SyncAllReduceStrategy(AbstractSynchronousStrategy, DDPStrategy):
    """Strategy of two workers and more, by DDP.

    BatchNorm statistics stay per worker (`broadcast_buffers` would cost a broadcast per step).
    """

    def __init__(
        self, timeout_seconds: float, collective: str = "native", compression: str = "none"
    ) -> None:
        self._chosen = (collective, compression)
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            timeout=datetime.timedelta(seconds=timeout_seconds),
        )

    def configure_ddp(self) -> None:
        super().configure_ddp()
        self._mean = None
        if self.pace is not None or self._chosen != ("native", "none"):
            assert isinstance(self.model, DistributedDataParallel)
            self._mean = BucketMean(*self._chosen)
            # Lightning registers hooks on CUDA only.
            self.model.register_comm_hook((self._mean, self.pace), reduce_bucket)  # pyright: ignore[reportUnknownMemberType]

    def on_train_end(self) -> None:
        """Read DDP's own timing, for which torch samples the first ten steps and every hundredth.

        A timer around an all-reduce that overlaps backward would count hidden time too.
        """
        super().on_train_end()
        assert isinstance(self.model, DistributedDataParallel)
        model: Any = self.model  # its timing has no public name
        timing: _DDPTiming = model._get_ddp_logging_data()
        communicating = timing.get("avg_backward_comm_time", 0)
        hidden = timing.get("avg_backward_compute_comm_overlap_time", 0)
        self._seconds_exposed = max(0, communicating - hidden) / 1e9
        self._bytes_exchanged = self._mean.bytes_exchanged if self._mean else self._native_bytes()

    def _native_bytes(self) -> tuple[int, int]:
        """Compute the bytes sent and received without a hook, which the backend does not count."""
        weights = [each for each in self.trained_module().parameters() if each.requires_grad]
        length, size = sum(weight.numel() for weight in weights), weights[0].element_size()
        volume = collective("native").volumes(self._workers, length)[dist.get_rank()]
        return volume.in_bytes(size * self.updates)


def _without_sigterm_broadcast(trainer: Trainer) -> None:
    """Remove a collective per step from the loop (Lightning PR 20825): the launcher ends workers.

    The method is private to Lightning; a version without it does not have the cost either.
    """
    loop: Any = trainer.fit_loop.epoch_loop
    if hasattr(loop, "_broadcast_sigterm_tensor"):
        loop._broadcast_sigterm_tensor = lambda: None


def _mean_over_workers(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the mean of all tensors as one vector on the CPU; all workers must call this."""
    dtype = tensors[0].dtype if tensors else torch.float32
    values = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=dtype)
    if tensors:
        dist.all_reduce(flatten(tensors, values))
    return values / dist.get_world_size()
