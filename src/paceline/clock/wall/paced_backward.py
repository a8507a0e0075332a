"""Pacing of synchronous workers: the emulated backward ends before gradients are reduced."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.exchange.ddp_hook import BucketMean
from paceline.timing.pace import Pace


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
