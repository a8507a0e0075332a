"""Compares steps of a user's module on the virtual clock with those of plain Trainers: whatever it
does, it must train as it would without Paceline.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.training_strategy import (
    keep_metrics_apart,
    random_state,
    seed_generators,
    set_random_state,
)
from paceline.clock.virtual.dropout_streams import DropoutStreams
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.data.batches import LazyBatches
from paceline.errors import SettingError, first_line, refused
from paceline.record.point import Point
from paceline.run.lightning_contract import HOOKS
from paceline.run.placed_data import PlacedData
from paceline.run.quiet import quiet_trainer
from paceline.run.run_trainer import RunTrainer, Told
from paceline.scheme.independent import Independent
from paceline.scheme.sync_allreduce import SyncAllReduce

_SEED = 46_341
_LARGE = 2.0**20  # factor of a gradient, without rounding, to exceed any limit of a hook
# rounding, as a share of the largest gradient or update, by the precision of the run
_ROUNDING = {"64-true": 1e-9, "32-true": 1e-3}
_ROUNDING_OF_HALF = 0.1


class Steps:
    """Steps of `workers` workers: two epochs of few batches, the second of which a module is told
    to be the last one of the run, since it may do something else there. `draw(worker, n)`: a batch.
    `factor`: of all gradients, before hooks of the module see them.
    """

    def __init__(
        self,
        point: Point,
        told: Told,
        workers: int,
        draw: Callable[[int, int], Any],
        factor: float = 1.0,
    ) -> None:
        self.point, self.told, self.workers, self.factor = point, told, workers, factor
        steps, size = max(1, told.num_steps // workers), point.batch_size
        self.epochs, self.length = min(2, steps), max(1, min(2, steps // 2))
        seed_generators(torch.initial_seed() + _SEED)  # as training draws no batch
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
    """Lightning's own strategy of one CPU, for one of the workers of `steps`: its dropout draws
    what it draws in a run, and its schedulers count the batches of all workers.

    `num_steps`: steps that the optimizer took. Also, if trained weights changed between two of them
    (`moved`), if a step had no loss (`skipped`), and if a gradient is the sum of several backward
    passes (`divided`).
    """

    def __init__(self, steps: Steps, worker: int) -> None:
        super().__init__(device=torch.device("cpu"))  # pyright: ignore[reportUnknownMemberType]
        self._steps, self._worker, self._drawn = steps, worker, 0
        self.global_rank = worker if steps.workers > 1 else 0
        self.num_steps, self._passes = 0, 0
        self.moved = self.skipped = self.divided = False
        self._after: list[tuple[Tensor, Tensor]] = []  # trained weights after the last step

    def batches(self, draw: Callable[[int, int], Any], size: int, length: int) -> Iterator[Any]:
        for self._drawn in range(length):
            if self._steps.workers > 1:
                self._schedules.set(self.known_batches)
            yield draw(self._worker, self._drawn)

    @property
    def known_batches(self) -> int:
        return self._steps.workers * self.num_steps

    def samples_before_next(self) -> int:
        return 0

    def on_train_start(self) -> None:
        super().on_train_start()
        module: Any = self.lightning_module
        self._streams = DropoutStreams(module, self._steps.point.seed, self.root_device)
        if self._steps.workers > 1:
            configs, options = module.trainer.lr_scheduler_configs, LiveOptions(self.optimizers[0])
            self._schedules = Schedules(configs, options, self._steps.run)
        weight: Any = next((each for each in module.parameters() if each.requires_grad), None)
        if weight is not None:
            weight.register_post_accumulate_grad_hook(self._note_pass)

    def _note_pass(self, weight: Tensor) -> None:
        self._passes += 1
        self.divided |= self._passes > 1

    def pre_backward(self, closure_loss: Tensor) -> None:
        super().pre_backward(closure_loss)
        self._passes = 0

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self._streams.drawing(self._worker, self._drawn):
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


class _Seen(NamedTuple):
    """State of a module before a step of a worker; its gradients and the options of its optimizer,
    each time that they are there.
    """

    state: dict[str, Tensor]
    gradients: list[dict[str, Tensor]]
    options: list[list[float]]


class Trial(Callback):
    """Lets a copy of a module take `steps` by `strategy`.

    If steps have been taken `beside`, each step begins with the weights and takes the gradients of
    those, so that rounding does not add up: the mean over all workers if `mean`. Raises
    SettingError("model") where they differ. Random numbers of a step depend on its worker and
    number alone; `seeds` is True if the module seeds the generators.
    """

    def __init__(
        self,
        module: LightningModule,
        steps: Steps,
        strategy: PlainStrategy | VirtualStrategy,
        beside: "Trial | None" = None,
        *,
        mean: bool = False,
    ) -> None:
        with refused("model", f"{type(module).__name__} cannot be copied"):
            self.module = copy.deepcopy(module)
            without_gpu(self.module)
        keep_metrics_apart(self.module)
        self.strategy, self._steps, self._beside, self._mean = strategy, steps, beside, mean
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._at, self._seed, self.seeds = (0, 0), _SEED, False
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
        self.trainer, trainer.told = trainer, steps.told
        trainer.batches = lambda: steps.told_batches(strategy.known_batches)

    def fit(self) -> None:
        steps, strategy = self._steps, self.strategy
        length = steps.length * (1 if isinstance(strategy, PlainStrategy) else steps.workers)
        size = steps.point.batch_size
        drawn = iter(strategy.batches(self._draw, size, steps.epochs * length))

        def epoch(first: int) -> Iterator[Any]:
            for _ in range(first, length):
                yield next(drawn)
            strategy.samples_before_next()  # which ends the step before, as in a run

        self._reseed()
        self.trainer.fit(self.module, LazyBatches(length, epoch))

    def _draw(self, worker: int, n: int) -> Any:
        self._at = worker, n
        return self._steps.batch(worker, n)

    def _reseed(self) -> None:
        worker, n = self._at
        self._seed = _SEED + 1000 * n + worker
        seed_generators(self._seed)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch > 0:
            trainer.fit_loop.epoch_progress.current.completed = self._steps.told.num_epochs - 1

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        (worker, n), state = self._at, state_of(pl_module)
        self.seeds |= torch.initial_seed() != self._seed
        self._reseed()
        if self._beside is not None:
            other, before = self._beside._seen[self._at].state, self._seen.get((worker, n - 1))
            held = state_of(pl_module, clone=False)
            for name, tensor in state.items():
                update = tensor - before.state[name] if before else tensor
                self._check(name, other[name], tensor, update)
                held[name].data.copy_(other[name])
        self._seen[self._at] = _Seen(state, [], [])

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        held, own = trained_weights(trainer), dict[str, Tensor]()
        weights = {name: each for name, each in pl_module.named_parameters() if id(each) in held}
        for name, weight in weights.items():
            if weight.grad is not None:
                own[name] = weight.grad.detach().clone()
        (worker, n), gradients = self._at, self._seen[self._at].gradients
        if self._beside is not None:
            workers = range(self._steps.workers) if self._mean else [worker]
            try:
                every = [self._beside._seen[each, n].gradients[len(gradients)] for each in workers]
            except (KeyError, IndexError):
                raise self._differs("the number of gradients in a step") from None
            others = every[worker if self._mean else 0]
            largest = max((each.abs().max() for each in own.values()), default=torch.zeros(()))
            for name, weight in weights.items():
                taken = [each[name] for each in every if name in each]
                if name in own or name in others:
                    none = torch.zeros_like(weight)
                    pair = others.get(name, none), own.get(name, none)
                    self._check(f"the gradient of {name}", *pair, largest)
                if name in own or any(bool(each.any()) for each in taken):
                    weight.grad = torch.stack(taken).sum(0) / len(every)
        gradients.append(own)
        for weight in weights.values() if self._steps.factor != 1 else ():
            if weight.grad is not None:
                weight.grad.mul_(self._steps.factor)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        own = self._seen[self._at].options
        if self._beside is not None:
            others = self._beside._seen[self._at].options
            if len(own) == len(others) or LiveOptions(optimizer).read() != others[len(own)]:
                raise self._differs("the rate, or another option of its optimizer,")
        own.append(LiveOptions(optimizer).read())

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.last = state_of(pl_module)

    @property
    def num_batches(self) -> int:
        return len(self._seen)

    @property
    def lacks_gradients(self) -> bool:
        """True if a step gave no gradient to a trained weight."""
        trained = [each for each in self.module.parameters() if each.requires_grad]
        every = (each for seen in self._seen.values() for each in seen.gradients)
        return any(len(each) < len(trained) for each in every)

    @property
    def reached(self) -> set[str]:
        """Names of the weights to which a loss has given a gradient."""
        every = (each for seen in self._seen.values() for each in seen.gradients)
        return {name for each in every for name, gradient in each.items() if gradient.any()}

    @property
    def moving(self) -> frozenset[str]:
        """Names of the parameters that no optimizer holds, if one of them changed."""
        first = next(iter(self._seen.values())).state
        held = trained_weights(self.trainer)
        others = {name: x for name, x in self.module.named_parameters() if id(x) not in held}
        changed = any(not same(first[name], now) for name, now in others.items())
        return frozenset(others if changed else ())

    @property
    def rates(self) -> set[tuple[float, ...]]:
        """Options of the optimizer in all steps."""
        return {tuple(each) for seen in self._seen.values() for each in seen.options}

    def _check(self, what: str, own: Tensor, plain: Tensor, scale: Tensor) -> None:
        """Raise SettingError("model") unless `own` are the values of `plain`, with the rounding of
        an operation that has results as large as `scale`.
        """
        if own.shape == plain.shape and torch.equal(own, plain):
            return
        if own.shape == plain.shape and own.is_floating_point():
            share = _ROUNDING.get(self._steps.point.training.precision, _ROUNDING_OF_HALF)
            last = 8 * torch.finfo(own.dtype).eps * plain.abs().max()
            if not (own - plain).abs().max() > share * scale.abs().max() + last:  # or diverges
                return
        raise self._differs(what)

    def _differs(self, what: str) -> SettingError:
        module: Any = self.module
        called = [hook for hook, use in HOOKS.items() if use == "called"]
        own = ", ".join(x for x in called if is_overridden(x, module, parent=LightningModule))
        message = f"{what} is not that of plain Lightning in step {self._at[1]} of a worker. "
        if self._steps.workers > 1:
            message += (
                "Workers of this clock or scheme have one module: batch_idx, rank and what is"
            )
            message += " no buffer are those of all, and gradients are averaged after its hooks. "
        return SettingError("model", f"{message}It overrides {own}")


def compare(
    module: LightningModule,
    data: PlacedData,
    told: Told,
    point: Point,
    worker: int,
    moving: frozenset[str],
    *,
    mean: bool,
) -> None:
    """Raise SettingError("model") unless steps of the virtual clock, whose workers share one copy
    of `module`, are those of plain Trainers that each have a copy of their own.

    `worker`: of this process. `moving`: names of weights that change although no optimizer holds
    them. `mean`: workers step by the mean of their gradients, as by DDP; else each by its own.
    """
    before, virtual = random_state(), point.kind == "virtual"
    workers = min(2, point.workers) if virtual or mean else 1

    def draw(each: int, n: int) -> Any:  # a real process has the data of its own worker
        return data.batch(each, n) if virtual else data.batch(worker, n * workers + each)

    for factor in (1.0, _LARGE) if workers > 1 and mean else (1.0,):
        steps = Steps(point, told, workers, draw, factor)
        strategy = VirtualStrategy(SyncAllReduce() if mean else Independent(), steps.run)
        strategy.moving = moving
        try:
            shared = Trial(module, steps, strategy)
            shared.fit()
            for each in range(workers):
                Trial(module, steps, PlainStrategy(steps, each), shared, mean=mean).fit()
        except SettingError:
            raise
        except Exception as error:  # code from outside may raise anything
            if factor > 1:
                continue  # a hook that refuses large gradients sets no limit
            message = f"it fails beside plain Lightning: {type(error).__name__}: "
            raise SettingError("model", message + first_line(error)) from error
    set_random_state(before)


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
