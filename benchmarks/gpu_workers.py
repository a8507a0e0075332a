"""Real workers on one GPU: push and pull, async against independent, and a GPU that workers share.

ResNet-18 with torchvision's first layers, on grey images of 28 x 28 pixels. Without a GPU there are
no rows. LIMIT (seconds, default 60): when it is over, no further run begins.
"""

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.asynchronous_throughput import BATCH_SIZE, _launched, _rate
from benchmarks.config import point_of
from benchmarks.row import ratio_row, row
from paceline.clock.wall import staging
from paceline.clock.wall.staging import Staging
from paceline.cluster.launcher import call_in_processes
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire import gpu_memory
from paceline.exchange.wire.frame import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.record.point import Point
from paceline.run import training_process

SIZE, ROUNDS = 11_173_962, 30  # weights: ResNet-18, 45 MB
WORKER, SERVER = 0, 1
PAGEABLE = "pageable memory, one thread"
PINNED, IPC = "push and pull through pinned memory", "push and pull through CUDA IPC"
DOWN, UP = "  of which GPU to pinned memory", "  of which pinned memory to GPU"
COPY = "  of which the server's copy of its weights"
MOST = {PINNED: 2.0, IPC: 0.3}  # ms
ALONE, SCHEME = "independent", "async_parameter_server"
PROCESS = "benchmarks.gpu_workers:run"
STEPS, TURNS = 250, 2
LEAST = 0.9  # of the rate of one worker alone
SHARED = (  # schemes of workers that share the GPU, in this order until the time is over
    ALONE,
    SCHEME,
    "sync_allreduce",
    "local_sgd",
    "sync_parameter_server",
    "stale_synchronous",
    "elastic_averaging",
    "gossip",
    "post_local_sgd",
    "sync_then_async",
    "mixed",
)


def rows() -> Iterator[dict[str, Any]]:
    if not torch.cuda.is_available():
        return
    until = time.monotonic() + float(os.environ.get("LIMIT", "60"))
    yield from _exchanges()
    alone = yield from _alone_and_served(until)
    for scheme in SHARED:
        for workers in (2, 4):
            rate = _images_per_second(until, scheme, workers, 32)
            if rate is not None and alone:
                about = f"{scheme}, {workers} workers that share the GPU / one alone: batch 32"
                yield row(about, rate, alone, "images/s", rate / alone, "shown", True)


def _exchanges() -> Iterator[dict[str, Any]]:
    worker, server = _tried(lambda: call_in_processes(measure, servers=1), ({}, {}))
    seconds = {**worker, COPY: server[COPY]} if worker else {}
    for name, series in seconds.items():
        taken, copies = 1e3 * median(series), 1e3 * median(seconds[PAGEABLE])
        most = MOST.get(name)
        target = f"<= {most} ms" if most else "shown"
        about = f"{name}: 45 MB / push and pull through {PAGEABLE}"
        yield row(about, taken, copies, "ms", taken / copies, target, not most or taken <= most)


def _alone_and_served(until: float) -> Generator[dict[str, Any], None, float | None]:
    """Return the rate of one worker alone, of batches of 32."""
    on_gpu, on_cpu = "cluster.server_device=cuda", "cluster.server_device=cpu"
    alone: dict[int, list[float]] = {32: [], 128: []}
    served: dict[int, list[float]] = {32: [], 128: []}
    for size in [*alone] * TURNS:
        for found, settings in ((alone, [ALONE]), (served, [SCHEME, on_gpu])):
            scheme, *more = settings
            rate = _images_per_second(until, scheme, 1, size, *more)
            found[size] += [] if rate is None else [rate]
    for size in alone:
        if alone[size] and served[size]:
            about = f"{SCHEME}, server on the GPU / {ALONE}: batch {size}"
            yield ratio_row(about, served[size], alone[size], "images/s", LEAST)
    for name in ("pinned memory", PAGEABLE):
        for size in alone:
            before = name == PAGEABLE
            rate = _images_per_second(until, SCHEME, 1, size, on_cpu, as_before=before)
            if rate is not None and alone[size]:
                about = f"{SCHEME}, server on the CPU, {name} / {ALONE}: batch {size}"
                one = median(alone[size])
                yield row(about, rate, one, "images/s", rate / one, "shown", True)
    return median(alone[32]) if alone[32] else None


