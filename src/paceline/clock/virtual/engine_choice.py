"""Chooses the engine of a module's waves, by comparing first results with those of one by one."""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from paceline.clock.training_strategy import random_state, set_random_state
from paceline.clock.virtual.execution import Ahead, WorkerVectors
from paceline.clock.virtual.wave_engines import (
    ENGINES,
    AbstractEngine,
    EngineName,
    Trained,
    part_of,
)
from paceline.errors import SettingError, first_line

_TRIED = 4  # workers whose first results are compared
_ROUNDED = 0.03  # largest relative difference by rounding to 24 bits, in a deep network
BatchesOf = Callable[[Sequence[WorkerVectors]], Any]
Result = tuple[Tensor, Tensor, Tensor]


def choose_engine(
    asked: EngineName,
    trained: Trained,
    workers: Sequence[WorkerVectors],
    batches_of: BatchesOf,
) -> AbstractEngine | None:
    """Return an engine for waves of all `workers`, or None for one by one.

    `batches_of(workers)`: batches of the workers' present steps, stacked. Raises
    SettingError("cluster.engine") if the one asked for cannot compute the module's steps.
    """
    if asked == "one_by_one":
        return None
    on_gpu = trained.weights[0].device.type == "cuda"
    engine, reasons, unfit = None, list[str](), trained.why_not()
    fastest = ("vmap", "graph") if on_gpu else ("graph",)
    for name in fastest if asked == "auto" else (asked,):
        found = unfit or _tried(ENGINES[name], trained, workers, batches_of)
        if not isinstance(found, str):
            engine = found
            break
        reasons.append(f"{name} cannot compute {type(trained.module).__name__}: {found}")
    if reasons and asked != "auto":
        raise SettingError("cluster.engine", reasons[0])
    if reasons and on_gpu:
        instead = engine.name if engine else "one by one"
        print(f"paceline: {instead}, since {reasons[0]}", file=sys.stderr, flush=True)
    return engine


def _tried(
    kind: type[AbstractEngine],
    trained: Trained,
    workers: Sequence[WorkerVectors],
    batches_of: BatchesOf,
) -> AbstractEngine | str:
    """Return an engine if its results are those of one by one, or else the reason."""
    tried = _TRIED if kind.in_waves else 1
    chosen = [each for each in workers if each.weights is not None][:tried]
    random, losses = random_state(), trained.weights[0].new_empty(len(chosen)).unbind()
    for worker, loss in zip(chosen, losses, strict=True):
        result = torch.empty_like(worker.weights)  # type: ignore[arg-type]
        worker.ahead = Ahead(result, torch.empty_like(worker.statistics), loss)
    exactly = 1e-9 if trained.weights[0].dtype == torch.float64 else _ROUNDED
    try:
        engine = kind(trained, len(workers))
        # The second time in the precision that is asked for. Its rounding may change a gradient of
        # a deep network by a third of its length, so that only what is entirely wrong is seen.
        for context, used, most in (
            (_full_precision(trained), kind(trained, len(chosen)), exactly),
            (nullcontext(), engine, 1.0),
        ):
            with context:
                batches, _ = batches_of(chosen)
                theirs = [
                    _by_itself(trained, worker, part_of(batches, row))
                    for row, worker in enumerate(chosen)
                ]
                used.compute(chosen, batches_of(chosen))
            for worker, expected in zip(chosen, theirs, strict=True):
                if (found := _difference(worker, expected)) > most:
                    return f"it is {found:.1g} from what it gives one by one"
    except SettingError:
        raise
    except Exception as error:  # what a module of anybody's raises in a transformed step
        return first_line(error)
    finally:
        for worker in chosen:
            worker.ahead = None
        set_random_state(random)
    return engine


@contextmanager
def _full_precision(trained: Trained):
    """Compute without factors of 8 or 11 bits, whose rounding would hide what differs."""
    asked, cudnn = trained.precision, torch.backends.cudnn.allow_tf32
    matmul = torch.get_float32_matmul_precision()
    trained.precision = nullcontext
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        trained.precision = asked
        torch.backends.cudnn.allow_tf32 = cudnn
        torch.set_float32_matmul_precision(matmul)


def _by_itself(trained: Trained, worker: WorkerVectors, batch: Any) -> Result:
    """Return gradient, statistics after it, and loss of a worker's step by itself."""
    assert worker.weights is not None
    gradient = torch.empty_like(worker.weights)
    statistics = worker.statistics.clone()
    trained.refer_to(worker.weights, statistics, [each.clone() for each in worker.counters])
    with trained.dropout.drawing(worker.index, worker.num_steps):
        loss = trained.step((batch, []), gradient)
    return gradient, statistics, loss


def _difference(worker: WorkerVectors, expected: Result) -> float:
    """Return a result's largest distance from another, as a share of it; infinity for NaN."""
    assert worker.ahead is not None
    found = worker.ahead.gradient, worker.ahead.statistics, worker.ahead.loss
    largest = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        squares = [float(each.double().square().sum()) for each in (ours - theirs, theirs)]
        share = math.sqrt(squares[0]) / max(math.sqrt(squares[1]), 1e-30)
        largest = max(largest, math.inf if math.isnan(share) else share)
    return largest
