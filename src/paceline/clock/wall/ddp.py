"""Synchronous strategies on real processes: all workers hold the same weights after every step."""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import Trainer
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.snapshot import MovingAverage, Snapshot, flatten, state_of, statistics_of
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.training_strategy import check_automatic, check_one_optimizer
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.errors import SettingError
from paceline.exchange.collectives import Native, collective
from paceline.exchange.group_wire import Bucket, GroupWire, Hook, bucket_hook
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import broadcast_json, count_workers, members, worker_index
from paceline.timing.step_times import Pace

_HOST = torch.device("cpu")
_UNLIMITED = 2**20  # MiB
_HALF = 2  # bytes of a compressed number


class AbstractSynchronousStrategy(AbstractWallStrategy):
    """Strategy whose workers all hold the same weights. Learning rates follow the samples of all
    workers together. At each of the run's `snapshot_samples` all workers meet with the clock
    stopped, average BatchNorm statistics, and stop the run if weights are not finite; the workers
    keep the snapshots in turn.
    """

    _bytes_exchanged = (0, 0)
    _average: MovingAverage | None = None
    _average_before: list[Tensor] | None = None  # of a run that was resumed

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        check_automatic(trainer.lightning_module, "all-reduce")
        if len(self.optimizers) != 1 or isinstance(self.optimizers[0], torch.optim.LBFGS):
            names = ", ".join(type(each).__name__ for each in self.optimizers) or "none"
            message = f"all-reduce applies one optimizer with one gradient a step, not {names}"
            raise SettingError("model", message)

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return list(self.whole_module.parameters())

    @property
    def _trained_weights(self) -> list[nn.Parameter]:
        return list(self.trained_module().parameters())

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._bytes_exchanged

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
        trainer, options = self._trainer, LiveOptions(self.optimizers[0])
        self._schedules = Schedules(trainer.lr_scheduler_configs, options, self.run)
        self._resume_schedules()
        loop: Any = trainer.fit_loop.epoch_loop
        if hasattr(loop, "_broadcast_sigterm_tensor"):  # private, and a collective in each step
            loop._broadcast_sigterm_tensor = lambda: None  # (PR 20825); the launcher ends workers
        self._average = MovingAverage.begun(
            self._average_before or self._trained_weights, self.run.sample_decay
        )
        self.counted = count_workers(self.run.num_workers, is_worker=self._speaks)
        self.begin_anew()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        """Take a step at the rates of the run, then keep a snapshot where one is due."""
        self._schedules.set(self.samples // self.run.batch_size)
        factor, rates = self.run.rate_factor(self.samples), list[Any]()

        def restore() -> None:
            for group, rate in zip(optimizer.param_groups, rates, strict=bool(rates)):
                group["lr"] = rate
            rates.clear()

        def scaled() -> Any:
            """Multiply the rates, as they are after backward, for one step of the optimizer, which
            may call this several times.
            """
            restore()
            output = closure()
            self._finish_backward()
            for group in optimizer.param_groups:
                rates.append(group["lr"])
                group["lr"] = group["lr"] * factor
            return output

        output = super().optimizer_step(optimizer, scaled, model, **kwargs)
        restore()  # no rates, if Lightning has skipped the closure
        before = self.samples
        self.num_steps += 1  # of which `samples` is a multiple
        if self._average is not None:
            self._average.update(self._trained_weights, self.samples - before)
        if self.samples in self.run.snapshot_samples:
            if self.root_device.type == "cuda":
                torch.cuda.synchronize(self.root_device)  # queued work belongs to training
            seconds = self._clock.seconds()
            with self._clock.stopped():
                self._keep_snapshot(seconds)
            self.begin_anew()
        return output

    def _finish_backward(self) -> None:
        """Do what comes between backward and the optimizer's step."""

    def _native_bytes(self, *sums: tuple[int, int, int], size: int) -> tuple[int, int]:
        """Compute the bytes sent and received in all updates, which the backend does not count.
        `sums`: number of processes and of numbers, and the rank of this process. `size`: bytes of a
        number.
        """
        volumes = [collective("native").volumes(*shape)[rank] for *shape, rank in sums]
        sent, received = zip(*(each.in_bytes(size * self.updates) for each in volumes), strict=True)
        return sum(sent), sum(received)

    @property
    def _speaks(self) -> bool:
        """True in the first process of a worker."""
        return self.split is None or self.split.is_first

    def _keep_snapshot(self, seconds: float) -> None:
        if self.split is not None:
            self.diverged = not self.split.is_finite()
        else:
            finite = (bool(weight.isfinite().all()) for weight in self._trained_weights)
            self.diverged = not all(finite)
        trainer = self._trainer
        trainer.should_stop = trainer.should_stop or self.diverged
        index = self.run.snapshot_samples.index(self.samples)
        is_kept_here = self._speaks and index % self.run.num_workers == worker_index()
        weights = [self._whole_weights(is_kept_here)]
        if self._average is not None:
            held = [weight.data for weight in self._trained_weights]
            for weight, averaged in zip(self._trained_weights, self._average.weights, strict=True):
                weight.data = averaged
            weights.append(self._whole_weights(is_kept_here))
            for weight, own in zip(self._trained_weights, held, strict=True):
                weight.data = own
        if self._speaks:
            tensors = statistics_of(self.whole_module)
            dtype = tensors[0].dtype if tensors else torch.float32
            statistics = torch.empty(sum(each.numel() for each in tensors), dtype=dtype)
            if tensors:  # the mean over workers
                dist.all_reduce(flatten(tensors, statistics), group=members())
                statistics = statistics / dist.get_world_size(members())
            if is_kept_here:
                kept = torch.stack(weights)
                snapshot = Snapshot(self.samples, self.updates, seconds, kept, statistics)
                self._snapshots.append(snapshot)

    def _whole_weights(self, is_kept_here: bool) -> Tensor:
        """Return a copy on the CPU, empty unless `is_kept_here`; all shards must call this."""
        if self.split is not None:
            self.split.gather()
        weights = self.held_weights if is_kept_here else []
        size = sum(weight.numel() for weight in weights)
        return flatten(weights, torch.empty(size, dtype=self.held_weights[0].dtype))


class OneWorkerStrategy(AbstractSynchronousStrategy, SingleDeviceStrategy):
    """Strategy of a single worker, without DDP: speed-up is relative to the best such run."""

    skips_steps = True

    def _finish_backward(self) -> None:
        self.wait_for_pace()
        self.begin_anew()


def reduce_bucket(state: tuple[Hook, GroupWire, Pace | None], bucket: Bucket) -> Future[Tensor]:
    """Reduce a bucket. A paced worker sends the last one when the emulated backward has ended, and
    begins its next step when that is reduced. Else it would begin late where others share its core.
    """
    hook, wire, pace = state
    if pace is None or not bucket.is_last():
        return hook(wire.group, bucket)
    pace.wait()

    def begin(reduced: Future[Tensor]) -> Tensor:
        pace.begin()
        return reduced.value()

    return hook(wire.group, bucket).then(begin)


class SyncAllReduceStrategy(AbstractSynchronousStrategy, DDPStrategy):
    """Strategy of two workers or more, by Lightning's own DDP with overlapped buckets.

    Each worker keeps its own BatchNorm statistics (`broadcast_buffers` would cost a broadcast per
    step). If `paced`, all gradients are one bucket, reduced when the emulated backward has ended:
    the real one ends long before. `device`: the worker's.
    """

    def __init__(
        self,
        timeout_seconds: float,
        collective: str = "native",
        compression: str = "none",
        *,
        paced: bool = False,
        device: torch.device = _HOST,
    ) -> None:
        self._chosen, self._device = (collective, compression), device
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=_UNLIMITED if paced else None,
            timeout=datetime.timedelta(seconds=timeout_seconds),
        )

    def trainer_options(self) -> dict[str, Any]:
        """Return the options of the Trainer. Lightning wants the GPU of each process; since it uses
        the own one only, that one stands for all, which may be shared or on other nodes.
        """
        if self._device.type == "cpu":
            return {"strategy": self, "devices": self.run.num_workers, "plugins": []}
        self.parallel_devices = [self._device] * self.run.num_workers
        return {"strategy": self, "devices": [self._device.index], "plugins": []}

    def expect_unused_weights(self) -> None:
        """Let a step give no gradient to some weights."""
        self._ddp_kwargs["find_unused_parameters"] = True

    def all_gather(self, *args: Any, **kwargs: Any) -> Any:
        return DDPStrategy.all_gather(self, *args, **kwargs)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of process `src`, a plain one: Lightning's own method pickles it."""
        return broadcast_json(obj, src, members())

    def configure_ddp(self) -> None:
        super().configure_ddp()
        name, compression = self._chosen
        by, self._wire = collective(name), GroupWire()
        self._is_native = isinstance(by, Native)
        if self.pace is not None or self._chosen != ("native", "none"):
            assert isinstance(self.model, DistributedDataParallel)
            state = bucket_hook(by, compression, self._wire), self._wire, self.pace
            # Lightning registers hooks on CUDA only.
            self.model.register_comm_hook(state, reduce_bucket)  # pyright: ignore[reportUnknownMemberType]

    def pre_backward(self, closure_loss: Tensor) -> None:
        """Note that buckets are reduced from here on, so that this process waits for others."""
        rest()
        super().pre_backward(closure_loss)

    @property
    def bytes_so_far(self) -> Sequence[int]:
        return self._wire.bytes_sent, self._wire.bytes_received

    def on_train_end(self) -> None:
        """Read DDP's own timing, for which torch samples the first ten steps and every hundredth. A
        timer around an all-reduce that overlaps backward would count hidden time.
        """
        super().on_train_end()
        assert isinstance(self.model, DistributedDataParallel)
        model: Any = self.model  # its timing has no public name
        timing: dict[str, int] = model._get_ddp_logging_data()  # of a step [nanoseconds]
        communicating = timing.get("avg_backward_comm_time", 0)
        hidden = timing.get("avg_backward_compute_comm_overlap_time", 0)
        self.seconds_communicating = max(0, communicating - hidden) / 1e9 * self.num_steps
        weights = [each for each in self._trained_weights if each.requires_grad]
        length = sum(weight.numel() for weight in weights)
        size = weights[0].element_size() if self._chosen[1] == "none" else _HALF
        ring = self._native_bytes((self.run.num_workers, length, dist.get_rank()), size=size)
        self._bytes_exchanged = ring if self._is_native else tuple(self.bytes_so_far)


