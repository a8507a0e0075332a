"""Base class of the project's Lightning strategies on both clocks, and what they support."""

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import (
    GradientAccumulationScheduler,
    StochasticWeightAveraging,
    WeightAveraging,
)
from pytorch_lightning.strategies import Strategy
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric

from paceline.clock.flat_optimizer import ELEMENTWISE
from paceline.clock.reports import StrategyReport, check_served_precision
from paceline.clock.run_spec import RunSpec
from paceline.clock.snapshot import Snapshot
from paceline.errors import SettingError
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme

_CHANGING = (StochasticWeightAveraging, GradientAccumulationScheduler, WeightAveraging)


class SizedBatches(Protocol):
    """Batches of a known number, on which a Trainer trains."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def beginning_at(self, first: int) -> Iterator[Any]: ...


class TrainingData(Protocol):
    """Batches of a run. `train`: the first ones of a worker, with a call of `begin` where all
    workers have met for one. `batch`: one of a worker. `together`: several by worker and number,
    stacked, on a device; or None.
    """

    def train(
        self, worker: int, num_batches: int, begin: Callable[[], None], /
    ) -> SizedBatches: ...
    def batch(self, worker: int, n: int, /) -> Any: ...
    def together(self, numbers: Sequence[tuple[int, int]], device: torch.device, /) -> Any: ...


NO_SKIPPING = (
    "which skips a step, and only a single real worker with scheme=sync_allreduce can skip one: "
    "return a loss with gradients of zero, as sum(0 * each.sum() for each in self.parameters()) has"
)


class AbstractTrainingStrategy(Strategy, ABC):
    """Strategy of one process: for one worker on the wall clock, for all on the virtual one.
    `part`: file of this process's part of a checkpoint of the run, to go on from or to write.
    `moving`: names of parameters of the module that change although no optimizer holds them; each
    worker has its own, and they are treated as BatchNorm statistics are. `skips_steps`: True if a
    training_step may return None, by which a Trainer skips a step.
    """

    scheme: AbstractScheme
    run: RunSpec
    part: Path | None = None
    moving: Collection[str] = ()
    skips_steps: bool = False

    @property
    def known_batches(self) -> int:
        """Batches of all workers before the next step, by the knowledge of its worker."""
        return self.samples // self.run.batch_size

    def samples_before_next(self) -> int:
        """Return the samples over all workers when the next batch is drawn."""
        return self.samples

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a loss. Raises SettingError("model") for None where no step can be skipped."""
        output = super().training_step(*args, **kwargs)
        if output is None and not self.skips_steps:
            raise SettingError("model", f"training_step returned None, {NO_SKIPPING}")
        return output

    def all_gather(self, *args: Any, **kwargs: Any) -> Any:
        if self.run.num_workers == 1:
            return super().all_gather(*args, **kwargs)
        raise SettingError("model", "all_gather: workers meet by the scheme only, on this clock")

    @property
    @abstractmethod
    def samples(self) -> int:
        """Samples over all workers so far, by the knowledge of this process."""

    @property
    @abstractmethod
    def held_weights(self) -> list[nn.Parameter]:
        """Parameters in the order of a snapshot's vector."""

    def trainer_options(self) -> dict[str, Any]:
        """Return the options of the Trainer that this strategy trains in."""
        return {"strategy": self, "devices": 1, "plugins": [LightningEnvironment()]}

    @abstractmethod
    def training_batches(self, data: TrainingData) -> SizedBatches:
        """Return the batches on which this process trains."""

    def steps_of_batch(self, loss: Tensor) -> Sequence[tuple[int, Tensor]]:
        """Return what the Trainer's last batch has completed: the samples over all workers after
        each step, and its loss. `loss`: loss of the batch.
        """
        return [(self.samples, loss)]

    @abstractmethod
    def batches_drawn(self) -> Iterable[tuple[int, int]]:
        """Return the worker and the number of each batch that this process has trained on."""

    @abstractmethod
    def report(self, step_ends: np.ndarray, seconds_data: float) -> StrategyReport:
        """Return what was observed during training; called before `finish`. `step_ends` [steps]:
        real seconds of the training clock in this process. `seconds_data`: time spent waiting for
        data. On the virtual clock workers have modelled times instead.
        """

    def save_part(self, trainer: Trainer, path: Path) -> None:
        """Write this process's part of a checkpoint of the run, by Lightning."""
        self.part = path
        trainer.save_checkpoint(path, weights_only=False)

    @abstractmethod
    def finish(self) -> list[Snapshot]:
        """Wait for the end of all workers; return the snapshots that this process evaluates."""

    def seconds(self, real: float) -> float:
        """Return the present seconds of the training clock; `real` are those of a real one."""
        return real

    def real_seconds(self, snapshots: Sequence[Snapshot]) -> list[float]:
        """Return the real seconds of the training clock at each snapshot."""
        return [snapshot.seconds for snapshot in snapshots]

    def check_honoured(self, trainer: Trainer, by: str, *, again: bool) -> None:
        """Raise SettingError for an unsupported option of the module or its Trainer. `by`: name of
        what applies updates, for the message. `again`: the strategy has trained before.
        """
        if again:
            message = "it has trained, and its run has ended; a new one goes on from the weights"
            raise SettingError("strategy", message)
        check_served_precision(trainer.precision, by)
        check_automatic(trainer.lightning_module, by)
        check_one_optimizer(self.optimizers, by)
        if trainer.accumulate_grad_batches != 1:
            message = f"each batch is a step to {by}; use a larger batch_size"
            raise SettingError("accumulate_grad_batches", message)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, _CHANGING):
                name = type(callback).__name__
                raise SettingError("callbacks", f"{name} changes steps or weights, which {by} owns")
        counts = Counts(self.scheme, self.run.num_workers)
        counts.check_clipping(trainer.gradient_clip_val)
        groups = self.optimizers[0].param_groups
        dtypes = {weight.dtype for group in groups for weight in group["params"]}
        if len(dtypes) != 1:
            raise SettingError("model", f"weights of one dtype are needed, not of {len(dtypes)}")


