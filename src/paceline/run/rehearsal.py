"""Scores a few images by a user's module and trains a copy of it for a few steps, before the run:
whatever fails after hours, in hooks, schedulers or a checkpoint, fails now.
"""

import contextlib
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils._pytree import tree_leaves

from paceline.clock.schedules import LiveOptions
from paceline.clock.training_strategy import random_state, set_random_state
from paceline.data.batches import LazyBatches
from paceline.errors import SettingError, refused
from paceline.model.score import Score, as_precise, evaluation_mode, score
from paceline.record.point import Point
from paceline.run.placed_data import Pass, PlacedData
from paceline.run.process_watch import forms_group, refuse_strangers
from paceline.run.run_trainer import Told
from paceline.run.trial import PlainStrategy, Steps, Trial, same, state_of, without_gpu

_NEEDED = "forward must map images [N, ...] to logits [N, classes]"


def rehearse_scores(module: Any, data: PlacedData) -> None:
    """Score a few images of each part of the data, without changing any random state.

    `module` must be on the CPU. Raises SettingError("data") for a part of the data that does not
    consist of pairs of images and labels, and SettingError("model") for a module that does not map
    images to logits.
    """
    before, kinds = random_state(), without_gpu(module)
    for part, begin in zip(("validation", "test"), data.rehearsed, strict=True):
        for images, labels in _pairs(part, begin):
            scored(module, images, labels)
    for layer, kind in kinds:
        layer.__class__ = kind
    set_random_state(before)


def _pairs(part: str, begin: Pass) -> Iterator[tuple[Tensor, Tensor]]:
    with refused("data", f"pairs (images, labels [N]) of the {part} set are needed"):
        batches = 0
        for images, labels in begin():
            batches += 1
            if (
                not isinstance(images, Tensor)
                or not isinstance(labels, Tensor)
                or labels.ndim != 1
                or labels.is_floating_point()
            ):
                raise TypeError("there are no tensors, or labels are not class numbers")
            yield images, labels
        if not batches:
            raise ValueError("it has no images")


def scored(module: Any, images: Tensor, labels: Tensor) -> Score:
    """Return the score of a batch. Raises SettingError for what cannot be scored."""
    images = as_precise(images, next(module.parameters()))
    if not len(labels) or int(labels.min()) < 0:
        raise SettingError("data", f"labels must be class numbers from 0 on, not {labels.tolist()}")
    with refused("model", _NEEDED):
        with torch.no_grad(), evaluation_mode(module):
            logits = module(images)
        _check_logits(logits, images, labels)
        return score(module, [(images, labels)], "cpu")


def _check_logits(logits: Any, images: Tensor, labels: Tensor) -> None:
    shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
        raise SettingError("model", f"{_NEEDED}: it maps {len(images)} images to {shape}")
    if logits.shape[1] == 1:
        message = f"{_NEEDED}: one logit cannot tell two classes apart, return two"
        raise SettingError("model", message)
    if bool((logits >= 0).all()) and (logits.float().sum(1) - 1).abs().max() < 1e-3:
        message = f"{_NEEDED}: its rows add up to 1 like those of softmax, return the input of that"
        raise SettingError("model", message)
    if int(labels.max()) >= logits.shape[1]:
        message = f"there is a label {int(labels.max())}, and {logits.shape[1]} logits"
        raise SettingError("model", f"{_NEEDED}: {message}")


_MOST_STEPS = 100_000  # of a scheduler
# names of accuracies, which are right where the highest logit is
_ACCURACY = re.compile("(?!.*(err|loss|top[-_]?[2-9k]))(.*acc|.*top[-_]?1)")


