"""Copies between the vectors of a worker on a GPU and the buffers of its wire."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.clock.snapshot import flatten
from paceline.exchange.wire.gpu_memory import pin
from paceline.exchange.wire.worker_wire import WorkerWire


class Staging:
    """Copies of a worker on a GPU.

    Buffers in host memory are pinned, and copied on a stream of their own. Buffers on the GPU that
    servers on GPUs share need no copy if the worker computes in them, and nobody waits here: events
    order what follows. `streams`: module of torch with streams of the device. `pinned`: True
    if the buffers in host memory could be pinned.
    """

    def __init__(self, wire: WorkerWire, device: torch.device, streams: Any = torch.cuda) -> None:
        self._wire, self._device, self._streams = wire, device, streams
        self._stream: Any = streams.Stream(device)
        self._weights = wire.weights
        if wire.in_host_memory:
            self._weights = torch.empty_like(wire.weights, device=device)
        self._statistics = torch.zeros_like(wire.statistics, device=device)
        if device.type == "cuda":
            host = (wire.gradient, wire.weights, wire.statistics)
            self.pinned = all([pin(each) for each in host if each.device.type == "cpu"])

    def send(self, value: Tensor, statistics: Sequence[Tensor]) -> None:
        """Copy `value` [num_weights] and BatchNorm's statistics. Into host memory: wait until all
        is copied.
        """
        flatten(statistics, self._statistics)
        if not self._wire.in_host_memory:
            if value is not self._wire.gradient:
                self._wire.gradient.copy_(value)
            self._wire.statistics.copy_(self._statistics, non_blocking=True)
            return
        self._stream.wait_stream(self._streams.current_stream(self._device))
        with self._streams.stream(self._stream):
            self._wire.gradient.copy_(value, non_blocking=True)
            self._wire.statistics.copy_(self._statistics, non_blocking=True)
        self._stream.synchronize()

    def finish(self) -> None:
        """Wait for all computations of this worker."""
        self._streams.current_stream(self._device).synchronize()

    def receive(self) -> Tensor:
        """Return the weights in the servers' answers, on the device."""
        if self._wire.in_host_memory:
            with self._streams.stream(self._stream):
                self._weights.copy_(self._wire.weights, non_blocking=True)
            self._streams.current_stream(self._device).wait_stream(self._stream)
        return self._weights


def staged(wire: WorkerWire, device: torch.device) -> Staging | None:
    """Return the copies of a worker on this device; None on a CPU, which needs none."""
    return None if device.type == "cpu" else Staging(wire, device)
