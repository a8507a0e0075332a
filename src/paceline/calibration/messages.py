"""What this machine takes for the parts of a modelled cluster: copies, messages, server's work.

Messages are real: two processes of a point, a worker and a server, over the wire that both use.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
import torch.distributed as dist

from paceline.engine.flat_sgd import Segment
from paceline.engine.served_weights import ServedWeights, ServerSpec
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.push_pull import Header, ServerWire, WorkerWire
from paceline.scheme.async_parameter_server import AsyncParameterServer

WEIGHT_BYTES = 4  # float32
_WORKER, _SERVER = 0, 1
_TIMEOUT = 120  # seconds
_COPIED = 64 * 2**20  # bytes; no cache holds them twice

# Median of each turn, and of these the least: beside a busy process, hundreds of messages in a row
# can each wait for a tick of the scheduler, 4 ms.
_TURNS = 5

Times = dict[int, float]  # number of weights: seconds


def line_through(times: Times) -> tuple[float, float]:
    """(fixed seconds, seconds per byte), by the size of the least time and the most weights.

    Few bytes cost latency and work for each message. More never take less: what was slower than a
    larger one was held up. Neither result is negative.
    """
    many = max(times)
    few = min((size for size in times if size < many), key=times.__getitem__)
    per_byte = max(0.0, (times[many] - times[few]) / ((many - few) * WEIGHT_BYTES))
    return max(0.0, times[few] - per_byte * few * WEIGHT_BYTES), per_byte


def link_of(push_pulls: Times) -> tuple[float, float]:
    """(latency, seconds per byte) of one direction: a push and its answer go there and back."""
    fixed, per_byte = line_through(push_pulls)
    return fixed / 2, per_byte / 2


def allreduce_link_of(allreduces: Times, cores: int) -> tuple[float, float]:
    """(latency, seconds per byte) of gloo's messages, by what a native all-reduce of two takes.

    Each worker sends four; collective_cost.py says how they add up, and that cores pass them. Fewer
    than four weights leave some messages empty.
    """
    fixed, per_byte = line_through({size: s for size, s in allreduces.items() if size >= 4})
    return fixed / max(2, 8 / cores), per_byte / max(1, 2 / cores)


def copy_bandwidth(num_bytes: int = _COPIED) -> float:
    """Bytes that one thread copies in memory each second."""
    source = torch.ones(num_bytes, dtype=torch.uint8)
    target = torch.zeros_like(source)
    return num_bytes / median(_timed(lambda: target.copy_(source), 10))


def measure_pair(sizes: list[int]) -> dict[str, Times]:
    """Entered by two processes: the first works, the second serves. By number of weights:

    worker: push_pull (there and back, the server does no work between) and allreduce (native);
    server: serve (what it does for a push besides: bookkeeping, SGD with momentum).
    """
    torch.set_num_threads(1)
    join(_TIMEOUT, "cpu")
    once = _work if dist.get_rank() == _WORKER else _serve
    turns = [{size: once(size) for size in sizes} for _ in range(_TURNS)]
    leave()
    names = turns[0][sizes[0]]
    return {name: {n: min(turn[n][name] for turn in turns) for n in sizes} for name in names}


def _work(size: int) -> dict[str, float]:
    wire = WorkerWire([(0, size)], 0, torch.float32, _SERVER)
    wire.pull()
    push_pull = median(_timed(wire.push_pull, _rounds(size)))
    _timed(wire.push_pull, _rounds(size))  # the server works between
    wire.leave()
    return {"push_pull": push_pull, "allreduce": _allreduce_seconds(size)}


def _serve(size: int) -> dict[str, float]:
    wire = ServerWire(torch.zeros(size), 0, workers=[_WORKER])
    wire.answer(_WORKER, Header(0, True))
    for _ in _pushes(wire, _rounds(size) + 1):
        wire.answer(_WORKER, Header(0, True))
    served = _served(wire)
    seconds = []
    for push in _pushes(wire, _rounds(size) + 1):
        began = time.perf_counter()
        served.arrive(_WORKER, push.version)
        header = Header(served.report.updates, served.grant(_WORKER))
        seconds.append(time.perf_counter() - began)
        wire.answer(_WORKER, header)
    wire.receive()  # it leaves
    _allreduce_seconds(size)
    return {"serve": median(seconds[1:])}


def _pushes(wire: ServerWire, count: int) -> Iterator[Header]:
    for _ in range(count):
        _, push = wire.receive()
        assert isinstance(push, Header)
        yield push


def _segment(num_weights: int) -> Segment:
    """Return weights of one group, with the options of the default optimizer."""
    return {
        "num_weights": num_weights,
        "lr": 1e-3,
        "momentum": 0.9,
        "dampening": 0,
        "weight_decay": 5e-4,
        "nesterov": False,
    }


def _served(wire: ServerWire) -> ServedWeights:
    spec = ServerSpec(
        server=0,
        num_workers=1,
        dtype="float32",
        segments=[_segment(wire.weights.numel())],
        num_statistics=0,
        batch_size=1,
        num_steps=None,
        snapshot_samples=[],
        learning_rate=None,
    )
    return ServedWeights(
        AsyncParameterServer(servers=1),
        spec,
        wire.weights,
        gradient=wire.gradient,
        statistics=wire.statistics,
        seconds=time.perf_counter,
    )


def _allreduce_seconds(size: int) -> float:
    vector = torch.zeros(size)
    return median(_timed(lambda: dist.all_reduce(vector), _rounds(size)))


def _timed(action: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of each round, after one that is not counted."""
    action()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


def _rounds(size: int) -> int:
    """The same at both ends: a few seconds for all turns of any size."""
    return min(100, max(5, 10_000_000 // size))
