"""Compares steps of a user's module by the strategy of a run with those of plain Trainers: whatever
it does, it must train as it would without Paceline.
"""

from typing import Any, NamedTuple

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim import Optimizer

from paceline.clock.schedules import LiveOptions
from paceline.clock.training_strategy import random_state, set_random_state
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.errors import OF_MACHINE, SettingError, refused
from paceline.exchange.process_group import run_store, worker_index
from paceline.run.lightning_contract import HOOKS
from paceline.run.placed_data import PlacedData
from paceline.run.trial import PlainStrategy, Steps, Trial, state_of
from paceline.scheme.independent import Independent
from paceline.scheme.sync_allreduce import SyncAllReduce

_LARGE = 2.0**20  # factor of a gradient, to exceed any limit of a hook
_PATIENCE = 30.0  # seconds of processor time that a comparison may take
# rounding, as a share of the largest gradient or update, by the precision of the run
_ROUNDING = {"64-true": 1e-9, "32-true": 1e-3}
_ROUNDING_OF_HALF = 0.1


class _Seen(NamedTuple):
    """State of a module before a step of a worker; its gradients and the options of its optimizer,
    each time that they are there.
    """

    state: dict[str, Tensor]
    gradients: list[dict[str, Tensor]]
    options: list[list[float]]


