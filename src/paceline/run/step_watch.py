"""Watches the steps that a copy of a user's module takes in its rehearsal, and the numbers that it
keeps besides its weights and buffers.
"""

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric

from paceline.clock.training_strategy import loss_of, random_state, set_random_state
from paceline.errors import SettingError
from paceline.run.run_trainer import Told

_DEPTH = 6  # of attributes within attributes
_OF_MODULES = frozenset(vars(nn.Module()))
_LARGE = 1e6  # factor of a gradient, by which it exceeds any limit that a hook may set


class StepWatch(Callback):
    """Watches two epochs of `length` batches each, and lets the second be the last one of the run,
    since a module may do something else there.

    Of the steps so far it knows whether there was one:
    - `without_gradient`: that gave no gradient to a weight that is trained;
    - `bent`: whose hooks changed gradients by more than a factor and an addition, as a limit of
      their norm does, or that took several gradients, so that it is not the same for the gradients
      of several workers and for their mean;
    - `divided`: whose gradient is the sum of several backward passes;
    - `unstepped`: in which the optimizer took no step, and no trained weight changed: hooks of
      an optimizer around another one may not be called;
    - `skipped`: that had no loss;
    - `moved`: in which trained weights changed by anything but a step of the optimizer;
    - `set_late`: after which the options of the optimizer changed;
    - `by_hand`: with other options than the first one, although there is no scheduler;
    - `remembers`: whose loss depends on steps before by something else than parameters, buffers and
      random numbers; it is only looked for if the module is `shared` by several workers.
    `last` is the state of the module after the last step, before the epoch ends. Of the whole
    rehearsal, `moving` are names of parameters that change although no optimizer holds them, and
    `counting` is the first attribute that changes and is no tensor of the module, or "".
    """

    moving: frozenset[str] = frozenset()
    counting: str = ""

    def __init__(self, told: Told, length: int, *, shared: bool) -> None:
        self.without_gradient = self.bent = self.moved = self.set_late = self.remembers = False
        self.by_hand = self.skipped = self.divided = self.unstepped = False
        self._gradients, self._stepped, self._passes = 0, False, Counter[int]()  # in a batch
        self._told, self._length, self._shared = told, length, shared
        self._weights: list[tuple[Tensor, Tensor]] = []  # after the last step
        self._begun: list[tuple[Tensor, Tensor]] = []  # before the batch
        self._options: Any = None
        self._first_options: Any = None
        self._early: LightningModule | None = None

    def batches(self, step: int) -> int:
        """Return the batches of all workers before a step of the rehearsal."""
        following = 2 * self._length - step
        last = self._told.num_steps - self._told.num_workers * following
        return step if following > self._length else max(step, last)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trained = trained_weights(trainer)
        self._parameters = [each for each in pl_module.parameters() if id(each) in trained]
        self._note(trainer)
        for number, weight in enumerate(self._parameters):
            weight.register_post_accumulate_grad_hook(partial(self._pass, number))  # pyright: ignore[reportUnknownMemberType]
        for optimizer in trainer.optimizers:
            optimizer.register_step_post_hook(lambda *_: self._note(trainer))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch > 0:
            trainer.fit_loop.epoch_progress.current.completed = self._told.num_epochs - 1

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._gradients, self._stepped, self._begun = 0, False, self._held()
        self._passes.clear()
        if batch_idx > 0 and not trainer.lr_scheduler_configs:
            self.set_late |= _options(trainer) != self._options
        if not self._shared or trainer.fit_loop.epoch_progress.current.ready < 2:
            return
        try:
            now = copy.deepcopy(pl_module)
            if batch_idx == 0:
                self._early = now
            elif self._early is not None:
                self.remembers |= _remembers(self._early, now, trainer, batch, batch_idx)
        except SettingError:
            raise
        except Exception:  # a copy is not what it was: then there is nothing to compare
            self._early = None

    def _pass(self, number: int, weight: Tensor) -> None:
        self._passes[number] += 1

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._gradients += 1
        weights = pl_module.parameters()
        self.without_gradient |= any(each.requires_grad and each.grad is None for each in weights)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        options = _options(trainer)
        self._first_options = self._first_options or options
        self.by_hand |= not trainer.lr_scheduler_configs and options != self._first_options
        self.moved |= any(not same(before, now) for now, before in self._weights)
        held = self._held()
        self.bent |= _bends(pl_module, optimizer)
        for weight, before in held:  # hooks of gradients have been called
            self.moved |= not same(before, weight)
            weight.data.copy_(before)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any
    ) -> None:
        self.skipped |= pl_module.automatic_optimization and outputs == {}
        self.divided |= max(self._passes.values(), default=0) > self._gradients
        self.bent |= self._gradients > 1
        self._stepped |= any(not same(before, now) for now, before in self._begun)
        self.unstepped |= not self._stepped

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.last = {name: each.clone() for name, each in pl_module.state_dict().items()}

    def _note(self, trainer: Trainer) -> None:
        self._stepped, self._weights, self._options = True, self._held(), _options(trainer)

    def _held(self) -> list[tuple[Tensor, Tensor]]:
        """Return the trained weights, each with a copy."""
        return [(each, each.detach().clone()) for each in self._parameters]


