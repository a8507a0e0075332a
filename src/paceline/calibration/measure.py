"""Measures this machine, so that it can be modelled: `paceline calibrate`.

A worker's steps are those of Lightning's loop on the chosen model and data; messages are those of a
worker and a server.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from pytorch_lightning import LightningModule, seed_everything

from paceline.calibration.messages import Times, copy_bandwidth, measure_pair
from paceline.cluster.accelerator import device
from paceline.cluster.launcher import launch
from paceline.record import provenance
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.run.point_data import open_data
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.run_point import prepare_data
from paceline.run.training_process import reading_of
from paceline.scheme.independent import Independent

SECONDS = 5.0  # of steps, for each batch size
MOST_WEIGHTS = 10_000_000  # in one message: 40 MB
_FEW_WEIGHTS = 1000
_WARM_UP = 0.1  # of the steps, and one at least, are not counted
_FEWEST_STEPS = 2
_MANY = 10**9  # more batches than anybody draws
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}


@dataclass(frozen=True)
class MeasuredSteps:
    """What one worker can tell. `steps`: by batch size, seconds of each step."""

    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    copy_bandwidth: float  # bytes per second


@dataclass(frozen=True)
class Measured:
    """What was measured of this machine. `pair`: see calibration/messages.py."""

    started: datetime
    load: float  # of the machine before: processes that wanted a core, on average over a minute
    cores: int  # that this process may use
    worker: MeasuredSteps
    pair: dict[str, Times]


def measure(
    config: PointConfig, *, seconds: float = SECONDS, most_weights: int = MOST_WEIGHTS
) -> Measured:
    """Measure with a point's model and data; its scheme and number of workers play no part.

    Takes about half a minute. Raises SettingError, and ProcessFailure where a process fails.
    """
    point = Point.of(config.replaced(workers=1, scheme=_NO_SCHEME))
    prepare_data(point.data)
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    worker = _launched(measure_steps, (point, seconds), servers=0)[0]
    sizes = sorted({1, _FEW_WEIGHTS, worker.num_parameters, most_weights})
    pair = _launched(measure_pair, (sizes,), servers=1)
    return Measured(started, load, provenance.num_cores(), worker, {**pair[0], **pair[1]})


def measure_steps(point: Point, seconds: float) -> MeasuredSteps:
    """Measure what one worker can tell, in a process of its own."""
    silence()
    torch.set_num_threads(point.cluster.threads_per_worker)
    seed_everything(point.seed, verbose=False)
    module, data = point.model.build(), point.data.build()
    reading = reading_of(point)
    num_train = open_data(data, reading).num_train
    steps = {}
    for size in batch_sizes(point.batch_size, num_train):
        batches = open_data(data, replace(reading, batch_size=size)).train(0, _MANY)
        steps[size] = _step_seconds(point, module, batches, seconds)
    return MeasuredSteps(
        accelerator=point.device,
        num_parameters=sum(weight.numel() for weight in module.parameters()),
        steps=steps,
        copy_bandwidth=copy_bandwidth(),
    )


def batch_sizes(batch_size: int, num_train: int) -> list[int]:
    """A quarter of what is asked for, that itself, and four times that, as far as images reach."""
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


def _launched(function: Any, arguments: tuple, *, servers: int) -> list[Any]:
    target = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        return launch(target, arguments, workers=1, servers=servers, log_folder=Path(folder))


def _step_seconds(
    point: Point, module: LightningModule, batches: Iterable[Any], seconds: float
) -> np.ndarray:
    """Of each step by itself: draw, forward, backward, the optimizer."""
    timed = _TimedDraws(batches, seconds, device(point.device, 0))
    trainer = quiet_trainer(
        accelerator="gpu" if point.device == "cuda" else "cpu",
        devices=1,
        precision=point.training.precision,
        gradient_clip_val=point.training.gradient_clip_val,
        max_epochs=1,
    )
    trainer.fit(module, timed)
    found = np.diff(timed.drawn)
    return found[max(1, int(_WARM_UP * len(found))) :]


class _TimedDraws:
    """`batches` for a while; `drawn`: when each was there, the steps before it being done."""

    def __init__(self, batches: Iterable, seconds: float, where: torch.device) -> None:
        self.drawn: list[float] = []
        self._batches, self._seconds, self._where = batches, seconds, where

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            if self._where.type == "cuda":
                torch.cuda.synchronize(self._where)
            self.drawn.append(time.perf_counter())
            elapsed = self.drawn[-1] - self.drawn[0]
            if elapsed > self._seconds and len(self.drawn) > _FEWEST_STEPS:
                return
            yield batch
