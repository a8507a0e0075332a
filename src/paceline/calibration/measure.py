"""Measures this machine, so that it can be modelled, for `paceline calibrate`.

Steps are those of Lightning's loop on the chosen model and data; messages are those between a
worker and a server.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.strategies import Strategy

from paceline.calibration.messages import (
    Times,
    copy_bandwidth,
    measure_in_training,
    measure_pair,
)
from paceline.cluster.accelerator import device
from paceline.cluster.launcher import launch
from paceline.exchange.process_group import join, leave
from paceline.record import provenance
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.run.open_data import open_data
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.run_point import prepare_data
from paceline.run.training_process import reading_of
from paceline.scheme.independent import Independent
from paceline.wall_clock.ddp import SyncAllReduceStrategy

SECONDS = 10.0  # time spent on each kind of steps
_TURNS = 4  # in which the kinds follow each other, as other guests of a host come and go
MOST_WEIGHTS = 10_000_000  # size of the largest message: 40 MB
_FEW_WEIGHTS = 1000
_PAIRS_OF_BLOCKS = 12  # of steps without and with an exchange
_WARM_UP = 0.1  # share of the steps, at least one of them, that is not counted
_FEWEST_STEPS = 2
_TIMEOUT = 600  # seconds
_MANY = 10**9  # more batches than will be drawn
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}


@dataclass(frozen=True)
class MeasuredSteps:
    """Measurements of one worker.

    `steps`: seconds of each step, by batch size. `ddp_steps`: those of a step at the chosen batch
    size by DistributedDataParallel, which reduces over this worker alone.
    """

    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    ddp_steps: np.ndarray
    copy_bandwidth: float  # bytes per second


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine.

    `batch_size`: the chosen one. `together`: mean seconds of a step, by the number of workers that
    take steps at once. `pair`: union of what measure_pair returns. `added`: seconds that an
    exchange of the model's weights adds to a step, by its name in `pair`.
    """

    started: datetime
    load: float  # load average of the machine over the minute before
    cores: int  # cores that this process may use
    batch_size: int
    worker: MeasuredSteps
    together: dict[int, float]
    pair: dict[str, Times]
    added: dict[str, float]


def measure(
    config: PointConfig, *, seconds: float = SECONDS, most_weights: int = MOST_WEIGHTS
) -> Measured:
    """Measure this machine with the model and data of a point; takes about two minutes.

    The scheme and the number of workers of the point have no effect. `seconds` is the time for
    steps of each batch size, and of each number of workers. Raises SettingError for a wrong
    setting, and ProcessFailure if a process fails.
    """
    point = Point.of(config.replaced(workers=1, scheme=_NO_SCHEME))
    prepare_data(point.data)
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    worker = _launched(measure_steps, (point, seconds))[0]
    counts = together_counts(provenance.num_cores())
    launched = _launched(measure_together, (point, counts, seconds), workers=max(counts))
    together = {n: fmean(each[n] for each in launched[:n]) for n in counts}
    sizes = sorted({1, _FEW_WEIGHTS, worker.num_parameters, most_weights})
    pair = _launched(measure_pair, (sizes,), servers=1)
    step = fmean(worker.steps[point.batch_size])
    block = max(2, int(seconds / (2 * _PAIRS_OF_BLOCKS * step)))
    added = _launched(measure_exchange, (point, worker.num_parameters, block), servers=1)
    return Measured(
        started=started,
        load=load,
        cores=provenance.num_cores(),
        batch_size=point.batch_size,
        worker=worker,
        together=together,
        pair={**pair[0], **pair[1]},
        added=added[0],
    )


