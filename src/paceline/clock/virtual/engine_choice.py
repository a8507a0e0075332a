"""Chooses the engine of a module's waves, by comparing first results with those of one by one."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.clock.training_strategy import random_state, set_random_state
from paceline.clock.virtual.virtual_worker import Ahead, Buffer, VirtualWorker
from paceline.clock.virtual.wave_engines import (
    ENGINES,
    AbstractEngine,
    EngineName,
    Trained,
    part_of,
)
from paceline.errors import SettingError, first_line

_TRIED = 4  # workers whose first results are compared
BatchesOf = Callable[[Sequence[VirtualWorker]], Any]


def choose_engine(
    asked: EngineName,
    trained: Trained,
    workers: Sequence[VirtualWorker],
    batches_of: BatchesOf,
    precision: str,
) -> AbstractEngine | None:
    """Return an engine for waves of all `workers`, or None for one by one.

    `batches_of(workers)`: batches of the workers' present steps, stacked. `precision`: see
    Lightning's. Raises SettingError("cluster.engine") if the engine that is asked for cannot
    compute the module's steps.
    """
    if asked == "one_by_one" or (asked == "auto" and trained.weights[0].device.type != "cuda"):
        return None
    engine, reasons = None, list[str]()
    for name in ("vmap", "graph") if asked == "auto" else (asked,):
        unfit, kind = trained.why_not(), ENGINES[name]
        found = unfit or _tried(kind, trained, workers, batches_of, precision)
        if not isinstance(found, str):
            engine = found
            break
        reasons.append(f"{name} cannot compute {type(trained.module).__name__}: {found}")
    if reasons and asked != "auto":
        raise SettingError("cluster.engine", reasons[0])
    if reasons:
        instead = engine.name if engine else "one by one"
        print(f"paceline: {instead}, since {reasons[0]}", file=sys.stderr, flush=True)
    return engine


def _tried(
    kind: type[AbstractEngine],
    trained: Trained,
    workers: Sequence[VirtualWorker],
    batches_of: BatchesOf,
    precision: str,
) -> AbstractEngine | str:
    """Return an engine if its results are those of one by one, or else the reason."""
    engine = kind(trained, len(workers))
    workers = [each for each in workers if each.weights is not None][:_TRIED]
    random, most = random_state(), _tolerance(trained.weights[0], precision)
    losses = trained.weights[0].new_empty(len(workers)).unbind()
    for worker, loss in zip(workers, losses, strict=True):
        result = Buffer(torch.empty_like(worker.weights.vector))  # type: ignore[union-attr]
        worker.ahead = Ahead(result, Buffer(torch.empty_like(worker.statistics.vector)), loss)
    try:
        batches = batches_of(workers)
        engine.compute(workers, batches)
        for row, worker in enumerate(workers):
            if (found := _difference(trained, worker, part_of(batches, row))) > most:
                return f"it is {found:.1g} from what it gives one by one"
    except SettingError:
        raise
    except Exception as error:  # what a module of anybody's raises in a transformed step
        return first_line(error)
    finally:
        for worker in workers:
            worker.ahead = None
        set_random_state(random)
    return engine


def _tolerance(weight: Tensor, precision: str) -> float:
    """Return the largest relative difference of two ways to compute a gradient, which rounding
    explains: more of it in a deep network whose factors have 8 bits, or 11 as those of TF32.
    """
    if weight.dtype == torch.float64:
        return 1e-9
    if precision == "bf16-mixed":
        return 0.3
    rounded = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return 0.1 if weight.device.type == "cuda" and rounded else 0.01


def _difference(trained: Trained, worker: VirtualWorker, batch: Any) -> float:
    """Return the largest difference of a worker's result from that of a step by itself, as a
    share of it.
    """
    assert worker.ahead is not None
    assert worker.weights is not None
    gradient = Buffer(torch.empty_like(worker.weights.vector))
    statistics = Buffer(worker.statistics.vector.clone())
    counters = [each.clone() for each in worker.counters]
    trained.refer_to(worker.weights, statistics, counters)
    loss = trained.step(batch, gradient)
    ours = (worker.ahead.gradient.vector, worker.ahead.statistics.vector, worker.ahead.loss)
    theirs = (gradient.vector, statistics.vector, loss)
    return max(_distance(*pair) for pair in zip(ours, theirs, strict=True))


def _distance(ours: Tensor, theirs: Tensor) -> float:
    """Return the distance of two vectors as a share of the second's length; infinity for NaN."""
    if not theirs.numel():
        return 0.0
    apart, length = (each.double().square().sum().sqrt() for each in (ours - theirs, theirs))
    found = float(apart) / max(float(length), 1e-30)
    return math.inf if math.isnan(found) else found
