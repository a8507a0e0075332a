"""Communication hook of DDP that averages buckets by a chosen collective, or compresses them.

DDP hands over a bucket as soon as backward has filled it, in the same order on all workers. Buckets
are averaged in that order while backward continues: on a CPU in a thread, on CUDA on other streams.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    bf16_compress_wrapper,
    fp16_compress_hook,
    fp16_compress_wrapper,
)
from torch.futures import Future

from paceline.exchange.collectives import AbstractCollective, Native, collective
from paceline.exchange.group_wire import GroupWire
from paceline.exchange.process_group import has_nccl

Bucket = dist.GradBucket  # type: ignore[reportPrivateImportUsage]
Hook = Callable[[Any, Bucket], Future[Tensor]]

_HALVES: dict[str, tuple[Hook, Callable[[Hook], Hook]]] = {
    "fp16": (fp16_compress_hook, fp16_compress_wrapper),
    "bf16": (bf16_compress_hook, bf16_compress_wrapper),
}


class BucketMean:
    """Callable that returns the mean of a bucket over all workers as a future; all workers call
    it.

    The compressions fp16 and bf16 halve the bytes of any collective. `num_buckets` counts the
    calls. The constructor raises SettingError("scheme.collective").
    """

    def __init__(self, collective_name: str, compression: str) -> None:
        chosen = collective(collective_name)
        self.wire = GroupWire()
        self.num_buckets = 0
        self._native = isinstance(chosen, Native)
        self._compression = compression
        self._hook = self._make_hook(chosen, compression)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker. For the native collective they are computed:
        those of a ring for the compressed size of each bucket.
        """
        return self.wire.bytes_sent, self.wire.bytes_received

    def __call__(self, bucket: Bucket) -> Future[Tensor]:
        self.num_buckets += 1
        if self._native:
            size = 2 if self._compression in _HALVES else bucket.buffer().element_size()
            self._count(bucket.buffer().numel(), size)
        return self._hook(self.wire.group, bucket)

    def _make_hook(self, chosen: AbstractCollective, compression: str) -> Hook:
        if isinstance(chosen, Native):
            return allreduce_hook if compression == "none" else _HALVES[compression][0]
        ours = _one_by_one(partial(_mean, chosen, self.wire))
        return ours if compression == "none" else _HALVES[compression][1](ours)

    def _count(self, num_elements: int, element_size: int) -> None:
        volume = collective("native").volumes(self.wire.workers, num_elements)[self.wire.worker]
        sent, received = volume.in_bytes(element_size)
        self.wire.bytes_sent += sent
        self.wire.bytes_received += received


def _mean(chosen: AbstractCollective, wire: GroupWire, bucket: Bucket) -> Tensor:
    """Return the mean of a bucket, divided before the sum so that fp16 cannot overflow."""
    vector = bucket.buffer().div_(wire.workers)
    # Workers that share a GPU have no NCCL, and gloo carries no messages between GPUs.
    carried = vector.cpu() if vector.is_cuda and not has_nccl() else vector
    wire.all_reduce(carried, chosen)
    return vector if carried is vector else vector.copy_(carried)


def _one_by_one(work: Callable[[Bucket], Tensor]) -> Hook:
    """Make a hook that processes one bucket after another in a separate thread."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bucket mean")

    def hook(state: Any, bucket: Bucket) -> Future[Tensor]:
        vector = bucket.buffer()
        filled: Future[Tensor] = Future(devices=[vector.device] if vector.is_cuda else None)
        done = filled.then(lambda _: work(bucket))  # an error in it is raised by backward
        if vector.is_cuda:
            filled.set_result(vector)
        else:
            thread.submit(filled.set_result, vector)
        return done

    return hook
