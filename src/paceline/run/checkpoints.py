"""Writes the checkpoint files of training processes (in Lightning's format) and of servers."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.clock.reports import TrainingClock
from paceline.clock.training_strategy import AbstractTrainingStrategy
from paceline.clock.wall.cuts import Cuts, end_cuts
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import draw_number
from paceline.record.checkpoint import complete, folder_of, latest
from paceline.record.point import Point
from paceline.run.asked import when_asked
from paceline.scheme.counts import Counts

_LOOK_SECONDS = 0.25  # between two looks for a request


class CheckpointFiles:
    """Checkpoint files of one process; each of the `num_processes` processes of a run has its own.

    `record`: folder of the partial record. `name`: name of the process. `before`: the file from
    which the process resumes; None if it begins anew. `written`: number of checkpoints since the
    beginning of the run. `resumes`: how often the run was resumed.
    """

    def __init__(self, record: Path, name: str, num_processes: int) -> None:
        self._record, self._name, self._num_processes = record, name, num_processes
        before = latest(record)
        self.before = folder_of(record, before.number) / f"{name}.ckpt" if before else None
        self.written = before.number if before else 0
        self.resumes = before.resumes + 1 if before else 0

    def write(self, save: Callable[[Path], object], samples: int) -> None:
        """Write this process's file of the next checkpoint by calling `save`.

        The last process of the run that writes its file marks the checkpoint as complete.

        `samples`: number of samples of all workers, as far as this process knows.
        """
        self.written += 1
        folder = folder_of(self._record, self.written)
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / f"{self._name}.ckpt")
        if draw_number(f"files of checkpoint {self.written}") + 1 == self._num_processes:
            complete(self._record, self.written, samples, self.resumes)


class ServerCheckpoints(CheckpointFiles):
    """Checkpoint files of a server."""

    def load(self) -> Mapping[str, Any] | None:
        """Return the state from which the server resumes, in the memory of the CPU; None if it
        begins anew.
        """
        if self.before is None:
            return None
        return torch.load(self.before, map_location="cpu", weights_only=True)

    def keep(self, state: Mapping[str, Any], samples: int) -> None:
        self.write(lambda path: torch.save(state, path), samples)


class Checkpoints(Callback):
    """Callback that writes a checkpoint every `training.checkpoint_seconds`, and on request.

    `record`: folder of the partial record. `clock`: the training clock, which is stopped while a
    checkpoint is written. `files`: the checkpoint files of this process. If workers are real
    processes, all of them stop to write a checkpoint.
    """

    def __init__(
        self,
        point: Point,
        record: Path,
        clock: TrainingClock,
        strategy: AbstractTrainingStrategy,
        files: CheckpointFiles,
    ) -> None:
        self._seconds, self._record = point.training.checkpoint_seconds, record
        self._look_seconds = min(_LOOK_SECONDS, self._seconds or _LOOK_SECONDS)
        self._clock, self._strategy, self._files = clock, strategy, files
        self._cuts: Cuts | None = None
        if self._seconds is not None and isinstance(strategy, AbstractWallStrategy):
            self._cuts = Cuts(
                Counts(point.scheme, point.workers),
                strategy,
                look_seconds=self._look_seconds,
                timeout_seconds=point.cluster.peer_seconds,
            )
        self._at = self._looked_at = time.perf_counter()
        self._asked_at = when_asked(record)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at = self._looked_at = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._seconds is None or trainer.should_stop:
            return
        strategy, cuts = self._strategy, self._cuts
        if not (cuts.comes(self._is_due) if cuts else self._is_due()):
            return
        with self._clock.stopped():
            rest()
            if cuts is None:
                return self._write(trainer)
            assert isinstance(strategy, AbstractWallStrategy)
            strategy.settle()
            if cuts.stop():
                self._write(trainer)
                cuts.go_on()
        strategy.begin_anew()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._cuts is not None:
            end_cuts()

    def _is_due(self) -> bool:
        assert self._seconds is not None
        now = time.perf_counter()
        if self._cuts is None and now - self._looked_at < self._look_seconds:
            return False
        self._looked_at, asked_before = now, self._asked_at
        self._asked_at = when_asked(self._record)
        return self._asked_at > asked_before or now - self._at >= self._seconds

    def _write(self, trainer: Trainer) -> None:
        save = partial(self._strategy.save_part, trainer)
        self._files.write(save, self._strategy.samples)
        self._at = time.perf_counter()