def _images_per_second(
    until: float,
    scheme: str,
    workers: int,
    batch_size: int,
    *settings: str,
    as_before: bool = False,
) -> float | None:
    """images/s of all workers; None if the run failed, or the time is over."""
    if time.monotonic() > until:
        return None

    def measured() -> float:
        point = _point(scheme, workers, batch_size, settings)
        with tempfile.TemporaryDirectory() as folder:
            arguments = (point, Path(folder), as_before)
            seen = _launched(PROCESS, arguments, *point.num_processes)[:workers]
        ends = [each.training_started + each.real_step_ends for each in seen]
        return batch_size / BATCH_SIZE * _rate(ends)

    return _tried(measured, None)


def _point(scheme: str, workers: int, batch_size: int, settings: Sequence[str]) -> Point:
    return point_of(
        "model=small_cnn",
        "~model.network.image_shape",
        "~model.network.num_classes",
        "~model.network.width",
        "~model.network.normalization",
        "model.network._target_=benchmarks.virtual_engines.resnet18",
        "data=synthetic",
        "data.image_shape=[1,28,28]",
        "data.num_validation=100",
        "data.num_test=100",
        "training.lr=0.01",
        "measurement.evaluations=0",
        "measurement.mlflow.tracking_uri=null",
        f"scheme={scheme}",
        f"workers={workers}",
        f"batch_size={batch_size}",
        f"training.samples={STEPS * workers * batch_size}",
        f"cluster.workers_per_accelerator={workers}",
        "cluster.accelerator=gpu",
        *settings,
    )


def _tried(measured: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return measured()
    except Exception:  # one failure must not hide the other rows
        traceback.print_exc()
        return otherwise


def run(point: Point, folder: Path, as_before: bool) -> Any:
    """A process of a point; `as_before`: with pageable memory, and one thread in the server."""
    if as_before:
        _do_not_pin()
        training_process._threads_of_server = lambda point: 1
    return training_process.run(point, folder)


def _do_not_pin() -> None:
    staging.pin = lambda memory: False


def measure() -> dict[str, list[float]]:
    join(60, "cpu")
    end = _worker if dist.get_rank() == WORKER else _server
    found: dict[str, list[float]] = {}
    for name in (PAGEABLE, PINNED, IPC):
        torch.set_num_threads(1 if name == PAGEABLE else max(1, (os.cpu_count() or 1) // 2))
        for part, once in end(name).items():
            for _ in range(3):
                once()
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                once()
                found.setdefault(part, []).append(time.perf_counter() - begun)
    leave()
    return found


def _worker(name: str) -> dict[str, Callable[[], object]]:
    device = torch.device("cuda", 0)
    where = {"device": device} if name == IPC else {}
    wire = WorkerWire([(0, SIZE)], 0, torch.float32, SERVER, **where)
    wire.pull()
    if name == PAGEABLE:
        _do_not_pin()
    else:
        staging.pin = gpu_memory.pin
    copies = Staging(wire, device)
    value = wire.gradient if name == IPC else torch.zeros(SIZE, device=device)

    def once() -> None:
        copies.send(value, [])
        wire.push_pull()
        copies.receive()
        torch.cuda.synchronize()

    def down() -> None:
        copies.send(value, [])

    def up() -> None:
        copies.receive()
        torch.cuda.synchronize()

    return {name: once, DOWN: down, UP: up} if name == PINNED else {name: once}


def _server(name: str) -> dict[str, Callable[[], object]]:
    device = torch.device("cuda", 0) if name == IPC else torch.device("cpu")
    wire = ServerWire(torch.zeros(SIZE, device=device), 0, [WORKER], at_once=True)
    wire.answer(WORKER, Header(0, True))
    wire.flush()

    def once() -> None:
        worker, _ = wire.receive()
        wire.answer(worker, Header(0, True))
        wire.flush()

    def copy() -> object:
        return wire._ends[WORKER]._answered.copy_(wire.weights)

    return {name: once, COPY: copy} if name == PINNED else {name: once}
