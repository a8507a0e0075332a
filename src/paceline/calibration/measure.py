"""Measures this machine, so that it can be modelled: `paceline calibrate`.

A worker's steps are those of Lightning's loop on the chosen model and data; messages are those of a
worker and a server.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from hydra.utils import instantiate
from pytorch_lightning import LightningModule, seed_everything

from paceline.calibration.messages import Times, copy_bandwidth, measure_pair
from paceline.cluster.accelerator import choose, device
from paceline.cluster.launcher import launch
from paceline.record import provenance
from paceline.run.point_data import open_feed
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.run_point import prepare_data
from paceline.run.settings import check
from paceline.scheme.independent import Independent

SECONDS = 5.0  # of steps, for each batch size
MOST_WEIGHTS = 10_000_000  # in one message: 40 MB
_FEW_WEIGHTS = 1000
_WARM_UP = 0.1  # of the steps, and one at least, are not counted
_FEWEST_STEPS = 2
_MANY = 10**9  # more batches than anybody draws
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}


@dataclass(frozen=True)
class Measured:
    """`steps`: by batch size, seconds of each step. The others: see cluster/calibrate.py."""

    started: datetime
    load: float  # of the machine before: processes that wanted a core, on average over a minute
    cores: int  # that this process may use
    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    copy_bandwidth: float
    push_pull: Times
    allreduce: Times
    serve: Times


def measure(
    config: dict[str, Any], *, seconds: float = SECONDS, most_weights: int = MOST_WEIGHTS
) -> Measured:
    """`config`: a point's; its scheme and number of workers play no part. About half a minute.

    Raises SettingError, and ProcessFailure where a process fails.
    """
    config = {**config, "workers": 1, "scheme": _NO_SCHEME}
    check(config)
    prepare_data(config["data"])
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    worker = _launched(measure_steps, (config, seconds), servers=0)[0]
    sizes = sorted({1, _FEW_WEIGHTS, worker["num_parameters"], most_weights})
    pair = _launched(measure_pair, (sizes,), servers=1)
    cores = provenance.num_cores()
    return Measured(started, load, cores, **worker, **pair[0], **pair[1])


def measure_steps(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Entered by a process of its own: Measured's fields that one worker can tell."""
    silence()
    torch.set_num_threads(config["cluster"]["threads_per_worker"])
    accelerator = choose(config["cluster"]["accelerator"], 1)
    seed_everything(config["seed"], verbose=False)
    module, data = instantiate(config["model"]), instantiate(config["data"])
    num_train = open_feed(config, data).num_train
    steps = {}
    for size in batch_sizes(config["batch_size"], num_train):
        feed = open_feed({**config, "batch_size": size}, data)
        steps[size] = _step_seconds(config, module, feed.train(0, _MANY), accelerator, seconds)
    return {
        "accelerator": accelerator,
        "num_parameters": sum(weight.numel() for weight in module.parameters()),
        "steps": steps,
        "copy_bandwidth": copy_bandwidth(),
    }


def batch_sizes(batch_size: int, num_train: int) -> list[int]:
    """A quarter of what is asked for, that itself, and four times that, as far as images reach."""
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


def _launched(function: Any, arguments: tuple, *, servers: int) -> list[Any]:
    target = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        return launch(target, arguments, workers=1, servers=servers, log_folder=Path(folder))


def _step_seconds(
    config: dict[str, Any],
    module: LightningModule,
    batches: Iterable,
    accelerator: str,
    seconds: float,
) -> np.ndarray:
    """Of each step by itself: draw, forward, backward, the optimizer."""
    training = config["training"]
    timed = _TimedDraws(batches, seconds, device(accelerator, 0))
    trainer = quiet_trainer(
        accelerator="gpu" if accelerator == "cuda" else "cpu",
        devices=1,
        precision=training["precision"],
        gradient_clip_val=training["gradient_clip_val"],
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
