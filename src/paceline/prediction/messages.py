"""Measures what messages and a server's work cost on this machine, for a modelled cluster.

Messages are real: two processes, a worker and a server, exchange them as in a training run.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

import torch
import torch.distributed as dist

from paceline.clock.flat_optimizer import group_segments
from paceline.clock.run_spec import RunSpec, ServerSpec, VectorSpec
from paceline.clock.served_weights import ServedWeights
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.frame import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.prediction.calibration import Times
from paceline.scheme.async_parameter_server import AsyncParameterServer

WORKER, _SERVER = 0, 1
_ELSEWHERE = "another node"  # where a worker says that it is, so that messages pass over TCP
TIMEOUT = 600  # seconds

# Before each measured exchange a process fills its caches with other data, as a training step does,
# and sleeps, as if it waited for an accelerator. Without this pause, caches are warm and no thread
# sleeps; then gloo's all-reduce of 30 KB takes only a fifth of the time.
PAUSE = 0.01  # seconds at most; each pause is random, so that workers do not begin together
_OTHER = torch.zeros(16 * 2**20, dtype=torch.uint8)
_SECONDS = 1.0  # most seconds of pauses, for each size of messages in each repetition
REPETITIONS = 5  # the result is the median of their means, since a whole repetition may be delayed


def measure_messages(
    sizes: list[int], repetitions: int, pause: float, pair: bool
) -> dict[str, Times]:
    """Measure messages of `sizes` weights; return seconds by kind of message.

    All processes of a run must call this function. `pause`: longest pause before a message
    [seconds]. Each returns "allreduce", the mean seconds from the start of the last process until a
    process has the sum, by torch's own collective. In a `pair` of a worker and a server the worker
    also returns "push_pull", while the server does no work. The server returns "serve", the time of
    its work for a push: bookkeeping, and an update by SGD with momentum; and "handle", the time of
    a core in which it receives a push over TCP and sends the answer.
    """
    torch.set_num_threads(1)
    join(TIMEOUT, "cpu")
    exchange = {WORKER: _push_pull, _SERVER: _serve}[dist.get_rank()] if pair else None
    measured = list[dict[int, dict[str, float]]]()
    for _ in range(repetitions):
        of_sizes = {size: exchange(size, pause) if exchange else {} for size in sizes}
        for size, seconds in of_sizes.items():
            seconds["allreduce"] = _allreduce_seconds(size, pause)
        measured.append(of_sizes)
    leave()
    return {
        kind: {size: median(each[size][kind] for each in measured) for size in sizes}
        for kind in measured[0][sizes[0]]
    }


def _push_pull(size: int, pause: float) -> dict[str, float]:
    wire = worker_wire(size)
    push_pull = fmean(_timed(wire.push_pull, size, pause))
    _timed(wire.push_pull, size, pause)  # not counted: the server times its work meanwhile
    wire.leave()
    wire = worker_wire(size, _ELSEWHERE)
    _timed(wire.push_pull, size, pause)  # not counted: the server counts its own time
    wire.leave()
    return {"push_pull": push_pull}


def _serve(size: int, pause: float) -> dict[str, float]:
    """Answer the pushes of `_push_pull`; the first of each row is not counted."""
    rounds = _rounds(size, pause) + 1
    wire = _server_wire(size)
    pushes, served, seconds = _pushes(wire), _served(wire), list[float]()
    for _ in itertools.islice(pushes, rounds):
        wire.answer(WORKER, Header(0, True))
    for push in itertools.islice(pushes, rounds):
        began = time.perf_counter()
        header = _apply(served, push)
        seconds.append(time.perf_counter() - began)
        wire.answer(WORKER, header)
    wire.receive()  # the worker's farewell
    wire = _server_wire(size)
    wire.flush()
    ends = list[float]()  # of this process's time on a core: it waits for the worker besides
    for _ in itertools.islice(_pushes(wire), rounds):
        wire.answer(WORKER, Header(0, True))
        wire.flush()
        ends.append(time.process_time())
    wire.receive()
    return {"serve": fmean(seconds[1:]), "handle": (ends[-1] - ends[0]) / (rounds - 1)}


def serve_until_left(size: int) -> None:
    """Apply and answer the pushes of a worker until it leaves."""
    wire = _server_wire(size)
    served = _served(wire)
    for push in itertools.takewhile(lambda push: push.proceed, _pushes(wire)):
        wire.answer(WORKER, _apply(served, push))


def worker_wire(size: int, node: str | None = None) -> WorkerWire:
    """Connect a worker to the server's `size` weights, and pull them."""
    wire = WorkerWire([(0, size)], 0, torch.float32, _SERVER, node)
    wire.pull()
    return wire