def measure_steps(point: Point, seconds: float) -> MeasuredSteps:
    """Measure the steps and memory copies of one worker; must run in a process of its own."""
    steps = _Steps(point)
    sizes = batch_sizes(point.batch_size, steps.num_train)
    join(_TIMEOUT, "cpu")
    found: dict[int, list[np.ndarray]] = {size: [] for size in sizes}
    by_ddp: list[np.ndarray] = []
    for _ in range(_TURNS):
        for size in sizes:
            found[size].append(steps.seconds(size, seconds / _TURNS))
        ddp = SyncAllReduceStrategy(_TIMEOUT)
        ddp.prepare(workers=1, batch_size=point.batch_size, num_steps=_MANY, snapshot_samples=())
        by_ddp.append(steps.seconds(point.batch_size, seconds / _TURNS, strategy=ddp))
    leave()
    return MeasuredSteps(
        accelerator=point.device,
        num_parameters=sum(weight.numel() for weight in steps.module.parameters()),
        steps={size: np.concatenate(each) for size, each in found.items()},
        ddp_steps=np.concatenate(by_ddp),
        copy_bandwidth=copy_bandwidth(),
    )


def measure_together(point: Point, counts: list[int], seconds: float) -> dict[int, float]:
    """Return the mean seconds of a worker's step while `count` workers take steps at once.

    Processes with the ranks 0 to max(`counts`) - 1 must call this; the result has the counts in
    which this one takes part.
    """
    steps = _Steps(point)
    join(_TIMEOUT, "cpu")
    mine = [count for count in counts if dist.get_rank() < count]
    found: dict[int, list[np.ndarray]] = {count: [] for count in mine}
    for _ in range(_TURNS):
        for count in counts:
            dist.barrier()  # the others wait here for the next count
            if count in found:
                found[count].append(steps.seconds(point.batch_size, seconds / _TURNS))
    dist.barrier()
    leave()
    return {count: float(np.concatenate(each).mean()) for count, each in found.items()}


def measure_exchange(point: Point, num_weights: int, block: int) -> dict[str, float]:
    """Measure what exchanges add to a step; two processes must call this.

    Every other `block` of the steps has an exchange.
    """
    steps = _Steps(point)

    def take_steps(exchange: Callable[[], object]) -> Sequence[float]:
        return steps.exchanging(exchange, block)

    return measure_in_training(num_weights, take_steps, block)


def together_counts(cores: int) -> list[int]:
    """Return 1, the number of cores, and twice that."""
    return sorted({1, cores, 2 * cores})


def batch_sizes(batch_size: int, num_train: int) -> list[int]:
    """Return `batch_size`, a quarter of it, and four times it but at most `num_train`."""
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


def _launched(function: Any, arguments: tuple, *, workers: int = 1, servers: int = 0) -> list[Any]:
    target = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        return launch(target, arguments, workers=workers, servers=servers, log_folder=Path(folder))


class _Steps:
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
        batches = self._batches(batch_size, _MANY)
        timed = _TimedDraws(batches, seconds, device(self._point.device, 0))
        self._fit(timed, strategy=strategy or "auto")
        durations = np.diff(timed.drawn)
        return durations[max(1, int(_WARM_UP * len(durations))) :]

    def exchanging(self, exchange: Callable[[], object], block: int) -> np.ndarray:
        """Take steps, every other `block` of them with an exchange; return the seconds of each.

        The first block comes without one, and before all is a block that is not counted.
        """
        exchanges = _Exchanges(exchange, block)
        num_steps = (2 * _PAIRS_OF_BLOCKS + 1) * block
        self._fit(self._batches(self._point.batch_size, num_steps), callbacks=[exchanges])
        return np.diff(exchanges.ends)[block - 1 :]

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
            max_epochs=1,
            **options,
        )
        trainer.fit(self.module, batches)


class _Exchanges(Callback):
    """Exchange at the end of each step of every other `block`, but not of the first.

    `ends`: of each step, with its exchange [seconds].
    """

    def __init__(self, exchange: Callable[[], object], block: int) -> None:
        self._exchange, self._block = exchange, block
        self.ends: list[float] = []

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        step = len(self.ends)
        if step >= self._block and step // self._block % 2 == 0:
            self._exchange()
        self.ends.append(time.perf_counter())


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
