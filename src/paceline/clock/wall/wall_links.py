"""Links of a worker on real processes."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.links import AbstractLinks, at_once
from paceline.clock.wall.own_weights import OwnWeights
from paceline.clock.wall.push_link import PushLink
from paceline.exchange.find_collective import collective
from paceline.exchange.process_group import members, worker_index


class MeanLink:
    """Means of vectors [num_weights], by an all-reduce in which all workers take part."""

    def __init__(self, num_weights: int, dtype: torch.dtype) -> None:
        self._mean = torch.empty(num_weights, dtype=dtype)
        self._num_means = 0

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of all workers' values, valid until the next call."""
        self._mean.copy_(value)
        dist.all_reduce(self._mean, group=members())
        self._num_means += 1
        return self._mean.div_(dist.get_world_size(members())).to(value.device)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker."""
        workers = dist.get_world_size(members())
        volume = collective("native").volumes(workers, self._mean.numel())[worker_index()]
        return volume.in_bytes(self._num_means * self._mean.element_size())


class WallLinks(AbstractLinks):
    """Links of one worker, whose verbs block.

    `mean`, `push`, `own`: None if the scheme has no such link. `statistics`: floating-point buffers
    of the module, which are sent with each push.
    """

    def __init__(
        self,
        flat: FlatWeights,
        statistics: Sequence[Tensor],
        *,
        mean: MeanLink | None = None,
        push: PushLink | None = None,
        own: OwnWeights | None = None,
    ) -> None:
        self._flat, self._statistics = flat, statistics
        self._mean, self._push, self._own = mean, push, own

    @at_once
    def mean(self, value: Tensor) -> Tensor:
        assert self._mean is not None
        return self._mean.mean(value)

    @at_once
    def push(self, value: Tensor) -> Tensor:
        assert self._push is not None
        return self._push.push(value, self._statistics).to(self._flat.weights.device)

    @at_once
    def pair(self, partner: int) -> None:
        assert self._own is not None
        self._own.pair(partner)

    @at_once
    def apply(self, gradient: Tensor) -> Tensor:
        assert self._own is not None
        return self._own.apply(gradient)

    @at_once
    def adopt(self, weights: Tensor) -> None:
        holder = self._own or self._flat
        holder.adopt(weights)
