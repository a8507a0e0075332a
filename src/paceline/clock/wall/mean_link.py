"""Link of a worker to all others for means, on real processes."""

import torch
import torch.distributed as dist
from torch import Tensor

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
