"""Steps of a worker in Lightning's loop, timed one by one, with or without exchanges."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.strategies import Strategy

from paceline.cluster.cluster import device
from paceline.record.point import Point
from paceline.run.open_data import open_data
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.training_process import reading_of

PAIRS_OF_BLOCKS = 12  # of steps without and with an exchange
_WARM_UP = 0.1  # share of the steps, at least one of them, that is not counted
_FEWEST_STEPS = 2
MANY = 10**9  # more batches than will be drawn


class TimedSteps:
    """Steps of a worker of `point` in this process: draw, forward, backward and the optimizer."""

    def __init__(self, point: Point) -> None:
        silence()
        torch.set_num_threads(point.cluster.threads_per_worker)
        seed_everything(point.seed, verbose=False)
        self.module, self._point = point.model.build(), point
        self._data, self._reading = point.data.build(), reading_of(point)
        self.num_train = open_data(self._data, self._reading).num_train

    def seconds(
        self, batch_size: int, seconds: float, strategy: Strategy | None = None
    ) -> np.ndarray:
        """Take steps for `seconds`; return the seconds of each."""
        batches = self._batches(batch_size, MANY)
        timed = _TimedDraws(batches, seconds, device(self._point.device, 0))
        self._fit(timed, strategy=strategy or "auto")
        durations = np.diff(timed.drawn)
        return durations[max(1, int(_WARM_UP * len(durations))) :]

    def exchanging(self, exchange: Callable[[], object], block: int) -> list[float]:
        """Take steps, every other `block` of them with an exchange; return the seconds of each.

        The first block has none; a block that is not counted comes before it.
        """
        exchanges = Exchanges(exchange, block)
        num_steps = (2 * PAIRS_OF_BLOCKS + 1) * block
        self._fit(self._batches(self._point.batch_size, num_steps), callbacks=[exchanges])
        return exchanges.seconds

    def _batches(self, batch_size: int, most: int) -> Iterable[Any]:
        reading = replace(self._reading, batch_size=batch_size)
        return open_data(self._data, reading).train(0, most)

    def _fit(self, batches: Iterable[Any], **options: Any) -> None:
        point = self._point
        trainer = quiet_trainer(
            plugins=[LightningEnvironment()],
            accelerator="gpu" if point.device == "cuda" else "cpu",
            devices=1,
            precision=point.training.precision,
            gradient_clip_val=point.training.gradient_clip_val,
            gradient_clip_algorithm=point.training.gradient_clip_algorithm,
            max_epochs=1,
            **options,
        )
        trainer.fit(self.module, batches)


class Exchanges(Callback):
    """Exchange at the end of each step of every other `block`, but not of the first.

    `seconds`: of each step, with its exchange, without the first block.
    """

    def __init__(self, exchange: Callable[[], object], block: int) -> None:
        self._exchange, self._block = exchange, block
        self._ends: list[float] = []

    @property
    def seconds(self) -> list[float]:
        return np.diff(self._ends)[self._block - 1 :].tolist()

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        step = len(self._ends)
        if step >= self._block and step // self._block % 2 == 0:
            self._exchange()
        self._ends.append(time.perf_counter())


class _TimedDraws:
    """Iterator over `batches` that stops after `seconds`.

    `drawn` are the times at which each batch was drawn [seconds], with all steps before it done.
    """

    def __init__(self, batches: Iterable, seconds: float, device: torch.device) -> None:
        self.drawn: list[float] = []
        self._batches, self._seconds, self._device = batches, seconds, device

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self.drawn.append(time.perf_counter())
            elapsed = self.drawn[-1] - self.drawn[0]
            if elapsed > self._seconds and len(self.drawn) > _FEWEST_STEPS:
                return
            yield batch
