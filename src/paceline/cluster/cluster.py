"""Where the processes of a run are, and on which clock they train."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from paceline.cluster.accelerator import Device, choose
from paceline.engine.assignment import Assignment
from paceline.engine.training_clock import TrainingClock
from paceline.scheme.rule import AbstractScheme
from paceline.settings import NotNegative, Positive, Whole, settings
from paceline.timing.pacing import AbstractPacing

if TYPE_CHECKING:
    from paceline.engine.training_strategy import AbstractTrainingStrategy

Kind = Literal["measured", "paced", "virtual"]


@dataclass(frozen=True)
class Task:
    """What each process of a run does: call `target`, written module:function, with `arguments`.

    The first `num_workers` processes train, the others serve. `log_folder`: for what they print.
    """

    target: str
    arguments: tuple[Any, ...]
    num_workers: int
    num_servers: int
    log_folder: Path


@settings("cluster")
class AbstractCluster(AbstractPacing, ABC):
    """A kind of cluster: one file in this room, and one or more in conf/cluster.

    `accelerator`: what computes gradients. `threads_per_worker`: of a CPU. `timeout_seconds`: the
    silence of a peer after which a run has failed. `server_seconds`: what a server takes for a
    push. The fields of AbstractPacing: the accelerator that is emulated.
    """

    accelerator: Literal["auto", "cpu", "gpu"]
    threads_per_worker: Whole
    timeout_seconds: Positive
    server_seconds: NotNegative

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What the numbers of a run on this cluster are."""

    @abstractmethod
    def run(self, task: Task) -> list[Any]:
        """Run the processes of `task`; return what each returned, by rank, workers first.

        A worker that died while its servers went on is a LostWorker in the list. Raises
        ProcessFailure for the first process that failed, or SettingError where a setting was why.
        """

    @abstractmethod
    def num_processes(self, scheme: AbstractScheme, num_workers: int) -> tuple[int, int]:
        """Return how many processes train, and how many serve."""

    @abstractmethod
    def strategy(
        self,
        scheme: AbstractScheme,
        assignment: Assignment,
        device: torch.device,
        clock: TrainingClock,
    ) -> "AbstractTrainingStrategy":
        """Make the Lightning strategy of a process that trains, which has joined the others.

        `clock`: the training clock of the process, which is real on every cluster.
        """

    @abstractmethod
    def carried_out_by_ddp(self, scheme: AbstractScheme) -> bool:
        """Tell whether Lightning's DDP stands in for the rule."""

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        """Raise SettingError for a scheme that this cluster cannot carry out."""
        self.device(scheme, num_workers)

    def device(self, scheme: AbstractScheme, num_workers: int) -> Device:
        """Return what all workers compute on. Raises SettingError for too few GPUs."""
        num_training, _ = self.num_processes(scheme, num_workers)
        return choose(self.accelerator, num_training)
