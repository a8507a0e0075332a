"""Pushes of many nodes to one server at once, over shaped links: do they slow each other down?"""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.row import row
from paceline.cluster.launcher import launch
from paceline.cluster.namespaces import shaped_network
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.push_pull import Header, ServerWire, WorkerWire

CASES = ((2, 10_000_000), (8, 1_000_000), (8, 10_000_000), (16, 1_000_000))  # workers, bytes
LINKS = {"100 Mbit/s": 1.25e7, "1 Gbit/s": 1.25e8}
ROUNDS = 5


def rows() -> list[dict[str, Any]]:
    return [_row(*case, link) for link in LINKS for case in CASES]


def _row(workers: int, num_bytes: int, link: str) -> dict[str, Any]:
    with shaped_network(workers + 1, LINKS[link]) as network, tempfile.TemporaryDirectory() as logs:
        *_, seconds = launch(
            f"{__name__}:exchange",
            (workers, num_bytes // 4),
            workers=workers,
            servers=1,
            log_folder=Path(logs),
            address=network.address,
            namespaces=network.namespaces,
        )
    least = workers * num_bytes / LINKS[link]
    name = f"{workers} pushes of {num_bytes / 1e6:.0f} MB at once over {link} / their bytes"
    ratio = seconds / least
    return row(name, seconds, least, "s", ratio, "<= 1.1", ratio <= 1.1)


def exchange(workers: int, num_weights: int) -> float | None:
    """Push in rounds; the server returns the median seconds until it has all pushes of one."""
    join(120, "cpu")
    serves = dist.get_rank() == workers
    found = _serve(workers, num_weights) if serves else _push(workers, num_weights)
    leave()
    return found


def _push(workers: int, num_weights: int) -> None:
    wire = WorkerWire([(0, num_weights)], 0, torch.float32, workers)
    wire.pull()
    for _ in range(ROUNDS + 1):
        dist.barrier()
        wire.push_pull()
    wire.leave()


def _serve(workers: int, num_weights: int) -> float:
    wire = ServerWire(torch.zeros(num_weights), 0, range(workers))
    _answer_all(wire, workers)
    seconds = []
    for _ in range(ROUNDS + 1):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(workers):
            wire.receive()
        seconds.append(time.perf_counter() - began)
        _answer_all(wire, workers)
    for _ in range(workers):
        wire.receive()  # their farewells
    return median(seconds[1:])


def _answer_all(wire: ServerWire, workers: int) -> None:
    for worker in range(workers):
        wire.answer(worker, Header(0, True))
    wire.flush()