def rehearse_training(
    module: LightningModule,
    data: PlacedData,
    told: Told,
    point: Point,
    *,
    worker: int,
    gathers: bool,
) -> tuple[Trial, PlainStrategy]:
    """Let a copy of `module` take a few steps by a plain Trainer, in the first epoch of the run and
    in its last one; return these.

    `gathers`: True if it may call its `all_gather`. Random numbers go on as they were. Raises
    SettingError("model") for whatever a step, a hook or a checkpoint raises.
    """
    before = random_state()
    most = 1 if data.traffic.order.period(1) else 2  # before samples move to other workers
    steps = Steps(point, told, 1, lambda _, n: data.batch(worker, n), most=most, by_ddp=gathers)
    strategy = PlainStrategy(steps, worker, by_streams=point.kind == "virtual")
    trial = Trial(module, steps, strategy)
    trainer, trained = trial.trainer, trial.module
    fails = refused("model", "it fails in a rehearsal of a few steps", named=True)
    with fails, refuse_strangers(forms_group(point)):
        trial.fit()
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_checkpoint(path := Path(folder) / "rehearsal.ckpt")
            if point.training.checkpoint_seconds is not None:
                _check_checkpoint(path)
        _check_end(trained, trial.last)
        _check_scores(trial, data)
    if told.num_workers > 1 and trial.seeds:
        message = "it seeds the generator of torch in training, equally in all workers: leave that "
        raise SettingError("model", message + "to the setting `seed`")
    if trial.masks_change:
        message = "a buffer of bools changes between its steps, and snapshots have it as at the end"
        raise SettingError("model", f"{message}: let it be of floating-point numbers")
    set_random_state(before)
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    if not groups:
        message = f"{type(module).__name__}.configure_optimizers returns no optimizer"
        raise SettingError("model", message)
    _check_schedulers(trained, trainer, groups, told)
    if state_of(module, clone=False).keys() != state_of(trained, clone=False).keys():
        message = "it adds weights after setup and configure_model, or buffers; build them there"
        raise SettingError("model", message)
    return trial, strategy


