"""Measures this machine, so that it can be modelled, for `paceline calibrate`.

Steps are those of Lightning's loop on the chosen model and data; messages are those between a
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
from paceline.run.open_data import open_data
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.run_point import prepare_data
from paceline.run.training_process import reading_of
from paceline.scheme.independent import Independent

SECONDS = 5.0  # time spent on the steps of each batch size
MOST_WEIGHTS = 10_000_000  # size of the largest message: 40 MB
_FEW_WEIGHTS = 1000
_WARM_UP = 0.1  # share of the steps, at least one of them, that is not counted
_FEWEST_STEPS = 2
_MANY = 10**9  # more batches than will be drawn
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}


@dataclass(frozen=True)
class MeasuredSteps:
    """Measurements of one worker. `steps` are the seconds of each step, by batch size."""

    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    copy_bandwidth: float  # bytes per second


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine. `pair` is the union of what measure_pair returns."""

    started: datetime
    load: float  # load average of the machine over the minute before
    cores: int  # cores that this process may use
    worker: MeasuredSteps
    pair: dict[str, Times]


def measure(
    config: PointConfig, *, seconds: float = SECONDS, most_weights: int = MOST_WEIGHTS
) -> Measured:
    """Measure this machine with the model and data of a point; takes about half a minute.

    The scheme and the number of workers of the point have no effect. `seconds` is the time for the
    steps of each batch size. Raises SettingError for a wrong setting, and ProcessFailure if a
    process fails.
    """
    point = Point.of(config.replaced(workers=1, scheme=_NO_SCHEME))
    prepare_data(point.data)
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    worker = _launched(measure_steps, (point, seconds), servers=0)[0]
    sizes = sorted({1, _FEW_WEIGHTS, worker.num_parameters, most_weights})
    pair = _launched(measure_pair, (sizes,), servers=1)
    return Measured(started, load, provenance.num_cores(), worker, {**pair[0], **pair[1]})


def measure_steps(point: Point, seconds: float) -> MeasuredSteps:
    """Measure the steps and memory copies of one worker; must run in a process of its own."""
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
    """Return `batch_size`, a quarter of it, and four times it but at most `num_train`."""
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


def _launched(function: Any, arguments: tuple, *, servers: int) -> list[Any]:
    target = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        return launch(target, arguments, workers=1, servers=servers, log_folder=Path(folder))


def _step_seconds(
    point: Point, module: LightningModule, batches: Iterable[Any], seconds: float
) -> np.ndarray:
    """Return the seconds of each step: draw, forward, backward and the optimizer."""
    timed = _TimedDraws(batches, seconds, device(point.device, 0))
    trainer = quiet_trainer(
        accelerator="gpu" if point.device == "cuda" else "cpu",
        devices=1,
        precision=point.training.precision,
        gradient_clip_val=point.training.gradient_clip_val,
        max_epochs=1,
    )
    trainer.fit(module, timed)
    durations = np.diff(timed.drawn)
    return durations[max(1, int(_WARM_UP * len(durations))) :]


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
