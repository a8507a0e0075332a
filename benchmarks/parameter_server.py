"""Push and pull between a worker and a server: shared memory, TCP and raw gloo, by turns.

Of 44 MB, against two plain copies of as much; of a small network's 30 KB, in time on a core.
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
from paceline.exchange.wire.frame import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire

LARGE, SMALL = 11_000_000, 7_674  # weights: 44 MB, ResNet-18; 30 KB, the small CNN
ROUNDS = {LARGE: 8, SMALL: 1000}
TURNS = 5
WORKER, SERVER = 0, 1
NODES = {"shared memory": None, "TCP": "another node"}  # where the worker says that it is
UPDATED = "shared memory, with momentum SGD at the server"

Series = dict[tuple[str, int], list[tuple[float, float]]]  # (seconds, on a core) per round trip


def rows() -> list[dict[str, Any]]:
    worker, server = call_in_processes(measure, TURNS, ROUNDS, servers=1)
    seconds = {name: 1e3 * median(wall for wall, _ in series) for name, series in worker.items()}
    copies = seconds["copies", LARGE]
    found = [_large_row(name, seconds[name, LARGE], copies) for name in (*NODES, "gloo", UPDATED)]
    return found + [_small_row(name, worker, server) for name in (*NODES, "gloo")]


def _large_row(name: str, milliseconds: float, copies: float) -> dict[str, Any]:
    ratio, aimed = milliseconds / copies, name == "shared memory"
    about = f"push and pull of 44 MB, {name} / two plain copies"
    target = "<= 1.5" if aimed else "shown"
    return row(about, milliseconds, copies, "ms", ratio, target, ratio <= 1.5)


def _small_row(name: str, worker: Series, server: Series) -> dict[str, Any]:
    wall = 1e3 * median(seconds for seconds, _ in worker[name, SMALL])
    core = 1e3 * sum(median(core for _, core in end[name, SMALL]) for end in (worker, server))
    about = f"push and pull of 30 KB, {name}: time on a core, both ends / time"
    aimed = name == "shared memory"
    return row(about, core, wall, "ms", core / wall, "<= 0.2 ms" if aimed else "shown", core <= 0.2)


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

    def gloo() -> None:
        dist.send(outgoing, SERVER)
        dist.recv(incoming, SERVER)

    def copies() -> None:
        incoming.copy_(outgoing)
        outgoing.copy_(incoming)

    rounds = {}
    for name, node in (*NODES.items(), (UPDATED, None)):
        wire = WorkerWire([(0, size)], 0, torch.float32, SERVER, node)
        wire.pull()
        rounds[name] = wire.push_pull
    return {**rounds, "gloo": gloo, "copies": copies}


def _server(size: int) -> dict[str, Callable[[], object]]:
    buffer = torch.zeros(size)

    def gloo() -> None:
        dist.recv(buffer, WORKER)
        dist.send(buffer, WORKER)

    wires = {name: _served(size) for name in (*NODES, UPDATED)}
    rounds = {name: lambda wire=wire: _serve(wire) for name, wire in wires.items()}
    wire = wires[UPDATED]
    sgd = torch.optim.SGD([wire.weights], lr=1e-3, momentum=0.9, fused=True)
    rounds[UPDATED] = lambda: _serve(wire, sgd)
    return {**rounds, "gloo": gloo, "copies": lambda: None}


def _served(size: int) -> ServerWire:
    wire = ServerWire(torch.zeros(size), 0, workers=[WORKER])
    wire.answer(WORKER, Header(0, True))
    wire.flush()  # before this process waits for another wire
    return wire


def _serve(wire: ServerWire, sgd: torch.optim.SGD | None = None) -> None:
    worker, _ = wire.receive()
    if sgd is not None:
        wire.weights.grad = wire.gradient(worker)
        sgd.step()
    wire.answer(worker, Header(0, True))
    wire.flush()
