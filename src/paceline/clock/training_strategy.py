"""Base class of the project's Lightning strategies on both clocks."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np
import torch
from pytorch_lightning import Trainer
from torch import nn
from torch.optim import Optimizer

from paceline.clock.reports import StrategyReport
from paceline.clock.snapshot import Snapshot


class TrainerOptions(TypedDict):
    """Options of a Lightning Trainer that belong to a strategy."""

    strategy: Any
    devices: int
    plugins: list[Any]


class SizedBatches(Protocol):
    """Batches of a known number, on which a Trainer trains."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def beginning_at(self, first: int) -> Iterator[Any]: ...


# train(worker, num_batches, begin): a worker's first batches; begin() where all have met for one.
# batch(worker, n): one of them.
DrawAll = Callable[[int, int, Callable[[], None]], SizedBatches]
DrawOne = Callable[[int, int], Any]


class AbstractTrainingStrategy(ABC):
    """Strategy of one process: for one worker on the wall clock, for all on the virtual one.

    `part`: file of this process's part of a checkpoint of the run, to go on from or to write.
    """

    part: Path | None = None

    @property
    @abstractmethod
    def samples(self) -> int:
        """Samples over all workers so far, by the knowledge of this process."""

    @property
    @abstractmethod
    def held_weights(self) -> list[nn.Parameter]:
        """Parameters in the order of a snapshot's vector."""

    @abstractmethod
    def trainer_options(self) -> TrainerOptions:
        """Return the options of the Trainer that this strategy trains in."""

    @abstractmethod
    def training_batches(self, train: DrawAll, batch: DrawOne) -> SizedBatches:
        """Return the batches on which this process trains."""

    @abstractmethod
    def batches_drawn(self) -> Iterable[tuple[int, int]]:
        """Return the worker and the number of each batch that this process has trained on."""

    @abstractmethod
    def report(self, step_ends: np.ndarray, seconds_data: float) -> StrategyReport:
        """Return the observations after training, before `finish`.

        `step_ends` [steps]: real seconds of the training clock in this process. `seconds_data`:
        time spent waiting for data. On the virtual clock workers have modelled times instead.
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


class RemoteOptimizer(Optimizer):
    """Optimizer that runs the closure, then `exchange`, and has no state of its own.

    Its groups are those of `optimizer`. `zero()` clears the gradients in place, because they are
    views of the vector that is sent.
    """

    def __init__(
        self, optimizer: Optimizer, zero: Callable[[], Any], exchange: Callable[[], None]
    ) -> None:
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self.param_groups = optimizer.param_groups
        self._zero = zero
        self._exchange = exchange

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
