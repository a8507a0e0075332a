"""Goes through a small run of a user's module before the run that takes hours.

A copy of the module takes a few steps in a plain Trainer and scores a few images, so that whatever
fails later fails now, and what differs between clocks is found.
"""

import contextlib
import copy
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.utilities.distributed import _all_gather_ddp_if_available
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchmetrics import Metric

from paceline.clock.training_strategy import random_state, seed_generators, set_random_state
from paceline.errors import SettingError, first_line
from paceline.model.score import Score, evaluation_mode, score
from paceline.run.module_state import differ, numbers_of
from paceline.run.placed_data import Pass, PlacedData
from paceline.run.process_group_watch import refuse_strangers
from paceline.run.quiet import quiet_trainer
from paceline.run.run_trainer import RunTrainer, Told

_BATCHES = 2  # of an epoch, of which there are two
_START_HOOKS = ("on_{}_model_eval", "on_{}_start", "on_{}_epoch_start")
_SEED = 46_341
_NEEDED = "forward must map images [N, ...] to logits [N, classes]"


class Found(NamedTuple):
    """Results of a rehearsal. `moving`: names of parameters that change although no optimizer
    holds them. `counting`: the first attribute that changes and is no tensor of the module, or "".
    `unused`: True if a step gives no gradient to some weight that is trained.
    """

    moving: frozenset[str] = frozenset()
    counting: str = ""
    unused: bool = False


def rehearse_scores(module: Any, data: PlacedData) -> None:
    """Score a few images of each part of the data, without changing any random state.

    `module` must be on the CPU. Raises SettingError("data") for a part of the data that does not
    consist of pairs of images and labels, and SettingError("model") for a module that does not map
    images to logits.
    """
    before, kinds = random_state(), _without_gpu(module)
    for part, begin in zip(("validation", "test"), data.rehearsed, strict=True):
        for images, labels in _pairs(part, begin):
            _score(module, images, labels)
    for layer, kind in kinds:
        layer.__class__ = kind
    set_random_state(before)


def _pairs(part: str, begin: Pass) -> Iterator[tuple[Tensor, Tensor]]:
    try:
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
    except SettingError:
        raise
    except Exception as error:  # code from outside may raise anything
        message = f"pairs (images, labels [N]) of the {part} set are needed: {first_line(error)}"
        raise SettingError("data", message) from error


def _score(module: Any, images: Tensor, labels: Tensor) -> Score:
    given = images.to(next(module.parameters()).dtype)
    if not len(labels) or int(labels.min()) < 0:
        raise SettingError("data", f"labels must be class numbers from 0 on, not {labels.tolist()}")
    try:
        with torch.no_grad(), evaluation_mode(module):
            logits = module(given)
        _check_logits(logits, images, labels)
        return score(module, [(given, labels)], "cpu")
    except SettingError:
        raise
    except Exception as error:  # code from outside may raise anything
        raise SettingError("model", f"{_NEEDED}: {first_line(error)}") from error


def _check_logits(logits: Any, images: Tensor, labels: Tensor) -> None:
    shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
        raise SettingError("model", f"{_NEEDED}: it maps {len(images)} images to {shape}")
    if logits.shape[1] == 1:
        message = f"{_NEEDED}: one logit cannot tell two classes apart, return two"
        raise SettingError("model", message)
    if int(labels.max()) >= logits.shape[1]:
        message = f"there is a label {int(labels.max())}, and {logits.shape[1]} logits"
        raise SettingError("model", f"{_NEEDED}: {message}")


