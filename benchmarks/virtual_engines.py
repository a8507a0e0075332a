"""Engines of the virtual clock, against a bare loop of one worker in the same process.

On a GPU also ResNet-18 with torchvision's first layers, on grey images of 28 x 28 pixels.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
import torchvision
from pytorch_lightning import Callback, LightningModule
from torch import nn

from benchmarks.config import point_of
from benchmarks.row import row
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.clock.virtual.wave_engines import EngineName
from paceline.model.classifier import Classifier
from paceline.run.open_data import open_data
from paceline.run.placed_data import PlacedData, reading_of
from paceline.run.quiet import quiet_trainer, silence
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.step_times import StepTimes

BATCH_SIZE, ENDLESS = 32, 10**7  # steps
JITTER = 0.1
SCHEMES: dict[str, Callable[[], Any]] = {
    "sync_allreduce": SyncAllReduce,
    "local_sgd": lambda: LocalSGD(8),
    "async_parameter_server": lambda: AsyncParameterServer(servers=1),
}
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
WARMUP, MEASURED, WINDOWS = 1.0, 1.5, 5  # seconds, of several windows
WORKERS = {"small CNN": (16, 64, 256), "ResNet-18": (16, 64)} if ON_GPU else {"small CNN": (16,)}
LEAST = {"small CNN": 200_000, "ResNet-18": 35_000}  # images/s of vmap on a GPU


def rows() -> Iterator[dict[str, Any]]:
    silence()
    torch.set_num_threads(1)
    for network, numbers in WORKERS.items():
        bare = _bare(network)
        for workers in numbers:
            for scheme in SCHEMES:
                rate = _rate(network, "vmap", scheme, workers)
                yield _row(network, "vmap", scheme, workers, rate, bare)
        for engine in ("graph", "one_by_one"):
            for scheme in ("sync_allreduce", "async_parameter_server"):
                rate = _rate(network, engine, scheme, 16)
                yield _row(network, engine, scheme, 16, rate, bare)


def _row(
    network: str, engine: str, scheme: str, workers: int, rate: float, bare: float
) -> dict[str, Any]:
    name = f"virtual clock by {engine}, {scheme} x {workers} / bare loop: {network}"
    aimed = ON_GPU and engine == "vmap"
    target = f">= {LEAST[network]:,} images/s" if aimed else "shown"
    holds = rate >= LEAST[network] or not aimed
    return row(name, rate, bare, "images/s", rate / bare, target, holds)


class _Stopwatch(Callback):
    """Measures the rate in some windows after a warm-up, and ends training. In the first ones
    graphs may still be captured.
    """

    def __init__(self, strategy: VirtualStrategy) -> None:
        self._strategy, self._begun = strategy, time.perf_counter()
        self._since: float | None = None
        self._images = 0
        self.rates: list[float] = []  # images/s

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        self._images += BATCH_SIZE * len(self._strategy.steps_of_batch(outputs["loss"]))
        now = time.perf_counter()
        if self._since is None:
            if now - self._begun < WARMUP:
                return
        elif now - self._since < MEASURED / WINDOWS:
            return
        _settle()
        now = time.perf_counter()
        if self._since is not None:
            self.rates.append(self._images / (now - self._since))
        self._since, self._images = now, 0
        trainer.should_stop = len(self.rates) == WINDOWS


def _rate(network: str, engine: EngineName, scheme: str, workers: int) -> float:
    """images/s of all workers together."""
    data = _data(workers)
    run = RunSpec(workers, batch_size=BATCH_SIZE, num_steps=ENDLESS, seed=1)
    strategy = VirtualStrategy(
        SCHEMES[scheme](),
        run,
        step_times=StepTimes(jitter=JITTER, seed=1),
        device=torch.device("cuda", 0) if ON_GPU else "cpu",
        engine=engine,
    )
    stopwatch = _Stopwatch(strategy)
    trainer = quiet_trainer(
        accelerator="gpu" if ON_GPU else "cpu",
        max_epochs=1,
        callbacks=[stopwatch],
        **strategy.trainer_options(),
    )
    batches = strategy.training_batches(data)
    try:
        trainer.fit(_module(network), batches)
    except Exception:  # one failure must not hide the other rows
        traceback.print_exc()
        return 0.0
    assert strategy.engine == engine
    return median(stopwatch.rates)


def _bare(network: str) -> float:
    """images/s of a loop in plain torch."""
    data, module = _data(1), _module(network).to(DEVICE)
    optimizer: Any = module.configure_optimizers()
    begun = time.perf_counter()
    warm, images, n = 0.0, 0, 0
    while True:
        gathered = data.together([(0, n)], DEVICE)
        batch = data.batch(0, n) if gathered is None else tuple(part[0] for part in gathered)
        loss: Any = module.training_step(batch, 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n, now = n + 1, time.perf_counter()
        if warm:
            images += BATCH_SIZE
            if now - warm >= MEASURED:
                _settle()
                return images / (time.perf_counter() - warm)
        elif now - begun > WARMUP:
            _settle()
            warm = time.perf_counter()


def _settle() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def _data(workers: int) -> PlacedData:
    point = point_of(
        "cluster=virtual",
        "model=small_cnn",
        "data=synthetic",
        "data.image_shape=[1,28,28]",
        "data.num_train=16384",
        "data.num_validation=128",
        "data.num_test=128",
        f"workers={workers}",
        f"batch_size={BATCH_SIZE}",
        "data.root=data",
    )
    return open_data(point.data.build(), reading_of(point))


def _module(network: str) -> LightningModule:
    torch.manual_seed(1)
    if network == "ResNet-18":
        sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=1e-4)
        return Classifier(resnet18(), sgd)
    overrides = ("cluster=virtual", "model=small_cnn", "model.network.width=14")
    shape = ("data=synthetic", "data.image_shape=[1,28,28]", "training.lr=0.01")
    return point_of(*overrides, *shape).model.build()


def resnet18() -> nn.Module:
    """ResNet-18 of He et al. 2016 for grey images and ten classes."""
    network = torchvision.models.resnet18(num_classes=10)
    network.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    return network
