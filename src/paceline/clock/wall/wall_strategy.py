"""Base class of strategies on real processes, one or several of which are one worker."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch.distributed as dist
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_only
from torch.optim import Optimizer

from paceline.clock.reports import StrategyReport, TrainingClock, WorkerReport
from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import Schedules
from paceline.clock.snapshot import Snapshot, weights_digest
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.training_strategy import (
    AbstractTrainingStrategy,
    SizedBatches,
    TrainingData,
    random_state,
    set_random_state,
)
from paceline.clock.wall.wall_links import PushLink
from paceline.exchange.process_group import join, worker_index
from paceline.scheme.audit import Averaged
from paceline.timing.step_times import Pace


class AbstractWallStrategy(AbstractTrainingStrategy):
    """Strategy of one worker, or of one process of a split worker.

    `counted`: number of workers that really take part in the run. `num_batches`: largest number of
    batches that this worker may draw. `num_steps`: steps of this worker so far. `step_numbers`:
    run-wide numbers of its steps and of the next one; empty if the answers of servers decide
    whether a step follows. `seconds_communicating`: time of communication, including waiting.
    `averages`: this worker's pairwise means, in order. `push`: link to servers, or None.
    """

    counted: int = 0
    diverged: bool = False
    num_steps: int = 0
    step_numbers: Sequence[int] = ()
    seconds_communicating: float = 0.0
    averages: Sequence[Averaged] = ()
    pace: Pace | None = None
    split: SplitWorker | None = None
    push: PushLink | None = None
    _bytes_before: Sequence[int] = (0, 0)  # of a run that was resumed: sent, received
    _random_before: dict[str, Any] | None = None
    _schedules: Schedules
    _schedules_before: Mapping[str, list[float]] | None = None
    _rank: int = 0

    def prepare(
        self,
        run: RunSpec,
        *,
        clock: TrainingClock | None = None,
        pace: Pace | None = None,
        split: SplitWorker | None = None,
    ) -> None:
        """Tell the strategy which run it trains; call it before training. `run.num_steps` must be
        set. `clock`: training clock for the times of snapshots. `pace`: emulates the worker's
        accelerator. `split`: this process's part of a split worker; None for a whole worker.
        """
        self.run, self.pace, self.split = run, pace, split
        self.num_batches = (run.num_steps or 0) // run.num_workers
        self._clock, self._snapshots = clock or TrainingClock(), list[Snapshot]()

    @property
    def updates(self) -> int:
        """Number of updates of this worker's weights."""
        return self.num_steps

    @property
    def samples(self) -> int:
        return self.run.samples_at(self.num_steps * self.run.num_workers)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes that this process has sent to other workers and servers, and received from them."""
        return (0, 0)

    @property
    def is_global_zero(self) -> bool:
        """True in the first process of the run, the only one in which callbacks write files."""
        return self._rank == 0

    def setup_environment(self) -> None:
        """Join the other processes before Lightning makes its own group."""
        join(self.run.timeout_seconds, self.root_device.type)
        self._rank = dist.get_rank()
        # by which loggers write; the rank that Lightning knows is 0 in each
        rank_zero_only.rank = self._rank  # pyright: ignore[reportFunctionMemberAccess]
        super().setup_environment()

    def trained_module(self) -> LightningModule:
        """Return the module that is being trained."""
        assert self.lightning_module is not None
        return self.lightning_module

    @property
    def _trainer(self) -> Trainer:
        return self.trained_module().trainer

    @property
    def whole_module(self) -> LightningModule:
        """Module with all weights of the worker, in its first process."""
        return self.trained_module() if self.split is None else self.split.whole

    def wait_for_pace(self) -> None:
        """Sleep until the emulated step has ended, later by its exchanges of activations."""
        if self.pace is not None:
            self.pace.wait(self.split.take_seconds() if self.split else 0.0)

    def begin_anew(self) -> None:
        """Start the emulated step after an interruption, such as a meeting of all workers."""
        if self.pace is not None:
            self.pace.begin()

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """True for a part of a run: the module has its precision only after setup."""
        return self.part is not None

    @property
    def bytes_so_far(self) -> Sequence[int]:
        """Bytes sent and received, as far as they are counted during training."""
        return self.bytes_exchanged

    def state(self) -> dict[str, Any]:
        """Return the state of this process for a checkpoint between two steps."""
        sent_and_received = zip(self._bytes_before, self.bytes_so_far, strict=True)
        return {
            "num_steps": self.num_steps,
            "bytes": [sum(each) for each in sent_and_received],
            "pace": self.pace.state() if self.pace else None,
            "schedules": self._schedules.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another process with the same place in the run."""
        self.num_steps, self._bytes_before = state["num_steps"], state["bytes"]
        self._schedules_before = state["schedules"]
        if self.pace is not None:
            self.pace.load_state(state["pace"])

    def _resume_schedules(self) -> None:
        """Continue the schedules of a checkpoint, after Lightning has loaded their schedulers."""
        if self._schedules_before is not None:
            self._schedules.load_state(self._schedules_before)
            self._schedules_before = None

    def settle(self) -> None:
        """Wait until the communication that runs beside this worker's steps has ended."""

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return {
            "optimizer": super().optimizer_state(optimizer),  # pyright: ignore[reportUnknownMemberType]
            "own": self.state(),
            "random": random_state(),
        }

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        (state,) = checkpoint["optimizer_states"]
        super().load_optimizer_state_dict({"optimizer_states": [state["optimizer"]]})
        self.load_state(state["own"])
        if self.part is not None:  # else it is the first worker's, for all
            self._random_before = state["random"]

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None
    ) -> None:
        """Write a file as every strategy of Lightning does, or this process's part of one."""
        if self.is_global_zero or filepath == self.part:
            io = self.checkpoint_io
            io.save_checkpoint(checkpoint, filepath, storage_options=storage_options)

    def on_train_start(self) -> None:
        super().on_train_start()
        if self._random_before is not None:
            set_random_state(self._random_before)
            self._random_before = None

    def training_batches(self, data: TrainingData) -> SizedBatches:
        return data.train(worker_index(), self.num_batches, self.begin_anew)

    def batches_drawn(self) -> Iterable[tuple[int, int]]:
        return ((worker_index(), n) for n in range(self.num_steps))

    def report(self, step_ends: np.ndarray, seconds_data: float) -> StrategyReport:
        sent, received = map(sum, zip(self._bytes_before, self.bytes_exchanged, strict=True))
        inside, activations, seconds_of_activations = (0, 0), (0, 0), 0.0
        if self.split is not None:
            group = self.split.group
            inside, activations = self.split.bytes_exchanged, (group.num_bytes,) * 2
            seconds_of_activations = group.seconds
        worker = WorkerReport(
            worker=worker_index(),
            steps=self.num_steps,
            step_ends=step_ends,
            weights_digest=weights_digest(self.whole_module.parameters()),
            seconds_data=seconds_data,
            seconds_communicating=self.seconds_communicating + seconds_of_activations,
            bytes_sent=sent + inside[0],
            bytes_received=received + inside[1],
            activation_bytes_sent=activations[0],
            activation_bytes_received=activations[1],
            late_steps=self.pace.late_steps if self.pace else 0,
            step_numbers=self.step_numbers,
            averages=self.averages,
        )
        return StrategyReport(self.counted, self.updates, self.diverged, [worker])