class SplitAllReduceStrategy(AbstractSynchronousStrategy, SingleDeviceStrategy):
    """Strategy of one process of a split worker; `prepare` must get its `split`.

    Yadan 2013 (arXiv:1312.5853) splits the network over some processes and the batch over others;
    Krizhevsky 2014 (arXiv:1404.5997) splits only its linear layers. After backward, gradients of
    layers by images are summed over all processes, those of slices over the processes with the same
    slices; each kind is one vector. Then every process applies its own.
    """

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        check_one_optimizer(self.optimizers, "a split worker", of_slices=True)
        assert self.split is not None
        self._part: SplitWorker = self.split
        self._part.begin(self.precision_plugin)

    def _finish_backward(self) -> None:
        self.wait_for_pace()
        before = time.perf_counter()
        self._part.mean_gradient(self.run.num_workers)
        self.seconds_communicating += time.perf_counter() - before
        self.begin_anew()

    def on_train_end(self) -> None:
        super().on_train_end()
        self._part.gather()
        by_all, by_alike = self._part.num_averaged()
        workers, size = self.run.num_workers, self.held_weights[0].element_size()
        self._bytes_exchanged = self._native_bytes(
            (self._part.shards * workers, by_all, dist.get_rank()),
            (workers, by_alike, worker_index()),
            size=size,
        )
