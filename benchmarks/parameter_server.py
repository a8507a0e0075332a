"""Push and pull of 44 MB between a worker and a server, against raw gloo; and beside an update."""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.row import row
from paceline.cluster.launch import launch
from paceline.exchange.process_group import join, leave
from paceline.exchange.push_pull import Header, ServerWire, WorkerWire

NUM_WEIGHTS = 11_000_000  # 44 MB, ResNet-18
TURNS, ROUNDS = 5, 8
WORKER, SERVER = 0, 1


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        seen = launch(
            "benchmarks.parameter_server:measure",
            (),
            workers=1,
            servers=1,
            log_folder=Path(folder),
        )
    wire, raw, updating = (median(series) for series in seen[WORKER])
    ratio = raw / wire
    name = "parameter server, push and pull of 44 MB / raw gloo"
    beside = "  the same with momentum SGD at the server / raw gloo"
    return [
        row(name, 1e3 * wire, 1e3 * raw, "ms", ratio, ">= 0.85", ratio >= 0.85),
        row(beside, 1e3 * updating, 1e3 * raw, "ms", raw / updating, "shown", True),
    ]


def measure() -> tuple[list[float], list[float], list[float]]:
    """Seconds per round trip, by turns: the wire, raw gloo, the wire with an update."""
    torch.set_num_threads(1)
    join(120, "cpu")
    end = _worker if dist.get_rank() == WORKER else _server
    times = end()
    leave()
    return times


def _worker() -> tuple[list[float], list[float], list[float]]:
    wire = WorkerWire([(0, NUM_WEIGHTS)], 0, torch.float32, SERVER)
    outgoing, incoming = torch.zeros(NUM_WEIGHTS), torch.zeros(NUM_WEIGHTS)

    def raw() -> None:
        dist.send(outgoing, SERVER)
        dist.recv(incoming, SERVER)

    times: tuple[list[float], ...] = ([], [], [])
    for _ in range(TURNS):
        for series, exchange in zip(times, (wire.push_pull, raw, wire.push_pull), strict=True):
            exchange()  # warm
            start = time.perf_counter()
            for _ in range(ROUNDS):
                exchange()
            series.append((time.perf_counter() - start) / ROUNDS)
    return times  # type: ignore[return-value]


def _server() -> tuple[list[float], list[float], list[float]]:
    wire = ServerWire(NUM_WEIGHTS, 0, torch.float32, workers=1)
    sgd = torch.optim.SGD([wire.weights], lr=1e-3, momentum=0.9, fused=True)
    buffer = torch.zeros(NUM_WEIGHTS)

    def serve() -> None:
        worker, _ = wire.receive()
        wire.answer(worker, Header(0, True))

    def raw() -> None:
        dist.recv(buffer, WORKER)
        dist.send(buffer, WORKER)

    def update() -> None:
        worker, _ = wire.receive()
        wire.weights.grad = wire.gradient(worker)
        sgd.step()
        wire.answer(worker, Header(0, True))

    for _ in range(TURNS):
        for serving in (serve, raw, update):
            for _ in range(1 + ROUNDS):
                serving()
    return [], [], []
