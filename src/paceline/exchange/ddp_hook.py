"""DDP's buckets, averaged by a chosen collective, or compressed by torch's own hooks.

DDP hands over a bucket as soon as backward has filled it, in the same order on all workers. In that
order they are averaged while backward goes on: on a CPU by a thread, on CUDA on streams of their
own.
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
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future

from paceline.exchange.collective.named import AllReduce, collective
from paceline.exchange.collective.volume import volumes
from paceline.exchange.collective.wire import Wire
from paceline.exchange.compression import check_compression
from paceline.exchange.node import workers_of_a_node

Bucket = dist.GradBucket  # type: ignore[reportPrivateImportUsage]
Hook = Callable[[Any, Bucket], Future[Tensor]]

_HALVES: dict[str, tuple[Hook, Callable[[Hook], Hook]]] = {
    "fp16": (fp16_compress_hook, fp16_compress_wrapper),
    "bf16": (bf16_compress_hook, bf16_compress_wrapper),
}
_FULL_STEPS = 2  # before PowerSGD begins; with error feedback torch allows no fewer
# A gloo thread may be the last to drop what PowerSGD's callbacks hold, and a group whose last
# holder is one of its own threads aborts the process (seen): it is kept to the process's end.
_kept_groups: list[dist.ProcessGroup | None] = []


class BucketMean:
    """The mean of a bucket over all workers, as a future; called on each of them.

    fp16 and bf16 halve what is sent, by any collective. `power_sgd` (Vogels 2019,
    arXiv:1905.13727; torch's, of rank 1, from the third step on) sums factors by the backend's own
    all-reduce. `hierarchical` asks the workers where they are. `num_buckets` were handed over.
    Raises SettingError("scheme.collective") or ("scheme.compression") for what cannot be had.
    """

    def __init__(self, collective_name: str, compression: str) -> None:
        all_reduce = collective(collective_name)
        check_compression(compression, collective_name)
        hierarchical = collective_name == "hierarchical"
        self.wire = Wire(workers_per_node=workers_of_a_node() if hierarchical else None)
        self.num_buckets = 0
        self._natively = (0, 0)  # bytes sent and received by the backend's all-reduce
        self._native = collective_name == "native" and compression != "power_sgd"
        self._compression = compression
        self._hook = self._chosen(collective_name, compression, all_reduce)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Sent and received by this worker; of native as many as a ring's (collective/volume.py),
        for the elements that are left of a bucket when it is compressed.
        """
        sent, received = self._natively
        return sent + self.wire.bytes_sent, received + self.wire.bytes_received

    def __call__(self, bucket: Bucket) -> Future[Tensor]:
        self.num_buckets += 1
        if self._native:
            size = 2 if self._compression in _HALVES else bucket.buffer().element_size()
            self._count(bucket.buffer().numel(), size)
        return self._hook(self.wire.group, bucket)

    def _chosen(self, name: str, compression: str, all_reduce: AllReduce) -> Hook:
        if compression == "power_sgd":
            _kept_groups.append(dist.group.WORLD)
            state = PowerSGDState(self.wire.group, start_powerSGD_iter=_FULL_STEPS)
            return _in_turn(partial(self._power_sgd, state))
        if name == "native":
            return allreduce_hook if compression == "none" else _HALVES[compression][0]
        ours = _in_turn(partial(_mean, all_reduce, self.wire))
        return ours if compression == "none" else _HALVES[compression][1](ours)

    def _power_sgd(self, state: PowerSGDState, bucket: Bucket) -> Tensor:
        """To its end: its later all-reduces start in gloo's threads, where two buckets would race.

        Of factors torch counts the elements; of the first steps, which are not compressed, none.
        """
        before, buffer = state.total_numel_after_compression, bucket.buffer()
        size = buffer.element_size()
        reduced = powerSGD_hook(state, bucket).wait()
        self._count(state.total_numel_after_compression - before or buffer.numel(), size)
        return reduced

    def _count(self, num_elements: int, element_size: int) -> None:
        moved = volumes("native", self.wire.workers, num_elements)[self.wire.worker]
        more = moved.in_bytes(element_size)
        self._natively = (self._natively[0] + more[0], self._natively[1] + more[1])


def _mean(all_reduce: AllReduce, wire: Wire, bucket: Bucket) -> Tensor:
    """Divided first, as torch does, lest a sum of halves overflow."""
    vector = bucket.buffer().div_(wire.workers)
    all_reduce(vector, wire)
    return vector


def _in_turn(work: Callable[[Bucket], Tensor]) -> Hook:
    """A hook that does the work for one bucket after the other, in a thread of its own."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bucket mean")

    def hook(state: Any, bucket: Bucket) -> Future[Tensor]:
        vector = bucket.buffer()
        filled = Future(devices=[vector.device] if vector.is_cuda else None)
        done = filled.then(lambda _: work(bucket))  # an error in it is raised by backward
        if vector.is_cuda:
            filled.set_result(vector)
        else:
            thread.submit(filled.set_result, vector)
        return done

    return hook
