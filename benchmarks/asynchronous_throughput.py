"""async_parameter_server against workers that never communicate, and against documented peers.

All train the same network on the same batches from memory, with one thread in each worker and
fused SGD at the server. Each is measured in processes of its own, while all of its workers train.
Then a worker beside one that is slowed by 100 ms a step, against its rate alone.
"""

import importlib.util
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch.distributed as dist

from benchmarks.config import point_of
from benchmarks.row import ratio_row, row
from paceline.record.point import Point
from paceline.run.run_point import PROCESS
from tests.classifiers import ActingClassifier
from tests.launching import launch

TURNS = 3
SCHEME, ALONE = "async_parameter_server", "independent"
RPC, RAY = "torch.distributed.rpc's parameter server", "Ray's asynchronous parameter server"
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
SLOW_TURNS, SLOW_STEPS = 5, 1500  # steps of the fast worker; the slow one takes a few dozen

Ends = list[np.ndarray]  # of each worker's steps [seconds], by one clock
Turn = Iterator[tuple[str, str, float]]  # what was measured, in which case, and its value
Found = dict[tuple[str, str], list[float]]  # the same, of all turns


class SlowClassifier(ActingClassifier):
    """Worker 1 sleeps 100 ms before each step."""

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() == 1:
            time.sleep(0.1)


def rows() -> list[dict[str, Any]]:
    paced, seen = _by_turns(_paced_turn), _by_turns(_turn)
    name = f"{SCHEME} / independent, 8 workers paced at 50 ms a step: {CNN}"
    found = [ratio_row(name, paced[SCHEME, CNN], paced[ALONE, CNN], "images/s", 0.95)]
    for case, (_, _, least) in CASES.items():
        name = f"{SCHEME} / independent: {case}"
        found.append(ratio_row(name, seen[SCHEME, case], seen[ALONE, case], "images/s", least))
        found += [_against(peer, case, seen) for peer in (RPC, RAY)]
    return [*found, _beside_a_slow_one()]


def _against(peer: str, case: str, seen: Found) -> dict[str, Any]:
    ours, theirs = seen[SCHEME, case], seen[peer, case]
    name = f"{SCHEME} / {peer}: {case}"
    if theirs:
        return ratio_row(name, ours, theirs, "images/s", 2)
    name += ": not measured, since Ray (the extra `peers`) is not installed"
    return row(name, median(ours), math.nan, "images/s", math.nan, "shown", True)


def _beside_a_slow_one() -> dict[str, Any]:
    model = f"model._target_={__name__}.{SlowClassifier.__name__}"
    rates: dict[int, list[float]] = {1: [], 2: []}
    for workers in [*rates] * SLOW_TURNS:
        settings = (f"scheme={SCHEME}", f"workers={workers}", f"batch_size={BATCH_SIZE}", model)
        samples = f"training.samples={SLOW_STEPS * BATCH_SIZE}"
        point = point_of("data=fashion_mnist_subset", *settings, samples)
        rates[workers].append(_rate(_ends(point)[:1]) / BATCH_SIZE)
    name = "asynchronous worker beside one slowed by 100 ms a step / alone"
    return ratio_row(name, rates[2], rates[1], "steps/s", 0.9)


def _by_turns(turn: Callable[[], Turn]) -> Found:
    found: Found = defaultdict(list)
    for _ in range(TURNS):
        for what, case, value in turn():
            found[what, case].append(value)
    return found


def _paced_turn() -> Turn:
    pace = "cluster.step_seconds=0.05"
    for scheme in (ALONE, SCHEME):
        yield scheme, CNN, _rate(_ends(_point(CNN, scheme, pace, workers=8, steps=PACED_STEPS)))


def _turn() -> Turn:
    for case in CASES:
        for scheme in (ALONE, SCHEME):
            yield scheme, case, _rate(_ends(_point(case, scheme)))
        arguments = (_point(case, SCHEME),)
        *_, ends = _launched("benchmarks.rpc_parameter_server:measure", arguments, 2, 1)
        yield RPC, case, _rate(ends)
    if importlib.util.find_spec("ray"):
        yield from _ray_turn()


def _ray_turn() -> Turn:
    points = [_point(case, SCHEME) for case in CASES]
    (of_cases,) = _launched("benchmarks.ray_parameter_server:measure", (points,), 1, 0)
    for case, ends in zip(CASES, of_cases, strict=True):
        yield RAY, case, _rate(ends)


def _point(case: str, scheme: str, *more: str, workers: int = 2, steps: int | None = None) -> Point:
    overrides, usual_steps, _ = CASES[case]
    settings = [f"scheme={scheme}", f"workers={workers}", f"batch_size={BATCH_SIZE}", *more]
    kept = ["cluster.accelerator=cpu", "measurement.evaluations=1"]
    samples = (steps or usual_steps) * workers * BATCH_SIZE
    return point_of(*overrides, *settings, *kept, f"training.samples={samples}")


def _ends(point: Point) -> Ends:
    with tempfile.TemporaryDirectory() as folder:
        arguments = (point, Path(folder))
        seen = _launched(PROCESS, arguments, *point.num_processes)[: point.workers]
    return [each.training_started + each.real_step_ends for each in seen]


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
