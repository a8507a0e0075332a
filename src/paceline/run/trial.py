"""Compares steps of a user's module on the virtual clock with those of plain Trainers: whatever it
does, it must train as it would without Paceline.
"""

import contextlib
import copy
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.utilities.distributed import _all_gather_ddp_if_available
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.training_strategy import keep_metrics_apart, random_state, set_random_state
from paceline.clock.virtual.dropout_streams import DropoutStreams
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.data.batches import LazyBatches
from paceline.errors import OF_MACHINE, SettingError, refused
from paceline.exchange.process_group import run_store, worker_index
from paceline.record.point import Point
from paceline.run.lightning_contract import HOOKS
from paceline.run.placed_data import PlacedData
from paceline.run.quiet import quiet_trainer
from paceline.run.run_trainer import RunTrainer, Told
from paceline.scheme.independent import Independent
from paceline.scheme.sync_allreduce import SyncAllReduce

_SEED = 46_341
_LARGE = 2.0**20  # factor of a gradient, to exceed any limit of a hook
_PATIENCE = 30.0  # seconds of processor time that a comparison may take
# rounding, as a share of the largest gradient or update, by the precision of the run
_ROUNDING = {"64-true": 1e-9, "32-true": 1e-3}
_ROUNDING_OF_HALF = 0.1


