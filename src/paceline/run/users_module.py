"""Completes a user's LightningModule, and checks it before and while it trains."""

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch.nn import Module, SyncBatchNorm
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from paceline.clock.snapshot import weights_digest
from paceline.clock.training_strategy import (
    NO_SKIPPING,
    AbstractTrainingStrategy,
    check_automatic,
    random_state,
    set_random_state,
)
from paceline.clock.wall.ddp import AbstractSynchronousStrategy, SyncAllReduceStrategy
from paceline.errors import OF_MACHINE, SettingError, refused
from paceline.model.classifier import Classifier
from paceline.record.point import Point
from paceline.record.training import Training
from paceline.run.compared_steps import compare
from paceline.run.lightning_contract import HOOKS, check_hooks
from paceline.run.placed_data import PlacedData
from paceline.run.quiet import quiet_trainer
from paceline.run.rehearsal import rehearse_training
from paceline.run.run_trainer import RunTrainer, Told
from paceline.run.trial import trained_weights
from paceline.scheme.counts import Counts

_SIGN = "out of memory"
_PLACES = {
    "lr": ("initial_lr", "lr", "max_lr"),  # of a scheduler's beginning, now, and of its peak
    "momentum": ("momentum",),
    "weight_decay": ("weight_decay",),
}


def seed_equally(seed: int) -> None:
    """Seed the generators of torch, numpy and Python, equally in every process."""
    seed_everything(seed, verbose=False)
    forget_seed()


def forget_seed() -> None:
    """Let no call of Lightning's `seed_everything` so far be repeated by its DDP, which would seed
    all workers equally.
    """
    os.environ.pop("PL_GLOBAL_SEED", None)


def seeds_itself(module: Module, build: Callable[[], Module], seed: int) -> bool:
    """Return True if `build`, with another seed than the one `module` was built with, makes a
    module that begins with the same weights. Random numbers go on as they were.
    """
    before = random_state()
    seed_equally(seed + 1)
    pairs = [*zip(module.parameters(), build().parameters(), strict=False)]
    forget_seed()
    set_random_state(before)
    return bool(pairs) and all(not is_lazy(x) and torch.equal(x, y) for x, y in pairs)


def trains_as_ours(module: Any) -> bool:
    """Return True for a Classifier whose class is Paceline's or overrides nothing that a Trainer
    calls. Its only epoch is the run.
    """
    # not `is_overridden`, which fails for hooks that Classifier has set to None
    return isinstance(module, Classifier) and (
        _package(module) == "paceline"
        or all(
            getattr(type(module), hook) is getattr(Classifier, hook)
            for hook, use in HOOKS.items()
            if use in ("called", "early")
        )
    )


def has_known_layers(module: Module) -> bool:
    """Return True if all layers are Paceline's or of packages whose layers keep numbers in weights
    and buffers alone.
    """
    layers = (layer for part in module.children() for layer in part.modules())
    return all(_package(layer) in ("paceline", "timm", "torch", "torchvision") for layer in layers)


def _package(module: Module) -> str:
    return type(module).__module__.partition(".")[0]


