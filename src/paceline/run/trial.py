"""Lets a copy of a user's module take a few steps before a run, and notes what it does."""

import contextlib
import copy
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.utilities.distributed import _all_gather_ddp_if_available
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.training_strategy import keep_metrics_apart
from paceline.clock.virtual.dropout_streams import DropoutStreams
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.data.batches import LazyBatches
from paceline.errors import SettingError, refused
from paceline.record.point import Point
from paceline.run.quiet import quiet_trainer
from paceline.run.run_trainer import RunTrainer, Told

_SEED = 46_341


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
        masks = [x.clone() for x in pl_module.buffers() if x.dtype == torch.bool]
        self.masks_change |= self.num_batches > 1 and not all(map(torch.equal, masks, self._masks))
        self._masks = masks

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
