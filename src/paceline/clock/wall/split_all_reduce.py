"""Synchronous all-reduce of split workers, with a process for each part of the network.

Yadan 2013 (arXiv:1312.5853) splits the network over some processes and the batch over others;
Krizhevsky 2014 (arXiv:1404.5997) splits only its linear layers.
"""

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from pytorch_lightning import Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.optim import Optimizer

from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.supported_options import check_one_optimizer
from paceline.clock.wall.synchronous_strategy import AbstractSynchronousStrategy
from paceline.exchange.find_collective import collective
from paceline.exchange.process_group import worker_index


class SplitAllReduceStrategy(AbstractSynchronousStrategy, SingleDeviceStrategy):
    """Strategy of one process of a split worker; `prepare` must get its `split`.

    After backward, gradients of layers that are computed by images are summed over all processes,
    those of slices over the processes with the same ones; each kind is one vector. Then every
    process applies its own.
    """

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        check_one_optimizer(self.optimizers, "a split worker")
        assert self.split is not None
        self._part: SplitWorker = self.split
        self._part.begin(self.precision_plugin)
        self._seconds_averaging = 0.0

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        def averaged() -> Any:
            output = closure()
            self.wait_for_pace()
            self._mean_gradient()
            if self.pace is not None:
                self.pace.begin()
            return output

        return super().optimizer_step(optimizer, averaged, model, **kwargs)

    def on_train_end(self) -> None:
        super().on_train_end()
        self._part.gather()
        self._seconds_exposed = self._seconds_averaging / max(1, self.num_steps)
        self._bytes_exchanged = self._native_bytes()

    def _mean_gradient(self) -> None:
        before = time.perf_counter()
        self._part.mean_gradient(self.run.num_workers)
        self._seconds_averaging += time.perf_counter() - before

    def _native_bytes(self) -> tuple[int, int]:
        """Compute the bytes sent and received by this process, which the backend does not count."""
        native, size = collective("native"), self.held_weights[0].element_size()
        by_all, by_alike = self._part.num_averaged()
        workers = self.run.num_workers
        volumes = [
            native.volumes(self._part.shards * workers, by_all)[dist.get_rank()],
            native.volumes(workers, by_alike)[worker_index()],
        ]
        sent, received = zip(*(each.in_bytes(size * self.updates) for each in volumes), strict=True)
        return sum(sent), sum(received)
