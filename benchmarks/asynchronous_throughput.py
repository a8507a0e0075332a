"""async_parameter_server against workers that never communicate, and against documented peers.

All train the same network on the same batches from memory, with one thread in each worker and
fused SGD at the server. Each is measured in processes of its own, while all of its workers train.
"""

import importlib.util
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.config import point_of
from benchmarks.row import ratio_row, row
from paceline.record.point import Point
from paceline.run.run_point import PROCESS
from tests.launching import launch

TURNS = 3
SCHEME, ALONE = "async_parameter_server", "independent"
RPC, RAY = "torch.distributed.rpc's parameter server", "Ray's asynchronous parameter server"
WAITING = "  its time from a gradient to new weights, share of step time"
MORE_SERVERS = (2, 4)

CNN, RESNET = "small CNN, 6,212 parameters, batch 32", "ResNet-18, 3x32x32, batch 32"
CASES = {
    # name: (overrides, steps of each worker, least share of `independent`)
    CNN: (["model=small_cnn", "model.network.width=14", "data=fashion_mnist_subset"], 800, 0.85),
    RESNET: (
        ["model=resnet18", "data=synthetic", "data.num_validation=100", "data.num_test=100"],
        20,
        0.93,
    ),
}
BATCH_SIZE, PACED_STEPS = 32, 60

Ends = list[np.ndarray]  # of each worker's steps [seconds], by one clock
Turn = Iterator[tuple[str, str, float]]  # what was measured, in which case, and its value
Found = dict[tuple[str, str], list[float]]  # the same, of all turns


def rows() -> list[dict[str, Any]]:
    return [*_paced(), *_unpaced()]


def _paced() -> list[dict[str, Any]]:
    seen = _by_turns(_paced_turn)
    name = f"{SCHEME} / independent, 8 workers paced at 50 ms a step: {CNN}"
    return [ratio_row(name, seen[SCHEME, CNN], seen[ALONE, CNN], "images/s", 0.95)]


def _unpaced() -> list[dict[str, Any]]:
    seen = _by_turns(_turn)
    found = [line for case in CASES for line in _lines(case, seen)]
    alone = median(seen[ALONE, RESNET])
    for what in map(_with_servers, MORE_SERVERS):
        ours = median(seen[what, RESNET])
        name = f"{what} / independent: {RESNET}"
        found.append(row(name, ours, alone, "images/s", ours / alone, "shown", True))
    return found


def _lines(case: str, seen: Found) -> list[dict[str, Any]]:
    least, share = CASES[case][2], median(seen[WAITING, case])
    ours, alone = seen[SCHEME, case], seen[ALONE, case]
    return [
        ratio_row(f"{SCHEME} / independent: {case}", ours, alone, "images/s", least),
        row(WAITING, share, 1, "", share, "shown", True),
        *(_against(peer, case, seen) for peer in (RPC, RAY)),
    ]


def _against(peer: str, case: str, seen: Found) -> dict[str, Any]:
    ours, theirs = seen[SCHEME, case], seen[peer, case]
    name = f"{SCHEME} / {peer}: {case}"
    if theirs:
        return ratio_row(name, ours, theirs, "images/s", 2)
    name += ": not measured, since Ray (the extra `peers`) is not installed"
    return row(name, median(ours), math.nan, "images/s", math.nan, "shown", True)


def _by_turns(turn: Callable[[], Turn]) -> Found:
    found: Found = defaultdict(list)
    for _ in range(TURNS):
        for what, case, value in turn():
            found[what, case].append(value)
    return found


def _paced_turn() -> Turn:
    pace = "cluster.step_seconds=0.05"
    for scheme in (ALONE, SCHEME):
        yield scheme, CNN, _ours(_point(CNN, scheme, pace, workers=8, steps=PACED_STEPS))[0]


def _turn() -> Turn:
    for case in CASES:
        yield ALONE, case, _ours(_point(case, ALONE))[0]
        point = _point(case, SCHEME)
        rate, waiting = _ours(point)
        yield SCHEME, case, rate
        yield WAITING, case, waiting
        *_, ends = _launched("benchmarks.rpc_parameter_server:measure", (point,), 2, 1)
        yield RPC, case, _rate(ends)
    for servers in MORE_SERVERS:
        point = _point(RESNET, SCHEME, f"scheme.servers={servers}")
        yield _with_servers(servers), RESNET, _ours(point)[0]
    if importlib.util.find_spec("ray"):
        yield from _ray_turn()


def _ray_turn() -> Turn:
    points = [_point(case, SCHEME) for case in CASES]
    (of_cases,) = _launched("benchmarks.ray_parameter_server:measure", (points,), 1, 0)
    for case, ends in zip(CASES, of_cases, strict=True):
        yield RAY, case, _rate(ends)


def _with_servers(servers: int) -> str:
    return f"{SCHEME} with {servers} servers"


def _point(case: str, scheme: str, *more: str, workers: int = 2, steps: int | None = None) -> Point:
    overrides, usual_steps, _ = CASES[case]
    settings = [f"scheme={scheme}", f"workers={workers}", f"batch_size={BATCH_SIZE}", *more]
    kept = ["cluster.accelerator=cpu", "measurement.evaluations=1"]
    samples = (steps or usual_steps) * workers * BATCH_SIZE
    return point_of(*overrides, *settings, *kept, f"training.samples={samples}")


def _ours(point: Point) -> tuple[float, float]:
    """images/s, and which share of the workers' time passes from a gradient to new weights."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (point, Path(folder))
        seen = _launched(PROCESS, arguments, *point.num_processes)[: point.workers]
    workers = [each.strategy.workers[0] for each in seen]
    shares = [each.seconds_communicating / float(each.step_ends[-1]) for each in workers]
    return _rate([each.training_started + each.real_step_ends for each in seen]), median(shares)


def _launched(target: str, arguments: tuple, workers: int, servers: int) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return launch(target, arguments, workers=workers, servers=servers, log_folder=Path(folder))


def _rate(ends: Ends) -> float:
    """images/s over all workers: from the time when each has taken a tenth of its steps to that
    when the first has ended, so that none is measured beside an idle core.
    """
    begin = max(float(each[len(each) // 10]) for each in ends)
    end = min(float(each[-1]) for each in ends)
    timed = [each[(each >= begin) & (each <= end)] for each in ends]
    return BATCH_SIZE * sum((len(each) - 1) / float(each[-1] - each[0]) for each in timed)
