"""Synchronous all-reduce on real processes: Lightning's own DDP with overlapped buckets."""

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from paceline.clock.training_strategy import TrainerOptions
from paceline.clock.wall.synchronous_strategy import AbstractSynchronousStrategy
from paceline.exchange.ddp_hook import BucketMean
from paceline.exchange.find_collective import collective
from paceline.exchange.liveness import rest
from paceline.timing.pace import Pace

_UNLIMITED = 2**20  # MiB


class _DDPTiming(TypedDict, total=False):
    """Mean times of a step [nanoseconds] in torch's logging data, absent before it samples."""

    avg_backward_comm_time: int
    avg_backward_compute_comm_overlap_time: int


def paced_closure(closure: Callable[[], Any], pace: Pace) -> Callable[[], Any]:
    """Make a closure that ends with the emulated step, and begins the next one."""

    def computed() -> Any:
        output = closure()
        pace.wait()
        pace.begin()
        return output

    return computed


def reduce_bucket(
    state: tuple[BucketMean, Pace | None],
    bucket: dist.GradBucket,  # type: ignore[reportPrivateImportUsage]
) -> Future[Tensor]:
    """Reduce a bucket; a paced worker sends the last one when the emulated backward has ended.

    The next step of a paced worker begins when that is reduced. Otherwise a worker that shares its
    core would begin late, because others compute.
    """
    mean, pace = state
    if pace is None or not bucket.is_last():
        return mean(bucket)
    pace.wait()

    def begin(reduced: Future[Tensor]) -> Tensor:
        pace.begin()
        return reduced.value()

    return mean(bucket).then(begin)


class OneWorkerStrategy(AbstractSynchronousStrategy, SingleDeviceStrategy):
    """Strategy of a single worker, without DDP: speed-up is relative to the best such run."""

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        computed = closure if self.pace is None else paced_closure(closure, self.pace)
        return super().optimizer_step(optimizer, computed, model, **kwargs)


class SyncAllReduceStrategy(AbstractSynchronousStrategy, DDPStrategy):
    """Strategy of two workers and more, by DDP.

    BatchNorm statistics stay per worker (`broadcast_buffers` would cost a broadcast per step). If
    `paced`, all gradients are one bucket, reduced when the emulated backward has ended: the real
    one is over long before.
    """

    def __init__(
        self,
        timeout_seconds: float,
        collective: str = "native",
        compression: str = "none",
        *,
        paced: bool = False,
    ) -> None:
        self._chosen = (collective, compression)
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=_UNLIMITED if paced else None,
            timeout=datetime.timedelta(seconds=timeout_seconds),
        )

    def trainer_options(self) -> TrainerOptions:
        return {"strategy": self, "devices": self.run.num_workers, "plugins": []}

    def configure_ddp(self) -> None:
        super().configure_ddp()
        self._mean = None
        if self.pace is not None or self._chosen != ("native", "none"):
            assert isinstance(self.model, DistributedDataParallel)
            self._mean = BucketMean(*self._chosen)
            # Lightning registers hooks on CUDA only.
            self.model.register_comm_hook((self._mean, self.pace), reduce_bucket)  # pyright: ignore[reportUnknownMemberType]

    def pre_backward(self, closure_loss: Tensor) -> None:
        """Note that buckets are reduced from here on, for which other workers are waited for."""
        rest()
        super().pre_backward(closure_loss)

    @property
    def bytes_so_far(self) -> Sequence[int]:
        return self._mean.bytes_exchanged if self._mean else (0, 0)

    def on_train_end(self) -> None:
        """Read DDP's own timing, for which torch samples the first ten steps and every hundredth.

        A timer around an all-reduce that overlaps backward would also count hidden time.
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
        volume = collective("native").volumes(self.run.num_workers, length)[dist.get_rank()]
        return volume.in_bytes(size * self.updates)
