"""Push and pull between a worker and a server through shared memory.

Of 44 MB, against two plain copies of as much, by turns; of a small network's 30 KB, in time on a
core.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.row import row
from paceline.cluster.launcher import call_in_processes
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire

LARGE, SMALL = 11_000_000, 7_674  # weights: 44 MB, ResNet-18; 30 KB, the small CNN
ROUNDS = {LARGE: 8, SMALL: 1000}
TURNS = 5
WORKER, SERVER = 0, 1

Series = dict[tuple[str, int], list[tuple[float, float]]]  # (seconds, on a core) per round trip


def rows() -> list[dict[str, Any]]:
    worker, server = call_in_processes(measure, TURNS, ROUNDS, servers=1)
    taken, copies, wall = (
        1e3 * median(seconds for seconds, _ in worker[of])
        for of in (("wire", LARGE), ("copies", LARGE), ("wire", SMALL))
    )
    core = 1e3 * sum(
        median(on_core for _, on_core in end["wire", SMALL]) for end in (worker, server)
    )
    large = "push and pull of 44 MB, shared memory / two plain copies"
    small = "push and pull of 30 KB, shared memory: time on a core, both ends / time"
    ratio = taken / copies
    return [
        row(large, taken, copies, "ms", ratio, "<= 1.5", ratio <= 1.5),
        row(small, core, wall, "ms", core / wall, "<= 0.2 ms", core <= 0.2),
    ]


def measure(turns: int, round_trips: dict[int, int]) -> Series:
    torch.set_num_threads(1)
    join(120, "cpu")
    end = _worker if dist.get_rank() == WORKER else _server
    found: Series = {}
    for size in (LARGE, SMALL):
        rounds = end(size)
        for _ in range(turns):
            for name, once in rounds.items():
                found.setdefault((name, size), []).append(_timed(once, round_trips[size]))
    leave()
    return found


def _timed(once: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Seconds of a round, and seconds on a core, after one that is not counted."""
    once()
    wall, core = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        once()
    return (time.perf_counter() - wall) / rounds, (time.process_time() - core) / rounds


def _worker(size: int) -> dict[str, Callable[[], object]]:
    outgoing, incoming = torch.zeros(size), torch.zeros(size)

    def copies() -> None:
        incoming.copy_(outgoing)
        outgoing.copy_(incoming)

    wire = WorkerWire([(0, size)], 0, torch.float32, SERVER)
    wire.pull()
    return {"wire": wire.push_pull, "copies": copies}


def _server(size: int) -> dict[str, Callable[[], object]]:
    wire = ServerWire(torch.zeros(size), 0, workers=[WORKER])
    wire.answer(WORKER, Header(0, True))
    wire.flush()

    def serve() -> None:
        worker, _ = wire.receive()
        wire.answer(worker, Header(0, True))
        wire.flush()

    return {"wire": serve, "copies": lambda: None}