def rehearse_training(
    module: LightningModule,
    data: PlacedData,
    told: Told,
    *,
    worker: int,
    meets: bool,
    gathers: bool,
    options: Mapping[str, Any],
) -> Found:
    """Let a copy of `module` take a few steps and end two epochs; return what was found.

    `meets`: True if a module may call torch.distributed, since its workers take the same steps and
    form a group by themselves. `gathers`: True if it may call its `all_gather`. `options`: those of
    the Trainer, by Lightning's names. Random numbers go on as they were. Raises
    SettingError("model") for whatever a step, a hook or a checkpoint raises.
    """
    try:
        trained = copy.deepcopy(module)
        _without_gpu(trained)
    except Exception as error:  # code from outside may raise anything
        message = f"{type(module).__name__} cannot be copied: {first_line(error)}"
        raise SettingError("model", message) from error
    for metric in (each for each in trained.modules() if isinstance(each, Metric)):
        metric.distributed_available_fn = lambda: False  # metrics are those of this process
    before = random_state()
    seed_generators(_SEED + worker)  # numbers of its own
    unused = _Unused()
    epochs = min(2, told.num_steps)
    batches = [data.batch(worker, n) for n in range(max(1, min(_BATCHES, told.num_steps // 2)))]
    trainer = quiet_trainer(
        RunTrainer,
        callbacks=[unused],
        accelerator="cpu",
        devices=1,
        plugins=[LightningEnvironment()],
        max_epochs=epochs,
        log_every_n_steps=1,
        use_distributed_sampler=False,
        **options,
    )
    assert isinstance(trainer, RunTrainer)
    trainer.told = told
    trainer.batches = lambda: trainer.fit_loop.epoch_loop.global_step
    if told.num_workers > 1:
        gather: Any = _all_gather_ddp_if_available if gathers else _refuse_to_gather
        trainer.strategy.all_gather = gather
    state = numbers_of(trained)
    try:
        with refuse_strangers(meets):
            trainer.fit(trained, _Batches(batches))
            with tempfile.TemporaryDirectory() as folder:
                trainer.save_checkpoint(Path(folder) / "rehearsal.ckpt")
            _check_start_hooks(trained, data)
    except SettingError:
        raise
    except Exception as error:  # code from outside may raise anything
        message = f"it fails in a rehearsal of a few steps: {type(error).__name__}: "
        raise SettingError("model", message + first_line(error)) from error
    set_random_state(before)
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    _check_schedulers(trained, trainer, groups)
    held = {id(weight) for group in groups for weight in group["params"]}
    pairs = dict(module.named_parameters())
    if pairs.keys() != dict(trained.named_parameters()).keys():
        message = "it adds weights after setup and configure_model; build them there"
        raise SettingError("model", message)
    moving = frozenset(
        name
        for name, weight in trained.named_parameters()
        if id(weight) not in held and not torch.equal(weight.to(pairs[name].dtype), pairs[name])
    )
    now = numbers_of(trained)
    counting = next((path for path in state if path in now and differ(state[path], now[path])), "")
    return Found(moving, counting, unused.found)


def _refuse_to_gather(*arguments: Any, **options: Any) -> None:
    message = "it calls all_gather, which needs real workers with scheme=sync_allreduce"
    raise SettingError("model", message)


def _check_schedulers(
    module: LightningModule, trainer: Trainer, groups: Sequence[Mapping[str, Any]]
) -> None:
    """Raise SettingError("model") if a scheduler is not returned; `groups`: of all optimizers."""
    if any("initial_lr" in group for group in groups) and not trainer.lr_scheduler_configs:
        message = f"{type(module).__name__}.configure_optimizers does not return its scheduler, "
        message += "which would take the steps of one worker; return it with the optimizer"
        raise SettingError("model", message)


def _check_start_hooks(module: Any, data: PlacedData) -> None:
    """Raise SettingError("model") if what a Trainer calls before it validates or tests changes what
    the module returns, because a run does not call it.
    """
    for part, begin in zip(("validation", "test"), data.rehearsed, strict=True):
        images, labels = next(iter(begin()))
        before = _score(module, images, labels)
        hooks = [each.format(part) for each in _START_HOOKS]
        for hook in hooks:
            if is_overridden(hook, module, parent=LightningModule):
                with contextlib.suppress(Exception):  # of a hook that a run never calls
                    getattr(module, hook)()
                if _score(module, images, labels) != before:
                    message = f"{type(module).__name__}.{hook} changes what is evaluated, and would"
                    raise SettingError(
                        "model", f"{message} not be called; decide in forward by self.training"
                    )


class _Batches:
    """Batches of a rehearsal; Lightning takes a list for several loaders."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


class _PlainNorm(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        pass


def _without_gpu(module: nn.Module) -> Sequence[tuple[nn.Module, type]]:
    """Let a CPU compute layers of SyncBatchNorm; return these with their classes."""
    layers = [each for each in module.modules() if isinstance(each, nn.SyncBatchNorm)]
    kinds: list[tuple[nn.Module, type]] = [(each, type(each)) for each in layers]
    for each in layers:
        each.__class__ = _PlainNorm  # pyright: ignore[reportAttributeAccessIssue]
    return kinds


class _Unused(Callback):
    """Finds out if some step gives no gradient to a weight that is trained."""

    found = False

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        weights = pl_module.parameters()
        self.found |= any(each.requires_grad and each.grad is None for each in weights)
