"""Pushes of many nodes to one server at once, over shaped links: do they slow each other down?

And how evenly they share its link, and its answers: sigma of the log-normal weights of two.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from benchmarks.row import row
from paceline.cluster.namespaces import shaped_network
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.frame import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.prediction.predict_points import UNEVENNESS
from tests.launching import launch

CASES = ((2, 10_000_000), (8, 1_000_000), (8, 10_000_000), (16, 1_000_000))  # workers, bytes
LINKS = {"100 Mbit/s": 1.25e7, "1 Gbit/s": 1.25e8}
ROUNDS = 5
PAIRS = ((10_000_000, "100 Mbit/s"), (1_000_000, "100 Mbit/s"), (10_000_000, "1 Gbit/s"))
Seconds = npt.NDArray[np.float64]


def rows() -> list[dict[str, Any]]:
    together = [_together(*case, link) for link in LINKS for case in CASES]
    return together + [each for pair in PAIRS for each in _unevenness(*pair)]


def _together(workers: int, num_bytes: int, link: str) -> dict[str, Any]:
    pushes, _ = _exchanged(workers, num_bytes, link, ROUNDS)
    seconds = float(np.median(pushes.max(axis=1)))
    least = workers * num_bytes / LINKS[link]
    name = f"{workers} pushes of {num_bytes / 1e6:.0f} MB at once over {link} / their bytes"
    ratio = seconds / least
    return row(name, seconds, least, "s", ratio, "<= 1.1", ratio <= 1.1)


def _unevenness(num_bytes: int, link: str) -> Iterator[dict[str, Any]]:
    pushes, answers = (_sigma(taken) for taken in _exchanged(2, num_bytes, link, 20))
    of = f"of {num_bytes / 1e6:.0f} MB at once over {link} / modelled of answers"
    ratio = pushes / UNEVENNESS
    yield row(f"unevenness of 2 pushes {of}", pushes, UNEVENNESS, "", ratio, "<= 0.2", ratio <= 0.2)
    ratio = answers / UNEVENNESS
    yield row(f"unevenness of 2 answers {of}", answers, UNEVENNESS, "", ratio, "shown", True)


def _sigma(taken: Seconds) -> float:
    """Return sigma of the log-normal weights of two messages that begin together [rounds, 2]."""
    # When the first has passed, the other has the share of its bytes that its weight has.
    weights = np.maximum(2 * taken.min(axis=1) / taken.max(axis=1) - 1, 0.01)
    return float(np.sqrt((np.log(weights) ** 2).mean() / 2))


def _exchanged(workers: int, num_bytes: int, link: str, rounds: int) -> tuple[Seconds, Seconds]:
    """Return the seconds until pushes, and answers, have arrived [rounds, workers]."""
    with shaped_network(workers + 1, LINKS[link]) as network, tempfile.TemporaryDirectory() as logs:
        *pulled, (begun, arrived, answered) = launch(
            f"{__name__}:exchange",
            (workers, num_bytes // 4, rounds),
            workers=workers,
            servers=1,
            log_folder=Path(logs),
            address=network.address,
            namespaces=network.namespaces,
        )
    pushes = np.array(arrived) - np.array(begun)[:, None]
    answers = np.array(pulled).T - np.array(answered)[:, None]
    return pushes[1:], answers[1:]


def exchange(workers: int, num_weights: int, rounds: int) -> Any:
    """Push in rounds; return the times at which a worker has its answers, or those of the server.

    The server's: begin of a round, arrivals of its pushes, begin of its answers; on one clock.
    """
    join(120, "cpu")
    serves = dist.get_rank() == workers
    found = (_serve if serves else _push)(workers, num_weights, rounds)
    leave()
    return found


def _push(workers: int, num_weights: int, rounds: int) -> list[float]:
    wire = WorkerWire([(0, num_weights)], 0, torch.float32, workers)
    wire.pull()
    pulled = []
    for _ in range(rounds + 1):
        dist.barrier()
        wire.push_pull()
        pulled.append(time.perf_counter())
    wire.leave()
    return pulled


def _serve(workers: int, num_weights: int, rounds: int) -> tuple[list, list, list]:
    wire = ServerWire(torch.zeros(num_weights), 0, range(workers))
    _answer_all(wire, workers)
    begun, arrived, answered = [], [], []
    for _ in range(rounds + 1):
        dist.barrier()
        begun.append(time.perf_counter())
        arrived.append([])
        for _ in range(workers):
            wire.receive()
            arrived[-1].append(time.perf_counter())
        answered.append(time.perf_counter())
        _answer_all(wire, workers)
    for _ in range(workers):
        wire.receive()  # their farewells
    return begun, arrived, answered


def _answer_all(wire: ServerWire, workers: int) -> None:
    for worker in range(workers):
        wire.answer(worker, Header(0, True))
    wire.flush()
