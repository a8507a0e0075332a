"""Measures this machine for `paceline calibrate`, which writes it as a modelled cluster.

It measures training steps of Lightning's loop with the chosen model and data, messages between a
worker and a server, and all-reduces between workers.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, seed_everything

from paceline.clock.run_spec import RunSpec
from paceline.clock.wall.ddp import SyncAllReduceStrategy
from paceline.cluster.cluster import device
from paceline.cluster.launcher import call_in_processes
from paceline.errors import SettingError
from paceline.exchange.process_group import join, leave
from paceline.prediction.messages import (
    PAUSE,
    REPETITIONS,
    measure_allreduce,
    measure_in_training,
    measure_pair,
)
from paceline.prediction.this_machine import Measured, MeasuredSteps, Times
from paceline.record import provenance
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.run_point import prepare_data
from paceline.scheme.independent import Independent
from paceline.timing.step_times import seconds_of_step

SECONDS = 10.0  # time to spend on each kind of step (batch size, number of workers, DDP)
GPU_SECONDS = 5.0  # the same on a GPU, whose steps vary less: two minutes for everything
_TURNS = 4  # each kind is measured so often by turns, since the load of a shared host varies
MOST_WEIGHTS = 10_000_000  # size of the largest message: 40 MB
_CROWDED_SHARE = 4  # with more workers than cores, messages are smaller by this factor: 10 MB
_FEW_WEIGHTS = 1000
_FEW_CORES = 8
_CROWDS = (2, 4, 8)  # workers for each core
_MOST_WORKERS = 32  # each has some 250 MB
_TIMEOUT = 600  # seconds
_PAIRS_OF_BLOCKS = 12  # of steps without and with an exchange
_WARM_UP = 0.1  # share of the steps, at least one of them, that is not counted
_FEWEST_STEPS = 2
_MANY = 10**9  # more batches than will be drawn
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}


def measure(
    config: PointConfig,
    *,
    seconds: float | None = None,
    most_weights: int = MOST_WEIGHTS,
    repetitions: int = REPETITIONS,
) -> Measured:
    """Measure this machine with the model and data of `config`; on two cores 3 to 4 minutes, on a
    GPU two.

    The scheme and the number of workers in `config` have no effect. `seconds`: time to spend on
    steps of each batch size and of each number of workers; None for SECONDS, or GPU_SECONDS on a
    GPU. `most_weights`: size of the largest message. Messages are measured `repetitions` times;
    before each is a random pause, up to the duration of a step if the cluster emulates step times.
    Raises SettingError for a wrong setting,
    and ProcessFailure if a process fails.
    """
    point = Point.of(config.replaced(workers=1, scheme=_NO_SCHEME))
    prepare_data(point.data)
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    on_gpu = point.device == "cuda"
    seconds = seconds or (GPU_SECONDS if on_gpu else SECONDS)
    worker = call_in_processes(measure_steps, point, seconds)[0]
    cores = provenance.num_cores() // point.cluster.threads_per_worker
    if on_gpu:
        together = {1: fmean(worker.steps[point.batch_size])}
    else:
        counts = together_counts(max(1, cores))
        launched = call_in_processes(measure_together, point, counts, seconds, workers=max(counts))
        together = {n: fmean(each[n] for each in launched[:n]) for n in counts}
    sizes = sorted({1, _FEW_WEIGHTS, worker.num_parameters, most_weights})
    pause, emulated = PAUSE, point.cluster.step_seconds
    if emulated is not None:
        pause = max(PAUSE, seconds_of_step(emulated, point.batch_size))
    pair = call_in_processes(measure_pair, sizes, repetitions, pause, servers=1)
    step = fmean(worker.steps[point.batch_size])
    block = max(2, int(seconds / (2 * _PAIRS_OF_BLOCKS * step)))
    added = call_in_processes(measure_exchange, point, worker.num_parameters, block, servers=1)
    return Measured(
        started=started,
        load=load,
        cores=provenance.num_cores(),
        batch_size=point.batch_size,
        pause=pause,
        worker=worker,
        together=together,
        pair={**pair[0], **pair[1]},
        added=added[0],
        crowded=_crowded(most_weights, repetitions, pause),
    )


def measure_steps(point: Point, seconds: float) -> MeasuredSteps:
    """Measure the steps of one worker; must run in a process of its own.

    Larger batches than the point's are left out if they do not fit into a GPU's memory. Raises
    SettingError("batch_size") if the point's own does not.
    """
    steps = TimedSteps(point)
    sizes = batch_sizes(point.batch_size, steps.num_train)
    join(_TIMEOUT, "cpu")
    found: dict[int, list[np.ndarray]] = {size: [] for size in sizes}
    by_ddp: list[np.ndarray] = []
    for _ in range(_TURNS):
        for size in list(found):
            try:
                found[size].append(steps.seconds(size, seconds / _TURNS))
            except torch.OutOfMemoryError:
                if size <= point.batch_size:
                    message = f"{size:,} images do not fit into the GPU's memory; choose fewer"
                    raise SettingError("batch_size", message) from None
                del found[size]
                torch.cuda.empty_cache()
        ddp = SyncAllReduceStrategy(_TIMEOUT)
        ddp.prepare(RunSpec(num_workers=1, batch_size=point.batch_size, num_steps=_MANY))
        by_ddp.append(steps.seconds(point.batch_size, seconds / _TURNS, strategy=ddp))
    leave()
    return MeasuredSteps(
        accelerator=point.device,
        num_parameters=sum(weight.numel() for weight in steps.module.parameters()),
        steps={size: np.concatenate(each) for size, each in found.items()},
        ddp_steps=np.concatenate(by_ddp),
    )


def measure_together(point: Point, counts: list[int], seconds: float) -> dict[int, float]:
    """Return the mean seconds of a step by the number of workers that take steps at once.

    Processes with the ranks 0 to max(`counts`) - 1 must call this function. Each process returns
    its own steps, for those counts in which it takes part.
    """
    steps = TimedSteps(point)
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
    """Return the seconds that exchanges add to a step, as `measure_in_training` does.

    Two processes, a worker and a server, must call this function.
    """
    take_steps = partial(TimedSteps(point).exchanging, block=block)
    return measure_in_training(num_weights, take_steps, block)


def _crowded(most_weights: int, repetitions: int, pause: float) -> dict[int, Times]:
    cores = provenance.num_cores()
    if cores > _FEW_CORES:
        return {}
    many, found = max(2, most_weights // _CROWDED_SHARE), {}
    for workers in (each * cores for each in _CROWDS if each * cores <= _MOST_WORKERS):
        sizes = [max(2 * workers, many * _FEW_WEIGHTS // MOST_WEIGHTS), many]
        of_workers = call_in_processes(
            measure_allreduce, sizes, repetitions, pause, workers=workers
        )
        found[workers] = of_workers[0]
    return found


def together_counts(cores: int) -> list[int]:
    """Return the numbers of workers to measure: 1, `cores`, and on a small machine 2 * `cores`."""
    return sorted({1, cores, *([2 * cores] if cores <= _FEW_CORES else [])})


def batch_sizes(batch_size: int, num_train: int) -> list[int]:
    """Return the batch sizes to measure: `batch_size`, a quarter of it, and four times it.

    The largest is at most `num_train`.
    """
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


class TimedSteps:
    """Takes and times training steps of one worker of `point` in this process.

    A step draws a batch and computes forward, backward and the optimizer's update.
    """

    def __init__(self, point: Point) -> None:
        silence()
        torch.set_num_threads(point.cluster.threads_per_worker)
        seed_everything(point.seed, verbose=False)
        self.module, self._point = point.model.build(), point
        self._data, self._reading = point.data.build(), reading_of(point)
        self.num_train = open_data(self._data, self._reading).num_train

    def seconds(self, batch_size: int, seconds: float, **options: Any) -> np.ndarray:
        """Take steps for `seconds`; return the seconds of each step after a warm-up.

        `options`: further arguments of Lightning's Trainer.
        """
        accelerator = device(self._point.device, 0)
        drawn: list[float] = []  # when each batch was drawn, with all steps before it done

        def draw() -> Iterator[Any]:
            for batch in self._batches(batch_size, _MANY):
                if accelerator.type == "cuda":
                    torch.cuda.synchronize(accelerator)
                drawn.append(time.perf_counter())
                if drawn[-1] - drawn[0] > seconds and len(drawn) > _FEWEST_STEPS:
                    return
                yield batch

        self._fit(draw(), **options)
        durations = np.diff(drawn)
        return durations[max(1, int(_WARM_UP * len(durations))) :]

    def exchanging(self, exchange: Callable[[], object], block: int) -> list[float]:
        """Take blocks of `block` steps, in turn without and with an exchange after each step.

        Returns the seconds of each step, beginning with a block without exchanges. A warm-up block
        before it is not counted.
        """
        exchanges = Exchanges(exchange, block)
        num_steps = (2 * _PAIRS_OF_BLOCKS + 1) * block
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
    """Callback that calls `exchange` at the end of each step in some blocks of `block` steps.

    The first block is a warm-up without exchanges; the following blocks are in turn without and
    with them. `seconds`: time of each step after the warm-up, including its exchange.
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
