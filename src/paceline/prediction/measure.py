"""Measures this machine, so that it can be modelled, for `paceline calibrate`.

Steps are those of Lightning's loop on the chosen model and data; messages are those between a
worker and a server.
"""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import torch.distributed as dist

from paceline.clock.run_spec import RunSpec
from paceline.clock.wall.ddp import SyncAllReduceStrategy
from paceline.cluster.launcher import launch
from paceline.exchange.process_group import join, leave
from paceline.prediction.messages import (
    REPETITIONS,
    Times,
    measure_allreduce,
    measure_in_training,
    measure_pair,
)
from paceline.prediction.steps import MANY, PAIRS_OF_BLOCKS, TimedSteps
from paceline.record import provenance
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.run.exchange_turns import PAUSE
from paceline.run.run_point import prepare_data
from paceline.scheme.independent import Independent
from paceline.timing.step_times import seconds_of_step

SECONDS = 10.0  # time spent on each kind of steps
_TURNS = 4  # in which the kinds follow each other, as other guests of a host come and go
MOST_WEIGHTS = 10_000_000  # size of the largest message: 40 MB
_CROWDED_SHARE = 4  # of that, among more workers than cores: 10 MB
_FEW_WEIGHTS = 1000
_FEW_CORES = 8
_CROWDS = (2, 4, 8)  # workers for each core
_MOST_WORKERS = 32  # each has some 250 MB
_TIMEOUT = 600  # seconds
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}


@dataclass(frozen=True)
class MeasuredSteps:
    """Measurements of one worker.

    `steps`: seconds of each step, by batch size. `ddp_steps`: those of a step at the chosen batch
    size by DistributedDataParallel, which reduces over only this worker.
    """

    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    ddp_steps: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine.

    `batch_size`: the chosen one. `pause`: seconds before a message, at most. `together`: mean
    seconds of a step, by the number of workers that take steps at once. `pair`: union of what
    measure_pair returns. `added`: seconds that an exchange of the model's weights adds to a step,
    by its name in `pair`. `crowded`: seconds of all-reduces over more workers than cores, by their
    number; empty where that would be too many.
    """

    started: datetime
    load: float  # load average of the machine over the minute before
    cores: int  # cores that this process may use
    batch_size: int
    pause: float
    worker: MeasuredSteps
    together: dict[int, float]
    pair: dict[str, Times]
    added: dict[str, float]
    crowded: dict[int, Times]


def measure(
    config: PointConfig,
    *,
    seconds: float = SECONDS,
    most_weights: int = MOST_WEIGHTS,
    repetitions: int = REPETITIONS,
) -> Measured:
    """Measure this machine with the model and data of a point: three to four minutes on two cores.

    The scheme and the number of workers of the point have no effect. Where its cluster emulates
    steps, processes sleep up to that long before a message. `seconds` is the time for
    steps of each batch size, and of each number of workers; messages are measured `repetitions`
    times. Raises SettingError for a wrong setting, and ProcessFailure if a process fails.
    """
    point = Point.of(config.replaced(workers=1, scheme=_NO_SCHEME))
    prepare_data(point.data)
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    worker = _launched(measure_steps, (point, seconds))[0]
    cores = provenance.num_cores() // point.cluster.threads_per_worker
    counts = together_counts(max(1, cores)) if point.device == "cpu" else [1]
    launched = _launched(measure_together, (point, counts, seconds), workers=max(counts))
    together = {n: fmean(each[n] for each in launched[:n]) for n in counts}
    sizes = sorted({1, _FEW_WEIGHTS, worker.num_parameters, most_weights})
    pause, emulated = PAUSE, point.cluster.step_seconds
    if emulated is not None:
        pause = max(PAUSE, seconds_of_step(emulated, point.batch_size))
    pair = _launched(measure_pair, (sizes, repetitions, pause), servers=1)
    step = fmean(worker.steps[point.batch_size])
    block = max(2, int(seconds / (2 * PAIRS_OF_BLOCKS * step)))
    added = _launched(measure_exchange, (point, worker.num_parameters, block), servers=1)
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
    """Measure the steps of one worker; must run in a process of its own."""
    steps = TimedSteps(point)
    sizes = batch_sizes(point.batch_size, steps.num_train)
    join(_TIMEOUT, "cpu")
    found: dict[int, list[np.ndarray]] = {size: [] for size in sizes}
    by_ddp: list[np.ndarray] = []
    for _ in range(_TURNS):
        for size in sizes:
            found[size].append(steps.seconds(size, seconds / _TURNS))
        ddp = SyncAllReduceStrategy(_TIMEOUT)
        ddp.prepare(RunSpec(num_workers=1, batch_size=point.batch_size, num_steps=MANY))
        by_ddp.append(steps.seconds(point.batch_size, seconds / _TURNS, strategy=ddp))
    leave()
    return MeasuredSteps(
        accelerator=point.device,
        num_parameters=sum(weight.numel() for weight in steps.module.parameters()),
        steps={size: np.concatenate(each) for size, each in found.items()},
        ddp_steps=np.concatenate(by_ddp),
    )


def measure_together(point: Point, counts: list[int], seconds: float) -> dict[int, float]:
    """Return the mean seconds of a worker's step while `count` workers take steps at once.

    Processes with the ranks 0 to max(`counts`) - 1 must call this; the result has the counts in
    which this one takes part.
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
    """Measure what exchanges add to a step; two processes must call this.

    Every other `block` of the steps has an exchange.
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
        arguments = sizes, repetitions, pause
        found[workers] = _launched(measure_allreduce, arguments, workers=workers)[0]
    return found


def together_counts(cores: int) -> list[int]:
    """Return 1, the number of cores, and on a small machine twice that."""
    return sorted({1, cores, *([2 * cores] if cores <= _FEW_CORES else [])})


def batch_sizes(batch_size: int, num_train: int) -> list[int]:
    """Return `batch_size`, a quarter of it, and four times it but at most `num_train`."""
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


def _launched(function: Any, arguments: tuple, *, workers: int = 1, servers: int = 0) -> list[Any]:
    target = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        return launch(target, arguments, workers=workers, servers=servers, log_folder=Path(folder))
