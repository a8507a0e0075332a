"""Many workers on the virtual clock, against the same Trainer with one plain worker; one thread.

Every worker takes a step before the timed ones, so that all vectors have been touched.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from pytorch_lightning import Callback

from benchmarks.config import point_of
from benchmarks.row import ratio_row, row
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.cluster.launcher import call_in_processes
from paceline.record.point import Point
from paceline.run.open_data import open_data
from paceline.run.placed_data import PlacedData, reading_of
from paceline.run.quiet import quiet_trainer, silence
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.sync_allreduce import SyncAllReduce

TURNS = 3
LEAST = 0.93
STEPS = 96  # timed, or a round of all workers where that is more
SCHEMES: dict[str, Callable[[], Any]] = {
    "sync_allreduce": SyncAllReduce,
    "async_parameter_server": lambda: AsyncParameterServer(servers=1),
}
CNN = ("small CNN, 1x28x28, batch 32", "model=small_cnn", "data=fashion_mnist_subset")
RESNET = ("ResNet-18, 3x32x32, batch 32", "model=resnet18", "data=synthetic")
CASES = ((CNN, (1, 16, 128, 1024)), (RESNET, (1, 16, 64)))
Kind = tuple[str, int] | None  # scheme and workers; None: the plain worker


def rows() -> list[dict[str, Any]]:
    speed = [line for case, workers in CASES for line in _speed(case, workers)]
    return [*speed, *_memory()]


def _speed(case: tuple[str, ...], workers: tuple[int, ...]) -> list[dict[str, Any]]:
    name, *overrides = case
    kinds: list[Kind] = [None, *((scheme, k) for scheme in SCHEMES for k in workers)]
    found = _in_process(rates, overrides, kinds)
    plain = found.pop(None)
    return [
        ratio_row(
            f"virtual clock, {scheme} x {k} / plain: {name}", series, plain, "images/s", LEAST
        )
        for (scheme, k), series in found.items()
    ]


def _memory() -> list[dict[str, Any]]:
    """Peaks of processes that do nothing else."""
    (cnn, *small), (resnet, *large) = CNN, RESNET
    asynchronous = "async_parameter_server"
    plain, many = (_in_process(peak, small, [kind]) for kind in (None, (asynchronous, 1024)))
    found = [_limit(f"peak memory, {asynchronous} x 1024 / plain: {cnn}", many, plain, 2 * plain)]
    plain, many = (_in_process(peak, large, [kind]) for kind in (None, (asynchronous, 64)))
    limit = plain + 66 * 45e6
    name = f"peak memory, {asynchronous} x 64 / (plain + 66 x 45 MB): {resnet}"
    return [*found, _limit(name, many, limit, limit)]


def _limit(name: str, ours: float, theirs: float, limit: float) -> dict[str, Any]:
    gigabytes = (ours / 1e9, theirs / 1e9)
    target = f"<= {limit / theirs:g}"
    return row(name, *gigabytes, "GB", ours / theirs, target, ours <= limit)


def _in_process(what: Callable[..., Any], overrides: list[str], kinds: list[Kind]) -> Any:
    point = point_of(*overrides, "batch_size=32", "data.root=data")
    return call_in_processes(what, point, kinds, STEPS, TURNS)[0]


def rates(point: Point, kinds: list[Kind], steps: int, turns: int) -> dict[Kind, list[float]]:
    """images/s, by turns."""
    found: dict[Kind, list[float]] = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, series in found.items():
            series.append(_rate(point, kind, steps))
    return found


def peak(point: Point, kinds: list[Kind], steps: int, _: int) -> float:
    """Bytes, of this process."""
    import resource

    _rate(point, kinds[0], steps)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Stopwatch(Callback):
    def __init__(self, warmup: int) -> None:
        self._left = warmup
        self.ends: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self._left -= 1
        if self._left <= 0:
            self.ends.append(time.perf_counter())


class _Plain:
    """One worker's first batches."""

    def __init__(self, feed: PlacedData, length: int) -> None:
        self._batches = feed.train(0, length)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Any:
        return iter(self._batches)


def _rate(point: Point, kind: Kind, steps: int) -> float:
    silence()
    torch.set_num_threads(1)
    scheme, workers = kind or ("", 1)
    size, steps, warmup = point.batch_size, max(steps, workers), max(8, workers)
    feed = open_data(point.data.build(), reading_of(point))
    torch.manual_seed(point.seed)
    stopwatch, length = _Stopwatch(warmup), warmup + steps
    options: dict[str, Any] = {}
    loader: Any = _Plain(feed, length)
    if kind is not None:
        strategy = VirtualStrategy(SCHEMES[scheme](), RunSpec(workers, seed=point.seed))
        options["strategy"] = strategy
        loader = strategy.batches(
            lambda worker, n: feed.batch(0, n * workers + worker), size, length
        )
    trainer = quiet_trainer(
        accelerator="cpu", devices=1, max_epochs=1, callbacks=[stopwatch], **options
    )
    trainer.fit(point.model.build(), loader)
    return steps * size / (stopwatch.ends[-1] - stopwatch.ends[0])
