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
from paceline.prediction.this_machine import Times
from paceline.scheme.async_parameter_server import AsyncParameterServer

_WORKER, _SERVER = 0, 1
_ELSEWHERE = "another node"  # where a worker says that it is, so that messages pass over TCP
_TIMEOUT = 120  # seconds

# Before each measured exchange a process fills its caches with other data, as a training step does,
# and sleeps, as if it waited for an accelerator. Without this pause, caches are warm and no thread
# sleeps; then gloo's all-reduce of 30 KB takes only a fifth of the time.
PAUSE = 0.01  # seconds at most; each pause is random, so that workers do not begin together
_OTHER = torch.zeros(16 * 2**20, dtype=torch.uint8)
_SECONDS = 1.0  # most seconds of pauses, for each size of messages in each repetition
REPETITIONS = 5  # the result is the median of their means, since a whole repetition may be delayed


def measure_in_training(
    num_weights: int, take_steps: Callable[[Callable[[], object]], Sequence[float]], block: int
) -> dict[str, float]:
    """Return the seconds that an exchange of `num_weights` weights adds to a step, by its kind.

    Two processes, a worker and a server, must call this function. `take_steps(exchange)` takes
    blocks of `block` steps, in turn without and with an exchange in each step, and returns the
    seconds of each step. Both processes return "allreduce". Only the worker returns "push_pull",
    which includes the server's work.
    """
    join(_TIMEOUT, "cpu")
    found = {}
    if dist.get_rank() == _WORKER:
        wire = WorkerWire([(0, num_weights)], 0, torch.float32, _SERVER)
        wire.pull()
        found["push_pull"] = added_by(take_steps(wire.push_pull), block)
        wire.leave()
    else:
        wire = ServerWire(torch.zeros(num_weights), 0, workers=[_WORKER])
        wire.answer(_WORKER, Header(0, True))
        served = _served(wire)
        for push in itertools.takewhile(lambda push: push.proceed, _pushes(wire)):
            wire.answer(_WORKER, _apply(served, push))
    vector = torch.zeros(num_weights)
    found["allreduce"] = added_by(take_steps(lambda: dist.all_reduce(vector)), block)
    leave()
    return found


def added_by(seconds: Sequence[float], block: int) -> float:
    """Return the seconds that an exchange adds to a step, at least 0.

    `seconds`: those of steps in blocks of `block` steps, in turn without and with exchanges. The
    result is the median difference of adjacent blocks, since the load of a shared host varies.
    """
    means = [fmean(seconds[at : at + block]) for at in range(0, len(seconds) - block + 1, block)]
    return max(0.0, median(b - a for a, b in zip(means[::2], means[1::2], strict=False)))


def measure_pair(
    sizes: list[int], repetitions: int = REPETITIONS, pause: float = PAUSE
) -> dict[str, Times]:
    """Measure messages of `sizes` weights; return seconds by number of weights, by kind.

    Two processes, a worker and a server, must call this function. `pause`: longest pause before a
    message [seconds]. The worker returns "push_pull", while the server does no work, and
    "allreduce". The server returns "serve", the time of its work for a push: bookkeeping, and an
    update by SGD with momentum; and "handle", the time of a core in which it receives a push over
    TCP and sends the answer.
    """
    torch.set_num_threads(1)
    join(_TIMEOUT, "cpu")
    measure_size = _work if dist.get_rank() == _WORKER else _serve
    measured = [{n: measure_size(n, pause) for n in sizes} for _ in range(repetitions)]
    leave()
    names = measured[0][sizes[0]]
    return {name: {n: median(each[n][name] for each in measured) for n in sizes} for name in names}


def measure_allreduce(sizes: list[int], repetitions: int, pause: float) -> Times:
    """Measure torch's own all-reduces of `sizes` weights; all processes must call this function.

    `pause`: longest pause before an all-reduce [seconds]. Returns, by number of weights, the mean
    seconds from the start of the last worker until a worker has the sum.
    """
    torch.set_num_threads(1)
    join(_TIMEOUT, "cpu")
    measured = [{n: _allreduce_seconds(n, pause) for n in sizes} for _ in range(repetitions)]
    leave()
    return {size: median(each[size] for each in measured) for size in sizes}


def _work(size: int, pause: float) -> dict[str, float]:
    wire = WorkerWire([(0, size)], 0, torch.float32, _SERVER)
    wire.pull()
    push_pull = fmean(_timed(wire.push_pull, size, pause))
    _timed(wire.push_pull, size, pause)  # not counted: the server times its work meanwhile
    wire.leave()
    wire = WorkerWire([(0, size)], 0, torch.float32, _SERVER, _ELSEWHERE)
    wire.pull()
    _timed(wire.push_pull, size, pause)  # not counted: the server counts its own time
    wire.leave()
    return {"push_pull": push_pull, "allreduce": _allreduce_seconds(size, pause)}


def _serve(size: int, pause: float) -> dict[str, float]:
    rounds = _rounds(size, pause) + 1
    wire = ServerWire(torch.zeros(size), 0, workers=[_WORKER])
    wire.answer(_WORKER, Header(0, True))
    pushes, served, seconds = _pushes(wire), _served(wire), []
    for _ in itertools.islice(pushes, rounds):
        wire.answer(_WORKER, Header(0, True))
    for push in itertools.islice(pushes, rounds):
        began = time.perf_counter()
        header = _apply(served, push)
        seconds.append(time.perf_counter() - began)
        wire.answer(_WORKER, header)
    wire.receive()  # the worker's farewell
    handle = _handled_over_tcp(size, rounds)
    _allreduce_seconds(size, pause)
    return {"serve": fmean(seconds[1:]), "handle": handle}


def _handled_over_tcp(size: int, rounds: int) -> float:
    """Return the mean seconds of a core for a push and its answer, after one that is not counted.

    The server waits besides, for what the link and the worker take.
    """
    wire = ServerWire(torch.zeros(size), 0, workers=[_WORKER])
    wire.answer(_WORKER, Header(0, True))
    wire.flush()
    pushes, began = _pushes(wire), 0.0
    for number in range(rounds):
        if number == 1:
            began = time.process_time()
        next(pushes)
        wire.answer(_WORKER, Header(0, True))
        wire.flush()
    seconds = time.process_time() - began
    wire.receive()  # the worker's farewell
    return seconds / (rounds - 1)


def _apply(served: ServedWeights, push: Header) -> Header:
    """Apply a pushed gradient to the weights; return the header of the server's answer."""
    served.arrive(_WORKER, push.version)
    return Header(served.report.updates, served.grant(_WORKER))


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
    """Return the mean seconds from the start of the last worker until a worker has the sum."""
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
