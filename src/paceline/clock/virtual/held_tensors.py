"""Tensors of the one module on the virtual clock, which are those of each worker in turn."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.clock.snapshot import Snapshot, flatten
from paceline.clock.virtual.buffers import Buffer
from paceline.clock.virtual.virtual_worker import VirtualWorker


class HeldTensors:
    """Weights, floating-point buffers and other buffers of a module on `device`.

    They refer to the content of others, which is not copied.
    """

    def __init__(
        self,
        weights: list[nn.Parameter],
        statistics: Sequence[Tensor],
        counters: Sequence[Tensor],
        device: torch.device,
    ) -> None:
        self.weights, self.counters = weights, counters
        self._statistics, self._device = statistics, device

    def flat_weights(self) -> Tensor:
        """Return a copy of all weights as one vector."""
        return self._flat(self.weights)

    def flat_statistics(self) -> Tensor:
        """Return a copy of all floating-point buffers as one vector."""
        return self._flat(self._statistics)

    def take(self, worker: VirtualWorker) -> None:
        """Refer to what `worker` computes on."""
        assert worker.weights is not None
        self._refer(worker.weights, worker.statistics, worker.counters)

    def hold(self, snapshot: Snapshot, first: VirtualWorker) -> None:
        """Refer to what `snapshot` has, and to the other buffers of the worker `first`."""
        self._refer(Buffer(snapshot.weights[0]), Buffer(snapshot.statistics), first.counters)

    def _refer(self, weights: Buffer, statistics: Buffer, counters: Sequence[Tensor]) -> None:
        _point(self.weights, weights.views(self.weights))
        _point(self._statistics, statistics.views(self._statistics))
        _point(self.counters, counters)

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        size = sum(tensor.numel() for tensor in tensors)
        dtype = tensors[0].dtype if tensors else torch.get_default_dtype()
        return flatten(tensors, torch.empty(size, dtype=dtype, device=self._device))


def _point(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> None:
    """Make tensors refer to the content of others, without a copy."""
    for tensor, view in zip(tensors, views, strict=True):
        tensor.data = view
