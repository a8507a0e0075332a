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
    bf16_compress_wrapper,
    fp16_compress_wrapper,
)
from torch.futures import Future

from paceline.exchange.collectives import AbstractCollective, Native
from paceline.exchange.group_wire import GroupWire
from paceline.exchange.process_group import has_nccl

Bucket = dist.GradBucket  # type: ignore[reportPrivateImportUsage]
Hook = Callable[[Any, Bucket], Future[Tensor]]

_HALVES: dict[str, Callable[[Hook], Hook]] = {
    "fp16": fp16_compress_wrapper,
    "bf16": bf16_compress_wrapper,
}


def bucket_hook(by: AbstractCollective, compression: str, wire: GroupWire) -> Hook:
    """Return a hook for `register_comm_hook(wire.group, ...)`, which returns the mean of a bucket
    over all workers as a future. `compression`: "none", or "fp16" or "bf16", which halve the bytes.
    The wire counts the bytes, except those of `native`.
    """
    native = isinstance(by, Native)
    hook = allreduce_hook if native else _one_by_one(partial(_mean, by, wire))
    return hook if compression == "none" else _HALVES[compression](hook)


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