class Steps:
    """Steps of `workers` workers: two epochs of few batches, the second of which a module is told
    to be the last one of the run, since it may do something else there. `draw(worker, n)`: a batch,
    with n below `most`. `by_ddp`: True if DDP takes the steps of the run.
    """

    def __init__(
        self,
        point: Point,
        told: Told,
        workers: int,
        draw: Callable[[int, int], Any],
        *,
        most: int = 2,
        by_ddp: bool = False,
    ) -> None:
        self.point, self.told, self.workers, self.by_ddp = point, told, workers, by_ddp
        steps, size = max(1, told.num_steps // told.num_workers), point.batch_size
        self.epochs, self.length = min(2, steps), max(1, min(most, steps // 2))
        _seed(torch.initial_seed() + _SEED)  # as training draws no batch
        self._batches = [[draw(worker, n) for n in range(self.length)] for worker in range(workers)]
        self.run = RunSpec(
            num_workers=workers,
            batch_size=size,
            num_steps=self.epochs * self.length * workers,
            seed=point.seed,
            epoch_samples=self.length * workers * size,
        )

    def batch(self, worker: int, n: int) -> Any:
        return copy.deepcopy(self._batches[worker % self.workers][n % self.length])

    def told_batches(self, done: int) -> int:
        """Return the batches of all workers that a module is told after `done` of these."""
        if done < self.length * self.workers:
            return done
        left = self.epochs * self.length * self.workers - done
        return max(done, self.told.num_steps - left * self.told.num_workers)


class PlainStrategy(SingleDeviceStrategy):
    """Lightning's own strategy of one CPU, for one of the workers of `steps`, whose schedulers
    count the batches of all workers, `ahead` of which are done before its first. With `by_streams`,
    its dropout draws what it draws on the virtual clock.

    `num_steps`: steps that the optimizer took. Also, if trained weights changed between two of them
    (`moved`), if a step had no loss (`skipped`), and if a gradient is the sum of several backward
    passes (`divided`).
    """

    def __init__(self, steps: Steps, worker: int, *, by_streams: bool, ahead: int = 0) -> None:
        super().__init__(device=torch.device("cpu"))  # pyright: ignore[reportUnknownMemberType]
        self._steps, self.worker, self._drawn = steps, worker, 0
        self._by_streams, self._streams, self._ahead = by_streams, None, ahead
        self.global_rank = worker if steps.workers > 1 else 0
        self.num_steps, self._passed = 0, set[int]()
        self.moved = self.skipped = self.divided = False
        self._after: list[tuple[Tensor, Tensor]] = []  # trained weights after the last step

    def batches(self, draw: Callable[[int, int], Any], size: int, length: int) -> Iterator[Any]:
        for self._drawn in range(length):
            if self._steps.workers > 1:
                self._schedules.set(self.known_batches)
            yield draw(self.worker, self._drawn)

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    @property
    def known_batches(self) -> int:
        return self._steps.workers * self.num_steps + self._ahead

    def samples_before_next(self) -> int:
        return 0

    def on_train_start(self) -> None:
        super().on_train_start()
        module: Any = self.lightning_module
        if self._by_streams:
            self._streams = DropoutStreams(module, self._steps.point.seed, self.root_device)
        if self._steps.workers > 1:
            configs, options = module.trainer.lr_scheduler_configs, LiveOptions(self.optimizers[0])
            self._schedules = Schedules(configs, options, self._steps.run)
        for weight in module.parameters():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(self._note_pass)

    def _note_pass(self, weight: Tensor) -> None:
        self.divided |= id(weight) in self._passed
        self._passed.add(id(weight))

    def pre_backward(self, closure_loss: Tensor) -> None:
        super().pre_backward(closure_loss)
        self._passed.clear()

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        streams = self._streams
        with streams.drawing(self.worker, self._drawn) if streams else contextlib.nullcontext():
            output = super().training_step(*args, **kwargs)
        self.skipped |= output is None
        return output

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        def watched() -> Any:
            output = closure()
            self.moved |= any(not same(before, now) for now, before in self._after)
            return output

        output = super().optimizer_step(optimizer, watched, *args, **kwargs)
        self.num_steps += 1
        groups = optimizer.param_groups
        weights = [each for group in groups for each in group["params"] if each.requires_grad]
        self._after = [(each, each.detach().clone()) for each in weights]
        return output


class Trial(Callback):
    """Lets a copy of a module take `steps` by `strategy`.

    Random numbers of a step depend on its worker and number alone; `seeds` is True if the module
    seeds the generators itself. `seconds`: processor time of the quickest step. `num_batches`:
    steps begun. `reached`: names of the weights to which a loss has given a gradient.
    `lacks_gradients`: True if a step gave none to a trained weight. `rates`: options of the
    optimizer in all steps. `masks_change`: True if a buffer of bools changes after the first step.
    `last`: weights and buffers after the last step.
    """

    def __init__(
        self, module: LightningModule, steps: Steps, strategy: PlainStrategy | VirtualStrategy
    ) -> None:
        with refused("model", f"{type(module).__name__} cannot be copied"):
            self.module = copy.deepcopy(module)
            without_gpu(self.module)
        keep_metrics_apart(self.module)
        self.strategy, self.steps = strategy, steps
        self.at, self._seed, self.seeds = (0, 0), _SEED, False
        self.seconds, self.num_batches, self.lacks_gradients = math.inf, 0, False
        self.reached, self.rates = set[str](), set[tuple[float, ...]]()
        self.masks_change, self._masks = False, list[Tensor]()
        training = steps.point.training
        trainer = quiet_trainer(
            RunTrainer,
            callbacks=[self],
            strategy=strategy,
            accelerator="cpu",
            devices=1,
            plugins=[LightningEnvironment()],
            max_epochs=steps.epochs,
            log_every_n_steps=1,
            use_distributed_sampler=False,
            # a CPU has no float16
            precision="bf16-mixed" if training.precision == "16-mixed" else training.precision,
            gradient_clip_val=training.gradient_clip_val,
            gradient_clip_algorithm=training.gradient_clip_algorithm,
        )
        assert isinstance(trainer, RunTrainer)
        self.trainer, trainer.told, trainer.by_ddp = trainer, steps.told, steps.by_ddp
        if steps.told.num_workers > 1 and isinstance(strategy, PlainStrategy):
            gather: Any = _all_gather_ddp_if_available if steps.by_ddp else _refuse_to_gather
            strategy.all_gather = gather
        trainer.batches = lambda: steps.told_batches(strategy.known_batches)

    def fit(self) -> None:
        steps, strategy = self.steps, self.strategy
        length = steps.length * (1 if isinstance(strategy, PlainStrategy) else steps.workers)
        size = steps.point.batch_size
        drawn = iter(strategy.batches(self._draw, size, steps.epochs * length))

        def epoch(first: int) -> Iterator[Any]:
            for _ in range(first, length):
                yield next(drawn)
            strategy.samples_before_next()  # which ends the step before, as in a run

        self._reseed()
        self._needed = [each for each in self.module.parameters() if each.requires_grad]  # by DDP
        self.trainer.fit(self.module, LazyBatches(length, epoch))

    def _draw(self, worker: int, n: int) -> Any:
        self.at = worker, n
        return self.steps.batch(worker, n)

    def _reseed(self) -> None:
        worker, n = self.at
        self._seed = _SEED + 1000 * n + worker
        _seed(self._seed)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch > 0:
            trainer.fit_loop.epoch_progress.current.completed = self.steps.told.num_epochs - 1

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.seeds |= torch.initial_seed() != self._seed
        self._reseed()
        masks = [x.clone() for x in pl_module.buffers() if x.dtype == torch.bool]
        self.masks_change |= self.num_batches > 1 and not all(map(torch.equal, masks, self._masks))
        self._masks = masks
        if not self.num_batches:
            held = trained_weights(trainer)
            others = [each for each in pl_module.named_parameters() if id(each[1]) not in held]
            self._others = {name: each.detach().clone() for name, each in others}
        self.num_batches += 1
        self._began = time.process_time()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        gradients = self.gradients()
        self.reached |= {name for name, each in gradients.items() if each.any()}
        self.lacks_gradients |= any(each.grad is None for each in self._needed)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        self.rates.add(tuple(LiveOptions(optimizer).read()))

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.seconds = min(self.seconds, time.process_time() - self._began)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.last = state_of(pl_module)

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the trained weights that have one, by name."""
        held = trained_weights(self.trainer)
        named = self.module.named_parameters()
        return {name: x.grad for name, x in named if id(x) in held and x.grad is not None}

    @property
    def moving(self) -> frozenset[str]:
        """Names of the parameters that no optimizer holds, if one of them changed."""
        now = dict(self.module.named_parameters())
        changed = any(not same(before, now[name]) for name, before in self._others.items())
        return frozenset(self._others if changed else ())


def _refuse_to_gather(*_: Any, **__: Any) -> Any:
    message = "it calls all_gather, which needs real workers with scheme=sync_allreduce"
    raise SettingError("model", message)


def _seed(seed: int) -> None:
    """Seed the generators of the CPU; those of a GPU that is not yet used stay as they are."""
    torch.default_generator.manual_seed(seed % 2**63)
    random.seed(seed)
    np.random.seed(seed % 2**32)


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
    told: Told,
    point: Point,
    tried: Trial,
    *,
    synchronous: bool,
    mean: bool,
) -> str | None:
    """Raise SettingError("model") unless steps of the virtual clock, whose workers share one copy
    of `module`, are those of plain Trainers that each have a copy of their own.

    `tried`: a trial of the module alone. `synchronous`: steps
    are those of plain Trainers, and must leave nothing behind for the next one. `mean`: workers step by the mean
    of their gradients, as by DDP; else each by its own. Returns a caution if
    the module is too slow for it.
    """
    before, steps = random_state(), tried.steps
    averages = mean and point.workers > 1 and not synchronous
    if point.kind == "virtual" and point.workers > 1:
        steps = Steps(point, told, 2, data.batch)
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


def state_of(module: LightningModule, *, clone: bool = True) -> dict[str, Tensor]:
    """Return all parameters and buffers by name; copies, or as they are."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: each.detach().clone() if clone else each.detach() for name, each in named}


def trained_weights(trainer: Trainer) -> set[int]:
    """Return the identities of the parameters to which the optimizers give other values."""
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    return {id(each) for group in groups for each in group["params"] if each.requires_grad}


def same(before: Tensor, now: Tensor) -> bool:
    """Return True for tensors of equal values; NaN, as of a module that diverges, equals itself."""
    if torch.equal(before, now):
        return True
    real = before.shape == now.shape and before.is_floating_point()
    return real and torch.allclose(before, now, rtol=0, atol=0, equal_nan=True)


class _PlainNorm(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        pass


def without_gpu(module: nn.Module) -> Sequence[tuple[nn.Module, type]]:
    """Let a CPU compute layers of SyncBatchNorm; return these with their classes."""
    layers = [each for each in module.modules() if isinstance(each, nn.SyncBatchNorm)]
    kinds: list[tuple[nn.Module, type]] = [(each, type(each)) for each in layers]
    for each in layers:
        each.__class__ = _PlainNorm  # pyright: ignore[reportAttributeAccessIssue]
    return kinds