def loss_of(output: Any) -> Tensor:
    """Return the loss in what a training step has returned."""
    return cast("Any", output)["loss"] if isinstance(output, Mapping) else output


def keep_metrics_apart(module: nn.Module) -> None:
    """Let metrics be those of this process, which meets no other for them."""
    for each in module.modules():
        if isinstance(each, Metric):
            each.distributed_available_fn = lambda: False


def random_state() -> dict[str, Any]:
    """Return the state of the generators of torch, numpy and Python, as tensors and lists."""
    name, words, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [name, np.asarray(words).tolist(), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Go on with the random numbers from a state that `random_state` has returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, words, *rest = state["numpy"]
    np.random.set_state((name, np.array(words, dtype=np.uint32), *rest))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


def seed_generators(seed: int) -> None:
    """Seed the generators of torch, numpy and Python with a number of any size."""
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    random.seed(seed)
    np.random.seed(seed % 2**32)


class RemoteOptimizer(Optimizer):
    """Optimizer that runs the closure, then `exchange`, and has no state of its own. Its groups are
    those of `optimizer`, and `name` is the name of its class. `zero()` clears the gradients in
    place, because they are views of the vector that is sent.
    """

    def __init__(
        self, optimizer: Optimizer, zero: Callable[[], Any], exchange: Callable[[], None]
    ) -> None:
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self.param_groups = optimizer.param_groups
        self.name = type(optimizer).__name__
        self._zero, self._exchange = zero, exchange

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the options of the groups, which stay those of `optimizer`."""
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update((key, value) for key, value in saved.items() if key != "params")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._zero()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = closure() if closure is not None else None
        self._exchange()
        return loss


def check_automatic(module: LightningModule, by: str) -> None:
    """Raise SettingError("model") for manual optimization, in which steps are the module's own."""
    if not module.automatic_optimization:
        raise SettingError("model", f"manual optimization cannot be driven by {by}")


def check_one_optimizer(optimizers: list[Optimizer], by: str, *, of_slices: bool = False) -> None:
    """Raise SettingError("model") for several optimizers, for one whose `step` needs a closure, and
    for one that may need whole tensors where it gets slices of them.
    """
    kinds = [type(optimizer) for optimizer in optimizers]
    closures = [inspect.signature(kind.step).parameters.get("closure") for kind in kinds]
    needs_closure = any(each and each.default is inspect.Parameter.empty for each in closures)
    if of_slices and not (len(kinds) == 1 and kinds[0] in ELEMENTWISE):
        wanted = "an optimizer of torch that treats each weight by itself"
    elif len(kinds) != 1 or needs_closure:
        wanted = "one optimizer that takes steps by gradients alone"
    else:
        return
    names = ", ".join(kind.__name__ for kind in kinds) or "none"
    raise SettingError("model", f"{by} applies {wanted}, not {names}")