def _check_schedulers(
    module: LightningModule, trainer: Trainer, groups: Sequence[Mapping[str, Any]], told: Told
) -> None:
    """Raise SettingError("model") if the module keeps or steps a scheduler itself, or if one ends
    before the run.

    `groups`: of all optimizers.
    """
    returned = [each.scheduler for each in trainer.lr_scheduler_configs]
    kinds = LRScheduler, ReduceLROnPlateau
    own = [x for x in vars(module).values() if isinstance(x, kinds) and x not in returned]
    if own or (any("initial_lr" in group for group in groups) and not returned):
        message = f"{type(module).__name__}.configure_optimizers does not return its scheduler, "
        message += "which would take the steps of one worker; return it with the optimizer"
        raise SettingError("model", message)
    done = {"step": trainer.fit_loop.epoch_loop.global_step, "epoch": trainer.current_epoch}
    length = {"step": told.num_steps, "epoch": told.num_epochs}
    for config in trainer.lr_scheduler_configs:
        scheduler: Any = config.scheduler
        name = type(scheduler).__name__
        if not config.reduce_on_plateau and scheduler.last_epoch > done[config.interval]:
            message = f"it steps its {name}, which would count the steps of one worker; return it "
            raise SettingError("model", message + "with an interval, and do not step it")
        left = 0 if config.reduce_on_plateau else length[config.interval] - done[config.interval]
        end = f"{length['step']} steps in {length['epoch']} epochs"
        with refused("model", f"its {name} fails before the end of a run of {end}"):
            for _ in range(min(left // config.frequency, _MOST_STEPS)):
                scheduler.step()


def _check_checkpoint(path: Path) -> None:
    message = "a run could not go on from its checkpoint, which must have tensors, numbers and "
    message += "texts only: save_hyperparameters(ignore=...) leaves out others"
    with refused("model", message):
        torch.load(path, weights_only=True)


def _check_end(module: LightningModule, last: Mapping[str, Tensor]) -> None:
    """Raise SettingError("model") if a hook changes the module after its last step."""
    for name, now in state_of(module).items():
        if name in last and not same(last[name], now):
            message = f"{name} changes after the last step, as by on_train_end, and snapshots are "
            raise SettingError("model", message + "evaluated as they were in training")


def _check_scores(trial: Trial, data: PlacedData) -> None:
    """Raise SettingError("model") if what a run scores, `forward` of the images after training, is
    not what the module validates, tests and trains.

    A Trainer validates and tests it on images with the labels that forward predicts, for which an
    accuracy that the module logs must be 1, or 100 %. If it logs none, forward must reach all
    weights that the loss reaches.
    """
    module, trainer = trial.module, trial.trainer
    epochs, accurate = trainer.fit_loop.epoch_progress.current, False
    for part, begin in zip(("validation", "test"), data.rehearsed, strict=True):
        images, labels = next(iter(begin()))
        images = as_precise(images, next(module.parameters()))
        numbers, found = random_state(), set[str]()
        ended = epochs.completed
        for epochs.completed in (0, ended):
            set_random_state(numbers)
            found.add(repr(scored(module, images, labels)))  # a loss that is NaN equals itself
        if len(found) > 1:
            message = "its forward depends on the epoch, and snapshots are evaluated after training"
            raise SettingError("model", message)
        accurate |= _check_part(trial, part, images)
    if accurate or trial.moving:
        return
    if others := sorted(trial.reached - _reached(trial, images)):
        message = f"{others[0]} is trained, and has no part in what forward returns, which a run "
        message += "scores: return logits in which it has, or log the accuracy of forward's logits "
        raise SettingError("model", message + "in validation_step")


def _check_part(trial: Trial, part: str, images: Tensor) -> bool:
    """Let a Trainer validate or test the module on `images`; return True if it logs an accuracy.

    Raises SettingError("model") if forward gets other images there or returns other logits, and for
    an accuracy that is not that of these logits.
    """
    module, trainer, calls = trial.module, trial.trainer, list[tuple[Tensor, Tensor]]()

    def note(_: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if len(inputs) == 1 and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            calls.append((inputs[0], output))

    with torch.no_grad(), evaluation_mode(module), trainer.precision_plugin.forward_context():
        logits = module(images)
    if not is_overridden(f"{part}_step", module, parent=LightningModule):
        setattr(module, f"{part}_step", lambda batch, batch_idx: module(batch[0]))
    hook = module.register_forward_hook(note)
    batches = LazyBatches(1, lambda first: iter([(images, logits.argmax(1))]))
    trainer.limit_val_batches = trainer.limit_test_batches = 1
    evaluate = trainer.validate if part == "validation" else trainer.test
    said: Mapping[str, float] = {}
    before = state_of(module)
    rates = LiveOptions(trainer.optimizers[0]).read()
    with contextlib.suppress(Exception):  # of hooks that a run never calls
        (said,) = evaluate(module, batches, verbose=False)
    hook.remove()
    moved = [name for name, now in state_of(module).items() if not same(before[name], now)]
    if moved or LiveOptions(trainer.optimizers[0]).read() != rates:
        what = moved[0] if moved else "the rate, or another option of its optimizer,"
        message = f"{what} changes by its {part}, as in on_{part}_end, and a run trains without"
        raise SettingError("model", message)
    if calls:
        ours = [found for given, found in calls if same(given.reshape(-1), images.reshape(-1))]
        if not ours:
            message = f"its {part}_step gives forward other values than the images of a batch, "
            raise SettingError(
                "model", message + "which a run would score: prepare them in forward"
            )
        if not any(same(found, logits) for found in ours):
            message = f"hooks such as on_{part}_start change what forward returns, and a run does "
            raise SettingError(
                "model", message + "not call them: decide in forward by self.training"
            )
    accuracies = {name: value for name, value in said.items() if _ACCURACY.match(name.lower())}
    if any(math.isclose(value, 1, rel_tol=1e-3) or value > 99 for value in accuracies.values()):
        return True
    for name, value in accuracies.items():
        message = f"its {part}_step says {name} {value:.4g} where the logits of forward say 1, "
        raise SettingError("model", message + "and a run scores these: return its logits")
    return False


def _reached(trial: Trial, images: Tensor) -> set[str]:
    """Return the names of the trained weights that have a part in what forward returns."""
    module, reached = trial.module, set[str]()
    weights = {name: x for name, x in module.named_parameters() if x.requires_grad}
    for mode in (True, False):  # some layers are there in training alone
        with torch.enable_grad(), contextlib.suppress(Exception):  # as of BatchNorm on one image
            outputs = tree_leaves(module.train(mode)(images))
            total = sum(x.sum() for x in outputs if isinstance(x, Tensor) and x.requires_grad)
            if isinstance(total, Tensor):  # not of a teacher
                found = torch.autograd.grad(total, [*weights.values()], allow_unused=True)
                pairs = zip(weights, found, strict=True)
                reached |= {name for name, gradient in pairs if gradient is not None}
    return reached