class _Recorded(Trial):
    """A trial that keeps what its steps had, by worker and number of the step."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: dict[tuple[int, int], _Seen] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        super().on_train_batch_start(trainer, pl_module)
        self.seen[self.at] = _Seen(state_of(pl_module), [], [])

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        taken = {name: each.detach().clone() for name, each in self.gradients().items()}
        self.seen[self.at].gradients.append(taken)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        self.seen[self.at].options.append(LiveOptions(optimizer).read())


class _Compared(Trial):
    """A trial by a plain Trainer of steps that have been taken `beside`.

    Each of its steps begins with the weights and takes the gradients of those, so that rounding
    does not add up: the mean over all workers if `mean`. Raises SettingError("model") where they
    differ.
    """

    def __init__(
        self,
        module: LightningModule,
        steps: Steps,
        strategy: PlainStrategy,
        beside: _Recorded,
        *,
        mean: bool,
    ) -> None:
        super().__init__(module, steps, strategy)
        self._beside, self._mean = beside, mean
        self._before: dict[str, Tensor] = {}
        self._taken, self._read = 0, 0  # gradients, and options, of this step so far

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        super().on_train_batch_start(trainer, pl_module)
        other = self._beside.seen[self.at].state
        for name, tensor in state_of(pl_module, clone=False).items():
            self._check(name, other[name], tensor, self._before.get(name))
            tensor.data.copy_(other[name])
        self._before, self._taken, self._read = other, 0, 0

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (worker, n), own = self.at, self.gradients()
        workers = range(self.steps.workers) if self._mean and self.steps.workers > 1 else [worker]
        try:
            every = [self._beside.seen[each, n].gradients[self._taken] for each in workers]
        except (KeyError, IndexError):
            raise self._differs("the number of gradients in a step") from None
        self._taken += 1
        others = every[workers.index(worker)]
        largest = max((each.abs().max() for each in own.values()), default=torch.zeros(()))
        for name, weight in pl_module.named_parameters():
            if name in own or name in others:
                none = torch.zeros_like(weight)
                pair = others.get(name, none), own.get(name, none)
                self._check(f"the gradient of {name}", *pair, None, largest)
            taken = [each[name] for each in every if name in each]
            if name in own or any(bool(each.any()) for each in taken):
                weight.grad = torch.stack(taken).sum(0) / len(every)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        others = self._beside.seen[self.at].options
        if self._read >= len(others) or LiveOptions(optimizer).read() != others[self._read]:
            raise self._differs("the rate, or another option of its optimizer,")
        self._read += 1

    def _check(
        self,
        what: str,
        own: Tensor,
        plain: Tensor,
        before: Tensor | None,
        scale: Tensor | None = None,
    ) -> None:
        """Raise SettingError("model") unless `own` are the values of `plain`, with the rounding of
        an operation that has results as large as `scale`, or as the change since `before`.
        """
        if own.shape == plain.shape and torch.equal(own, plain):
            return
        if own.shape == plain.shape and own.is_floating_point():
            if scale is None:
                scale = (plain if before is None else plain - before).abs().max()
            share = _ROUNDING.get(self.steps.point.training.precision, _ROUNDING_OF_HALF)
            last = 8 * torch.finfo(own.dtype).eps * plain.abs().max()
            if not (own - plain).abs().max() > share * scale + last:  # or diverges
                return
        raise self._differs(what)

    def _differs(self, what: str) -> SettingError:
        message = f"{what} is not that of plain Lightning in step {self.at[1]} of a worker. "
        if self.steps.workers > 1:
            message += "Workers of the virtual clock have one module: batch_idx, rank and what is "
            message += "no buffer are those of all, and gradients are averaged after its hooks. "
        return SettingError("model", message + _overridden(self.module))


class _Pushed(Trial):
    """A trial of a plain Trainer whose gradients are pushed by `share` in a direction of their own,
    before hooks of the module see them. `stepped`: the gradients by which each step was taken.
    Steps begin with the weights of the trial `beside`, if there is one.
    """

    def __init__(
        self, module: LightningModule, steps: Steps, share: float, beside: "_Pushed | None" = None
    ) -> None:
        super().__init__(module, steps, PlainStrategy(steps, 0, by_streams=True))
        self.trainer.gradient_clip_val = None  # a scheme clips where DDP does
        self._share, self._beside = share, beside
        self._begun: list[dict[str, Tensor]] = []
        self.stepped: list[dict[str, Tensor]] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        super().on_train_batch_start(trainer, pl_module)
        if self._beside is None:
            self._begun.append(state_of(pl_module))
        else:
            for name, tensor in state_of(pl_module, clone=False).items():
                tensor.data.copy_(self._beside._begun[len(self.stepped)][name])

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        generator = torch.Generator().manual_seed(self.at[1])
        for gradient in self.gradients().values():
            direction = torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
            gradient.add_(direction * gradient.abs().max(), alpha=self._share * _LARGE)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        taken = {name: each.detach().clone() for name, each in self.gradients().items()}
        self.stepped.append(taken)


def compare(
    module: LightningModule,
    data: PlacedData,
    tried: Trial,
    *,
    synchronous: bool,
    mean: bool,
) -> str | None:
    """Raise SettingError("model") unless steps of the virtual clock, whose workers share one copy
    of `module`, are those of plain Trainers that each have a copy of their own.

    `tried`: a trial of the module alone. `synchronous`: steps are those of plain Trainers, and must
    leave nothing behind for the next one. `mean`: workers step by the mean of their gradients, as
    by DDP; else each by its own. Returns a caution if the module is too slow for it.
    """
    before, steps, point = random_state(), tried.steps, tried.steps.point
    averages = mean and point.workers > 1 and not synchronous
    if point.kind == "virtual" and point.workers > 1:
        steps = Steps(point, steps.told, 2, data.batch)
    workers, seconds = steps.workers, tried.seconds
    if synchronous and point.workers > 1:  # all workers decide alike, as they may meet in steps
        store, name = run_store(), "seconds of a trial"
        if worker_index() == 0:
            store.set(name, str(seconds))
        seconds = float(store.get(name))
    num_steps = steps.epochs * steps.length * (2 * workers + 3 * averages)
    if seconds * num_steps > _PATIENCE:
        set_random_state(before)
        message = f"{type(module).__name__} was not compared with plain Lightning, as each of "
        return f"{message}{num_steps} steps would take {seconds:.1f} s"
    with refused("model", "it fails beside plain Lightning", named=True, passing=OF_MACHINE):
        first = 0
        if synchronous and isinstance(tried.strategy, PlainStrategy):
            first = tried.strategy.worker
            strategy = PlainStrategy(steps, first, by_streams=False)
        else:
            strategy = VirtualStrategy(SyncAllReduce() if mean else Independent(), steps.run)
            strategy.moving = tried.moving
        shared = _Recorded(module, steps, strategy)
        shared.fit()
        for each in range(first, first + workers):
            ahead, streams = 0 if mean else each, not synchronous
            plain = PlainStrategy(steps, each, by_streams=streams, ahead=ahead)
            _Compared(module, steps, plain, shared, mean=mean).fit()
        shared.seen.clear()  # frees memory
        if averages:
            _check_averages(module, steps)
    set_random_state(before)
    return None


def _check_averages(module: LightningModule, steps: Steps) -> None:
    """Raise SettingError("model") if hooks make another gradient of a mean, as of all workers by
    DDP, than the mean of what they make of each.
    """
    trials = list[_Pushed]()
    for share in (0.0, 1.0, 0.5):
        trials.append(trial := _Pushed(module, steps, share, *trials[:1]))
        try:
            trial.fit()
        except OF_MACHINE:
            raise
        except Exception:  # a hook refuses large gradients
            return
    for first, last, halfway in zip(*(each.stepped for each in trials), strict=True):
        for name in {**first, **last, **halfway}:
            none = torch.zeros(())
            middle, *ends = (each.get(name, none) for each in (halfway, first, last))
            largest = max(each.abs().max() for each in ends)
            if (middle - sum(ends) / 2).abs().max() > 1e-3 * largest:
                message = f"hooks make another gradient of {name} of the mean over workers, which "
                message += "plain DDP gives them, than the mean of what they make of each worker's "
                message += "gradient, which this scheme steps by. "
                raise SettingError("model", message + _overridden(module))


def _overridden(module: Any) -> str:
    called = [hook for hook, use in HOOKS.items() if use == "called"]
    own = ", ".join(x for x in called if is_overridden(x, module, parent=LightningModule))
    return f"It overrides {own}"
