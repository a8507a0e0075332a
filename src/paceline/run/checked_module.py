"""Checks of a module beyond its rehearsal: of its source, of its optimizer, of its weights while it
trains, and of the memory of a GPU that it shares.
"""

import ast
import inspect
import math
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from paceline.clock.snapshot import weights_digest
from paceline.clock.training_strategy import (
    AbstractTrainingStrategy,
    random_state,
    set_random_state,
)
from paceline.clock.wall.ddp import AbstractSynchronousStrategy
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.record.training import Training
from paceline.run.trial import trained_weights

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_SIGN = "out of memory"
_PLACES = {
    "lr": ("initial_lr", "lr", "max_lr"),  # of a scheduler's beginning, now, and of its peak
    "momentum": ("momentum",),
    "weight_decay": ("weight_decay",),
}


class HeededSettings(Callback):
    """Callback that refuses a module whose optimizer ignores the settings `training.*`.

    Without this check, a sweep over a learning rate that the module ignores would compare equal
    runs. Options that the optimizer lacks (Adam has no momentum) are not checked, and a momentum
    that is corrected for staleness neither. If there are several groups of weights, one of them
    must have the set value. A resumed run must not use this callback, because a schedule may have
    changed the options of its optimizer since the beginning.
    """

    def __init__(self, training: Training) -> None:
        self._set = {"lr": training.lr, "weight_decay": training.weight_decay}
        if training.momentum_correction == "none":
            self._set["momentum"] = training.momentum

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise SettingError("model") that names all settings which the optimizer ignores."""
        groups = trainer.optimizers[0].param_groups
        unheeded: list[str] = []
        for name, keys in _PLACES.items():
            value = self._set.get(name)
            found = [float(each[key]) for each in groups for key in keys if key in each]
            if value is None or not found:
                continue
            if not any(math.isclose(value, each, rel_tol=1e-6) for each in found):
                unheeded.append(
                    f"training.{name} is {value:g}, and its optimizer has {found[0]:g}: give it "
                    f"{name}: ${{training.{name}}}, or set training.{name}={found[0]:g}"
                )
        if unheeded:
            raise SettingError("model", "; ".join(unheeded))


class WatchedWeights(Callback):
    """Watches the weights of a user's module that several workers train."""

    def __init__(self, module: LightningModule) -> None:
        self._module = module
        self._before = {name: weights_digest([each]) for name, each in module.named_parameters()}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trained = trained_weights(trainer)

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """Raise SettingError("model") if other weights are trained than at the beginning."""
        if trained_weights(trainer) != self._trained:
            message = "it begins or ends to train weights during the run: let all of them require "
            message += "gradients, in one optimizer, and detach what is frozen"
            raise SettingError("model", message)

    def check(self, trainer: Trainer, strategy: AbstractTrainingStrategy) -> None:
        """Raise RuntimeError if weights changed of which snapshots have no copy."""
        if isinstance(strategy, AbstractSynchronousStrategy):
            return  # whose snapshots have all weights
        held = trained_weights(trainer)
        for name, weight in self._module.named_parameters():
            known = id(weight) in held or name in strategy.moving
            if not known and weights_digest([weight]) != self._before[name]:
                message = f"{name} changed, which no optimizer holds, and not within the first "
                raise RuntimeError(message + "steps: snapshots have no copy of it")


def where_none(module: object) -> str:
    """Return the file and the line of a `return` of None in the training_step of a user's module;
    "" if its source has none. A step may still return None by other functions, or by its end.
    """
    function: Any = inspect.unwrap(type(module).training_step)  # type: ignore[attr-defined]
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    returns = [each for each in _own(tree) if isinstance(each, ast.Return)]
    line = next((each.lineno for each in returns if _is_none(each.value)), 0)
    code = function.__code__
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno + line - 1}" if line else ""


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _INNER):
            yield child
            yield from _own(child)


def _is_none(value: ast.expr | None) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_none(value.body) or _is_none(value.orelse)
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def require_memory(module: LightningModule, batch: Any, device: torch.device, point: Point) -> None:
    """Let a copy of `module` take a step on the GPU, while the other workers do the same.

    The memory that a step needs stays reserved by this process until it trains. Random numbers go
    on as they were. Only steps in 32 bits are tried. Raises
    SettingError("cluster.workers_per_accelerator") if they do not fit.
    """
    if point.training.precision != "32-true":
        return
    before = random_state()
    try:
        copied = deepcopy(module).to(device)
        inputs = [part.to(device) for part in batch]
        optimizer: Any = copied.configure_optimizers()
        copied.training_step(tuple(inputs), 0).backward()  # pyright: ignore
        if isinstance(optimizer, Optimizer):
            optimizer.step()
    except Exception as error:  # code from outside may raise anything
        if _SIGN not in str(error):
            return  # training says so
        each = point.cluster.workers_per_accelerator
        message = f"the memory of a GPU does not hold {each} workers of {point.batch_size} images "
        message += "a step; fewer, or a smaller batch_size, are needed"
        raise SettingError("cluster.workers_per_accelerator", message) from error
    finally:
        set_random_state(before)