def complete(
    module: Any, told: Told, seed: int, images: Callable[[], Any], *, together: bool
) -> None:
    """Call the hooks of a module that may build weights, with a Trainer to ask; then
    initialise lazy layers by a pass over `images()`. Lightning does not call these hooks again.
    `together`: True if DDP takes the steps of all workers together.

    Raises SettingError("model") for a hook that is refused, and if there are no weights.
    """
    name = type(module).__name__
    if not isinstance(module, LightningModule):
        raise SettingError("model._target_", f"{name} is no LightningModule")
    check_hooks(module, "model")
    hooks: Any = {"setup": {"stage": "fit"}, "configure_model": {}}
    if own := [hook for hook in hooks if is_overridden(hook, module)]:
        trainer = quiet_trainer(RunTrainer, accelerator="cpu", devices=1, max_epochs=1)
        assert isinstance(trainer, RunTrainer)
        trainer.told, module.trainer = told, trainer
        for hook in own:
            with _or_refused(f"{name}.{hook}"):
                getattr(module, hook)(**hooks[hook])
            setattr(module, hook, None)  # which Lightning skips
        module.trainer = None
    if any(map(is_lazy, module.parameters())):
        first = images()
        seed_equally(seed)
        module.eval()
        with torch.no_grad(), _or_refused(f"{name}, whose layers are lazy,"):
            module(first.float())
        module.train()
    if not any(True for _ in module.parameters()) or any(map(is_lazy, module.parameters())):
        message = f"{name} has no weights after __init__, setup, configure_model and forward"
        raise SettingError("model", message)
    layers = module.modules()
    if not together and told.num_workers > 1 and any(isinstance(x, SyncBatchNorm) for x in layers):
        message = "SyncBatchNorm needs workers that take their steps together: "
        raise SettingError("model", message + "real ones, with scheme=sync_allreduce")


def _or_refused(what: str) -> AbstractContextManager[None]:
    return refused("model", f"{what} fails before training", named=True, passing=OF_MACHINE)


def meet_strategy(
    module: LightningModule,
    data: PlacedData,
    told: Told,
    point: Point,
    strategy: AbstractTrainingStrategy,
    worker: int,
) -> tuple[bool, str | None]:
    """Rehearse the training of a user's module, and tell the strategy what was found. Returns True
    if the module itself changes options of its optimizer, such as the learning rate, between steps,
    and a caution or None.

    Raises SettingError("model") for what the strategy cannot do as others do it.
    """
    virtual, several = point.kind == "virtual", point.workers > 1
    together = isinstance(strategy, SyncAllReduceStrategy)
    check_automatic(module, "a run")
    trial, plain = rehearse_training(module, data, told, point, worker=worker, gathers=together)
    forget_seed()
    if plain.skipped and not strategy.skips_steps:
        raise SettingError("model", f"its training_step returns None, {NO_SKIPPING}")
    if plain.num_steps < trial.num_batches and not plain.skipped:
        message = "a hook returned -1, or its optimizer takes no step in some batch, and each batch"
        raise SettingError("model", message + " of a worker is a step of a run")
    if several and together and plain.divided:
        message = "its backward takes several passes, of which all-reduce averages the first: add "
        raise SettingError("model", message + "the losses, and take one")
    by_hand = len(trial.rates) > 1 and not trial.trainer.lr_scheduler_configs
    if isinstance(strategy, AbstractSynchronousStrategy):
        if together and trial.lacks_gradients:
            strategy.expect_unused_weights()
        caution = compare(module, data, trial, synchronous=True, mean=True)
        forget_seed()
        return by_hand, caution
    if several and plain.moved:
        message = "its trained weights change by something else than steps of its optimizer, which "
        raise SettingError("model", message + "only real workers with sync_allreduce share")
    strategy.moving = trial.moving
    mean = not Counts(point.scheme, point.workers).applies_own_gradients
    caution = compare(module, data, trial, synchronous=False, mean=mean)
    forget_seed()
    if virtual and trial.moving and point.training.checkpoint_seconds is not None:
        message = "weights that no optimizer holds change, between the steps of one worker and of "
        message += "another: null is needed on the virtual clock"
        raise SettingError("training.checkpoint_seconds", message)
    return by_hand, caution


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
        self._before: dict[str, str] | None = None  # digests as training begins

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trained = trained_weights(trainer)

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """Raise SettingError("model") if other weights are trained than at the beginning."""
        if self._before is None:
            others = [x for x in self._module.named_parameters() if id(x[1]) not in self._trained]
            self._before = {name: weights_digest([each]) for name, each in others}
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
            if not known and weights_digest([weight]) != (self._before or {}).get(name):
                message = f"{name} changed, which no optimizer holds, and not within the first "
                raise RuntimeError(message + "steps: snapshots have no copy of it")


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
