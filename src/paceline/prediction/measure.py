"""Measures this machine for `paceline calibrate`, which writes it as a modelled cluster.

It measures training steps of Lightning's loop with the chosen model and data, messages between a
worker and a server, and all-reduces between workers.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import seed_everything

from paceline.clock.flat_optimizer import group_segments
from paceline.clock.run_spec import RunSpec
from paceline.clock.served_weights import ServedWeights
from paceline.clock.vector_spec import ServerSpec, VectorSpec
from paceline.clock.wall.ddp import SyncAllReduceStrategy
from paceline.cluster.cluster import device
from paceline.cluster.launcher import call_in_processes
from paceline.errors import SettingError
from paceline.exchange.process_group import join, leave
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.prediction.calibration import Measured, Times
from paceline.record import provenance
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.run_point import prepare_data
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.independent import Independent
from paceline.timing.step_times import seconds_of_step

SECONDS = 10.0  # time to spend on each kind of step (batch size, number of workers, DDP)
GPU_SECONDS = 5.0  # the same on a GPU, whose steps vary less: two minutes for everything
_TURNS = 4  # each kind is measured so often by turns, since the load of a shared host varies
MOST_WEIGHTS = 10_000_000  # size of the largest message: 40 MB
_CROWDED_SHARE = 4  # with more workers than cores, messages are smaller by this factor: 10 MB
_FEW_WEIGHTS = 1000
_FEW_CORES = 8
_CROWDS = (2, 4, 8)  # workers for each core
_MOST_WORKERS = 32  # each has some 250 MB
_PAIRS_OF_BLOCKS = 12  # of steps without and with an exchange
_WARM_UP = 0.1  # share of the steps, at least one of them, that is not counted
_FEWEST_STEPS = 2
_MANY = 10**9  # more batches than will be drawn
_NO_SCHEME = {"_target_": f"{Independent.__module__}.{Independent.__name__}"}
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


def measure(
    config: PointConfig,
    *,
    seconds: float | None = None,
    most_weights: int = MOST_WEIGHTS,
    repetitions: int = REPETITIONS,
) -> Measured:
    """Measure this machine with the model and data of `config`; on two cores 3 to 4 minutes, on a
    GPU two.

    The scheme and the number of workers in `config` have no effect. `seconds`: time to spend on
    steps of each batch size and of each number of workers; None for SECONDS, or GPU_SECONDS on a
    GPU. `most_weights`: size of the largest message. Messages are measured `repetitions` times;
    before each is a random pause, up to the duration of a step if the cluster emulates step times.
    Raises SettingError for a wrong setting, and ProcessFailure if a process fails.
    """
    point = Point.of(config.replaced(workers=1, scheme=_NO_SCHEME))
    prepare_data(point.data)
    started, load = datetime.now(UTC), psutil.getloadavg()[0]
    on_gpu, batch_size = point.device == "cuda", point.batch_size
    seconds = seconds or (GPU_SECONDS if on_gpu else SECONDS)
    num_train = open_data(point.data.build(), reading_of(point)).num_train
    num_weights = sum(weight.numel() for weight in point.model.build().parameters())
    alone = [StepKind(size) for size in batch_sizes(batch_size, num_train)]
    chosen, by_ddp = StepKind(batch_size), StepKind(batch_size, ddp=True)
    steps = call_in_processes(measure_steps, point, [*alone, by_ddp], seconds)[0]
    step = fmean(steps[chosen])
    together = {1: step}
    if not on_gpu:  # which other workers do not share
        counts = together_counts(max(1, provenance.num_cores() // point.cluster.threads_per_worker))
        kinds = [StepKind(batch_size, count) for count in counts]
        found = call_in_processes(measure_steps, point, kinds, seconds, workers=max(counts))
        together = {
            n: fmean(of[k].mean() for of in found[:n]) for n, k in zip(counts, kinds, strict=True)
        }
    pause, emulated = PAUSE, point.cluster.step_seconds
    if emulated is not None:
        pause = max(PAUSE, seconds_of_step(emulated, batch_size))
    sizes = sorted({1, _FEW_WEIGHTS, num_weights, most_weights})
    worker, server = call_in_processes(measure_messages, sizes, repetitions, pause, True, servers=1)
    block = max(2, int(seconds / (2 * _PAIRS_OF_BLOCKS * step)))
    return Measured(
        started=started,
        load=load,
        cores=provenance.num_cores(),
        accelerator=point.device,
        num_weights=num_weights,
        batch_size=batch_size,
        pause=pause,
        times={
            "step": {kind.batch_size: fmean(steps[kind]) for kind in alone if kind in steps},
            "jitter": {batch_size: jitter(steps[chosen])},
            "ddp": {batch_size: max(0.0, median(steps[by_ddp]) - median(steps[chosen]))},
            "together": together,
            **server,
            **worker,
            **call_in_processes(measure_exchange, point, num_weights, block, servers=1)[0],
        },
        crowds=_crowds(most_weights, repetitions, pause),
    )


def jitter(seconds: np.ndarray) -> float:
    """Return the sigma of a log-normal factor on the time of a step: half of the range of the
    middle 68 % of the logarithms, so that a few delayed steps have no effect.
    """
    low, high = np.quantile(np.log(seconds), [0.16, 0.84])
    return float(high - low) / 2


class StepKind(NamedTuple):
    """A kind of step: images, how many workers take it at once, and if by DDP."""

    batch_size: int
    workers: int = 1
    ddp: bool = False


def measure_steps(
    point: Point, kinds: Sequence[StepKind], seconds: float
) -> dict[StepKind, np.ndarray]:
    """Return the seconds of each step, by kind; as many processes as the most workers of a kind
    must call this function, and each returns its own steps.

    Batches larger than the point's are left out if they do not fit into a GPU's memory. Raises
    SettingError("batch_size") if the point's own does not.
    """
    steps = TimedSteps(point)
    join(TIMEOUT, "cpu")
    found: dict[StepKind, list[np.ndarray]] = {k: [] for k in kinds if dist.get_rank() < k.workers}
    for kind in [*kinds] * _TURNS:
        dist.barrier()  # the others wait here for the next kind
        if kind not in found:
            continue
        try:
            found[kind].append(steps.in_time(kind, seconds / _TURNS))
        except torch.OutOfMemoryError:
            if kind.batch_size <= point.batch_size:
                message = (
                    f"{kind.batch_size:,} images do not fit into the GPU's memory; choose fewer"
                )
                raise SettingError("batch_size", message) from None
            del found[kind]
            torch.cuda.empty_cache()
    leave()
    return {kind: np.concatenate(turns) for kind, turns in found.items()}


def measure_exchange(point: Point, num_weights: int, block: int) -> dict[str, Times]:
    """Return the seconds that an exchange adds to a step, by its kind and number of weights.

    Two processes, a worker and a server, must call this function. Only the worker returns "push in
    training", which includes the server's work.
    """
    steps, vector, found = TimedSteps(point), torch.zeros(num_weights), {}
    join(TIMEOUT, "cpu")
    if dist.get_rank() == WORKER:
        wire = worker_wire(num_weights)
        found["push in training"] = added_by(steps.exchanging(wire.push_pull, block), block)
        wire.leave()
    else:
        server = _server_wire(num_weights)
        served = _served(server)
        for push in itertools.takewhile(lambda push: push.proceed, _pushes(server)):
            server.answer(WORKER, _apply(served, push))
    reduced = steps.exchanging(partial(dist.all_reduce, vector), block)
    found["all-reduce in training"] = added_by(reduced, block)
    leave()
    return {kind: {num_weights: seconds} for kind, seconds in found.items()}


def added_by(seconds: Sequence[float] | np.ndarray, block: int) -> float:
    """Return the seconds that an exchange adds to a step, at least 0.

    `seconds`: those of steps in blocks of `block` steps, in turn without and with exchanges. The
    result is the median difference of adjacent blocks, since the load of a shared host varies.
    """
    pairs = len(seconds) // (2 * block)
    means = np.reshape(seconds[: 2 * block * pairs], (pairs, 2, block)).mean(axis=-1)
    return max(0.0, float(np.median(means[:, 1] - means[:, 0])))


def _crowds(most_weights: int, repetitions: int, pause: float) -> dict[int, Times]:
    """Measure all-reduces of more workers than cores; none on a machine with many cores."""
    cores, many, found = provenance.num_cores(), max(2, most_weights // _CROWDED_SHARE), {}
    for workers in (each * cores for each in _CROWDS if cores <= _FEW_CORES):
        if workers <= _MOST_WORKERS:
            sizes = [max(2 * workers, many * _FEW_WEIGHTS // MOST_WEIGHTS), many]
            arguments = sizes, repetitions, pause, False
            of_workers = call_in_processes(measure_messages, *arguments, workers=workers)
            found[workers] = of_workers[0]["allreduce"]
    return found


def together_counts(cores: int) -> list[int]:
    """Return the numbers of workers to measure: 1, `cores`, and on a small machine 2 * `cores`."""
    return sorted({1, cores, *([2 * cores] if cores <= _FEW_CORES else [])})


def batch_sizes(batch_size: int, num_train: int) -> list[int]:
    """Return the batch sizes to measure: `batch_size`, a quarter of it, and four times it.

    The largest is at most `num_train`.
    """
    return sorted({max(1, batch_size // 4), batch_size, min(4 * batch_size, num_train)})


class TimedSteps:
    """Takes and times training steps of one worker of `point` in this process.

    A step draws a batch and computes forward, backward and the optimizer's update.
    """

    def __init__(self, point: Point) -> None:
        silence()
        torch.set_num_threads(point.cluster.threads_per_worker)
        seed_everything(point.seed, verbose=False)
        self.module, self._point = point.model.build(), point
        self._data, self._reading = point.data.build(), reading_of(point)

    def in_time(self, kind: StepKind, seconds: float) -> np.ndarray:
        """Take steps for `seconds`; return the seconds of each step after a warm-up."""
        options: dict[str, Any] = {}
        if kind.ddp:
            options["strategy"] = SyncAllReduceStrategy(TIMEOUT)
            run = RunSpec(num_workers=1, batch_size=kind.batch_size, num_steps=_MANY)
            options["strategy"].prepare(run)

        def last(drawn: Sequence[float]) -> bool:
            return drawn[-1] - drawn[0] > seconds and len(drawn) > _FEWEST_STEPS

        durations = self._seconds(kind.batch_size, last, **options)
        return durations[max(1, int(_WARM_UP * len(durations))) :]

    def exchanging(self, exchange: Callable[[], object], block: int) -> np.ndarray:
        """Take blocks of `block` steps, in turn without and with an exchange in each step.

        Returns the seconds of each step, beginning with a block without exchanges. A warm-up block
        before it is not counted.
        """
        blocks = 2 * _PAIRS_OF_BLOCKS + 1

        def last(drawn: Sequence[float]) -> bool:
            before = len(drawn) - 1  # this step
            if before < blocks * block and before >= block and before // block % 2 == 0:
                exchange()
            return before == blocks * block

        return self._seconds(self._point.batch_size, last)[block:]

    def _seconds(
        self, batch_size: int, last: Callable[[Sequence[float]], bool], **options: Any
    ) -> np.ndarray:
        """Take steps until `last`, given the times of all draws, is True; return their seconds."""
        point, drawn = self._point, list[float]()  # when all steps before a batch were done
        on_gpu, where = point.device == "cuda", device(point.device, 0)
        batches = open_data(self._data, replace(self._reading, batch_size=batch_size))

        def draw() -> Iterator[Any]:
            for batch in batches.train(0, _MANY):
                if on_gpu:
                    torch.cuda.synchronize(where)
                drawn.append(time.perf_counter())
                if last(drawn):
                    return
                yield batch

        trainer = quiet_trainer(
            plugins=[LightningEnvironment()],
            accelerator="gpu" if on_gpu else "cpu",
            devices=1,
            precision=point.training.precision,
            gradient_clip_val=point.training.gradient_clip_val,
            gradient_clip_algorithm=point.training.gradient_clip_algorithm,
            max_epochs=1,
            **options,
        )
        trainer.fit(self.module, draw())
        return np.diff(drawn)


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