def _server_wire(size: int) -> ServerWire:
    wire = ServerWire(torch.zeros(size), 0, workers=[WORKER])
    wire.answer(WORKER, Header(0, True))
    return wire


def _apply(served: ServedWeights, push: Header) -> Header:
    """Apply a pushed gradient to the weights; return the header of the server's answer."""
    served.arrive(WORKER, push.version)
    return Header(served.report.updates, served.grant(WORKER))


def _pushes(wire: ServerWire) -> Iterator[Header]:
    while True:
        _, push = wire.receive()
        assert isinstance(push, Header)
        yield push


def _served(wire: ServerWire) -> ServedWeights:
    """Return a server's weights with the options of the default optimizer."""
    weights = torch.zeros(1, requires_grad=True)
    sgd = torch.optim.SGD([weights], lr=1e-3, momentum=0.9, weight_decay=5e-4)
    (segment,) = group_segments(sgd)
    vectors = VectorSpec([{**segment, "num_weights": wire.weights.numel()}])
    return ServedWeights(
        AsyncParameterServer(servers=1),
        ServerSpec(0, RunSpec(num_workers=1, batch_size=1), vectors),
        wire.weights,
        gradient=wire.gradient,
        statistics=wire.statistics,
        seconds=time.perf_counter,
    )


def _allreduce_seconds(size: int, pause: float) -> float:
    vector, begun, ended = torch.zeros(size), [], []

    def reduce() -> None:
        begun.append(time.perf_counter())
        work = dist.all_reduce(vector, async_op=True)
        assert work is not None
        work.get_future().then(lambda _: ended.append(time.perf_counter())).wait()

    _timed(reduce, size, pause)
    return fmean(since_the_last(begun, ended)[1:])


def _timed(action: Callable[[], object], size: int, pause: float) -> list[float]:
    """Call `action` in rounds with a pause before each; return the seconds of each call.

    An untimed call comes first.
    """
    action()
    seconds = []
    for _ in range(_rounds(size, pause)):
        sleep(pause)
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


def _rounds(size: int, pause: float) -> int:
    """Return the number of rounds for messages of `size` weights, equal in all processes."""
    return max(5, min(100, 10_000_000 // size, int(_SECONDS / pause)))


def since_the_last(begun: Sequence[float], ended: Sequence[float]) -> list[float]:
    """Return the seconds of each round, from the arrival of the last worker until the sum is there.

    The end is the mean over workers of the time at which a worker has the sum. `begun`, `ended`:
    times at which this worker began and ended each round. All processes must call this. They must
    run on one machine, because the times of their clocks are compared.
    """
    own = torch.tensor([begun, ended], dtype=torch.float64)
    stamps = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(stamps, own)
    begins, ends = torch.stack(stamps).unbind(dim=1)
    return (ends.mean(dim=0) - begins.amax(dim=0)).tolist()


def sleep(most: float) -> None:
    """Fill the caches with other data, then sleep for at most `most` seconds."""
    _OTHER.add_(1)
    time.sleep(random.uniform(0, most))  # torch's generator stays as it is
