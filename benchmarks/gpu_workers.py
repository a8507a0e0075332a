"""Real workers on one GPU: push and pull, and asynchronous training against `independent`.

ResNet-18 with torchvision's first layers, on grey images of 28 x 28 pixels. Without a GPU there are
no rows. LIMIT (seconds, default 60): when it is over, no further run begins.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.asynchronous_throughput import BATCH_SIZE, _ends, _rate
from benchmarks.config import point_of
from benchmarks.row import ratio_row, row
from paceline.clock.wall import wall_links
from paceline.clock.wall.wall_links import Staging
from paceline.cluster.launcher import call_in_processes
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire import shared_memory
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.record.point import Point

SIZE, ROUNDS = 11_173_962, 30  # weights: ResNet-18, 45 MB
WORKER, SERVER = 0, 1
PAGEABLE = "push and pull through pageable memory, one thread"
PINNED, IPC = "push and pull through pinned memory", "push and pull through CUDA IPC"
MOST = {PINNED: 2.0, IPC: 0.3}  # ms
ALONE, SCHEME = "independent", "async_parameter_server"
WAYS = {  # one worker: settings of each
    ALONE: (f"scheme={ALONE}",),
    f"{SCHEME}, server on the GPU": (f"scheme={SCHEME}", "cluster.server_device=cuda"),
    f"{SCHEME}, server on the CPU, pinned memory": (
        f"scheme={SCHEME}",
        "cluster.server_device=cpu",
    ),
}
BATCH_SIZES, STEPS, TURNS = (32, 128), 250, 2
LEAST = 0.9  # of the rate of one worker alone, with a server on the GPU


def rows() -> Iterator[dict[str, Any]]:
    if not torch.cuda.is_available():
        return
    until = time.monotonic() + float(os.environ.get("LIMIT", "60"))
    yield from _exchanges()
    for size in BATCH_SIZES:
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        for way in [*WAYS] * TURNS:
            if time.monotonic() < until:
                rates[way] += _tried(partial(_images_per_second, way, size), [])
        for way in [*WAYS][1:]:
            if rates[way] and rates[ALONE]:
                name = f"{way} / {ALONE}: batch {size}"
                found = ratio_row(name, rates[way], rates[ALONE], "images/s", LEAST)
                yield found if "GPU" in way else {**found, "target": "shown"}


def _exchanges() -> Iterator[dict[str, Any]]:
    seconds = _tried(lambda: call_in_processes(measure, servers=1)[0], {})
    for name, most in MOST.items() if seconds else ():
        taken, copies = 1e3 * median(seconds[name]), 1e3 * median(seconds[PAGEABLE])
        about = f"{name}: 45 MB / {PAGEABLE}"
        yield row(about, taken, copies, "ms", taken / copies, f"<= {most} ms", taken <= most)


def _images_per_second(way: str, batch_size: int) -> list[float]:
    point = _point(*WAYS[way], f"batch_size={batch_size}", f"training.samples={STEPS * batch_size}")
    return [batch_size / BATCH_SIZE * _rate(_ends(point))]


def _point(*settings: str) -> Point:
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
        "workers=1",
        "cluster.accelerator=gpu",
        *settings,
    )


def _tried(measured: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return measured()
    except Exception:  # one failure must not hide the other rows
        traceback.print_exc()
        return otherwise


def measure() -> dict[str, list[float]]:
    """Return the seconds of each round trip of this process, by way."""
    join(60, "cpu")
    end = _worker if dist.get_rank() == WORKER else _server
    found: dict[str, list[float]] = {}
    for name in (PAGEABLE, PINNED, IPC):
        torch.set_num_threads(1 if name == PAGEABLE else max(1, (os.cpu_count() or 1) // 2))
        once = end(name)
        for _ in range(3):
            once()
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            once()
            found.setdefault(name, []).append(time.perf_counter() - begun)
    leave()
    return found


def _worker(name: str) -> Callable[[], object]:
    device = torch.device("cuda", 0)
    where = {"device": device} if name == IPC else {}
    wire = WorkerWire([(0, SIZE)], 0, torch.float32, SERVER, **where)
    wire.pull()
    wall_links.pin = shared_memory.pin if name != PAGEABLE else lambda memory: False
    copies = Staging(wire, device)
    value = wire.gradient if name == IPC else torch.zeros(SIZE, device=device)

    def once() -> None:
        copies.send(value, [])
        wire.push_pull()
        copies.receive()
        torch.cuda.synchronize()

    return once


def _server(name: str) -> Callable[[], object]:
    device = torch.device("cuda", 0) if name == IPC else torch.device("cpu")
    wire = ServerWire(torch.zeros(SIZE, device=device), 0, [WORKER], at_once=True)
    wire.answer(WORKER, Header(0, True))
    wire.flush()

    def once() -> None:
        worker, _ = wire.receive()
        wire.answer(worker, Header(0, True))
        wire.flush()

    return once