def trained_weights(trainer: Trainer) -> set[int]:
    """Return the identities of the parameters to which the optimizers give other values."""
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    return {id(each) for group in groups for each in group["params"] if each.requires_grad}


def _options(trainer: Trainer) -> list[dict[str, Any]]:
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    return [{key: each for key, each in group.items() if key != "params"} for group in groups]


def _bends(module: LightningModule, optimizer: Optimizer) -> bool:
    """Return True if hooks change gradients by a rule that is not linear."""
    limits = {"gradient_clip_val": None, "gradient_clip_algorithm": None}
    calls: dict[str, Callable[[], None]] = {
        "on_after_backward": lambda: module.on_after_backward(),
        "on_before_optimizer_step": lambda: module.on_before_optimizer_step(optimizer),
        "configure_gradient_clipping": lambda: module.configure_gradient_clipping(
            optimizer, **limits
        ),
    }
    own = [hook for hook in calls if is_overridden(hook, module, parent=LightningModule)]
    weights = [each for each in module.parameters() if each.grad is not None]
    before = [each.grad for each in weights]
    found: list[list[Tensor]] = []
    with suppress(Exception):  # of a hook that refuses large gradients: it sets no limit
        for factor in (0.0, 1.0, _LARGE) if own else ():
            for weight, gradient in zip(weights, before, strict=True):
                weight.grad = gradient * factor  # type: ignore[operator]
            for hook in own:
                calls[hook]()
            found.append([_gradient(each) for each in weights])
    for weight, gradient in zip(weights, before, strict=True):
        weight.grad = gradient
    every = zip(*found, strict=True) if len(found) == 3 else ()
    return any(not _is_linear(*each) for each in every)


def _is_linear(none: Tensor, one: Tensor, large: Tensor) -> bool:
    """Return True if gradients of 0, g and `_LARGE` * g become these by a factor and an addition,
    such as that of a penalty; then it is the same for the mean of several g.
    """
    added = none.nan_to_num()
    grown, expected = large - added, (one - added) * _LARGE
    most = grown.abs().nan_to_num(posinf=0.0).max() if grown.numel() else 0.0
    return torch.allclose(grown, expected, rtol=1e-3, atol=1e-3 * float(most), equal_nan=True)


def _gradient(weight: nn.Parameter) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.detach().clone()


def _remembers(
    early: LightningModule, now: LightningModule, trainer: Trainer, batch: Any, batch_idx: int
) -> bool:
    """Return True if two copies of a module, one of them of an earlier step, have different losses
    with the same parameters, buffers and random numbers.
    """
    for kind in ("parameters", "buffers"):
        for old, new in zip(getattr(early, kind)(), getattr(now, kind)(), strict=True):
            old.data.copy_(new)
    before, losses = random_state(), list[Any]()
    for module in (early, now):
        module.trainer, module._current_fx_name = trainer, "training_step"  # as where it logs
        set_random_state(before)
        losses.append(loss_of(module.training_step(copy.deepcopy(batch), batch_idx)))
    set_random_state(before)
    return not torch.allclose(*losses, rtol=1e-5, equal_nan=True)


def numbers_of(module: LightningModule) -> dict[str, Any]:
    """Return numbers and tensors in a module's attributes that are neither parameters nor buffers,
    by path. Metrics, optimizers and growing lists are left out.
    """
    lightning = set(vars(LightningModule()))
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def walk(thing: Any, path: str, depth: int) -> None:
        if isinstance(thing, bool | int | float):
            found[path] = thing
        elif isinstance(thing, nn.Parameter):
            return
        elif isinstance(thing, Tensor):
            found[path] = thing.detach().clone()
        elif depth > _DEPTH or id(thing) in seen or isinstance(thing, Metric | Optimizer | Trainer):
            return
        elif isinstance(thing, Mapping):
            seen.add(id(thing))
            for key, each in list(thing.items()):
                walk(each, f"{path}[{key!r}]", depth + 1)
        elif isinstance(thing, list | tuple):
            seen.add(id(thing))
            for n, each in enumerate(thing):
                walk(each, f"{path}[{n}] of {len(thing)}", depth + 1)
        elif hasattr(thing, "__dict__") and not isinstance(thing, type) and not _is_function(thing):
            seen.add(id(thing))
            own = vars(thing)
            for key, each in own.items():
                if isinstance(thing, nn.Module) and (key in _OF_MODULES or key in lightning):
                    continue
                walk(each, f"{path}.{key}" if path else key, depth + 1)
            parts = own["_modules"] if isinstance(thing, nn.Module) else {}
            for key, each in parts.items():
                walk(each, f"{path}.{key}" if path else key, depth)

    walk(module, "", 0)
    return found


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def same(before: Tensor, now: Tensor) -> bool:
    """Return True for tensors of equal values; NaN, as of a module that diverges, equals itself."""
    if torch.equal(before, now):
        return True
    real = before.shape == now.shape and before.is_floating_point()
    return real and torch.allclose(before, now, rtol=0, atol=0, equal_nan=True)


def differ(before: Any, now: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(now, Tensor):
        return before.shape == now.shape and not same(before, now)
    if isinstance(before, Tensor) or type(before) is not type(now):
        return False
    return before != now and not (before != before and now != now)  # as NaN
