"""Checkpoints of a run: the moments at which its processes pause, and the files that they write.

Where servers grant steps, server 0 decides that a checkpoint is due, and its answers stop the
workers: one that servers hold back must not wait for one that has stopped. All other workers look
when they have reached, together, a number of samples, as they keep snapshots. The first one there
decides for all whether they pause, and after how many samples they look again.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.clock.reports import TrainingClock
from paceline.clock.training_strategy import AbstractTrainingStrategy
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import draw_number, numbers_drawn, run_store, worker_index
from paceline.record.checkpoint import complete, folder_of, latest
from paceline.record.point import Point
from paceline.run.asked import when_asked
from paceline.scheme.counts import Counts

_LOOK_SECONDS = 0.25  # about the time between two looks whether a checkpoint is due
_POLL_SECONDS = 0.001  # of workers that have stopped, for those that have not
_NO_MORE = "checkpoints: no more"


class CheckpointFiles:
    """Checkpoint files of one process; each of the processes of a run has its own.

    `record`: folder of the partial record. `name`: name of the process. `before`: the file from
    which the process resumes; None if it begins anew. `written`: number of checkpoints since the
    beginning of the run. `resumes`: how often the run was resumed.
    """

    def __init__(self, point: Point, record: Path, name: str) -> None:
        self.seconds = point.training.checkpoint_seconds
        self.look_seconds = min(_LOOK_SECONDS, self.seconds or _LOOK_SECONDS)
        self._record, self._name, self._num_processes = record, name, sum(point.num_processes)
        before = latest(record)
        self.before = folder_of(record, before.number) / f"{name}.ckpt" if before else None
        self.written = before.number if before else 0
        self.resumes = before.resumes + 1 if before else 0
        self.begin()

    def begin(self) -> None:
        """Count the seconds to the next checkpoint from now on."""
        self._at = self._looked_at = time.perf_counter()
        self._asked_at = when_asked(self._record)

    def is_due(self) -> bool:
        """Return True if it is time for a checkpoint, or if one was asked for since the last."""
        now = time.perf_counter()
        if self.seconds is None or now - self._looked_at < self.look_seconds:
            return False
        self._looked_at = now
        due = now - self._at >= self.seconds or when_asked(self._record) > self._asked_at
        return due and not run_store().check([_NO_MORE])

    def end(self) -> None:
        """Let nobody wait for a checkpoint any more: a worker was lost, or has no step left."""
        run_store().set(_NO_MORE, "")

    def write(self, save: Callable[[Path], object], samples: int) -> None:
        """Write this process's file of the next checkpoint by calling `save`.

        The last process of the run that writes its file marks the checkpoint as complete.

        `samples`: number of samples of all workers, as far as this process knows.
        """
        self.written += 1
        folder = folder_of(self._record, self.written)
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / f"{self._name}.ckpt")
        if draw_number(self._files) + 1 == self._num_processes:
            complete(self._record, self.written, samples, self.resumes)
        self.begin()

    def all_written(self) -> bool:
        """Return True if every process has written its file of this process's last checkpoint."""
        return numbers_drawn(self._files) == self._num_processes

    @property
    def _files(self) -> str:
        return f"files of checkpoint {self.written}"


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


class Pauses:
    """Pauses of all workers between two steps, from the view of one of them. After a worker has
    ended or was lost, there are no more. `timeout_seconds`: longest wait for others.
    """

    def __init__(
        self, counts: Counts, strategy: AbstractWallStrategy, timeout_seconds: float
    ) -> None:
        self._counts, self._strategy = counts, strategy
        self._store, self._timeout_seconds = run_store(), timeout_seconds
        self._looks = self._number = 0

    def begin(self) -> None:
        """Begin to count samples; the first look follows the first step."""
        self._look_at = self._samples = self._strategy.samples
        self._looked_at = time.perf_counter()

    def comes(self, files: CheckpointFiles) -> bool:
        """Return True if this worker pauses after the step that has ended."""
        if not self._counts.scheme.own_weights:
            return self._push.wire.stops
        comes = False
        while not comes and self._strategy.samples >= self._look_at:
            comes = self._look(files)
        return comes

    def _look(self, files: CheckpointFiles) -> bool:
        """Decide for all workers, or learn what the first of them has decided."""
        now, samples = time.perf_counter(), self._strategy.samples
        passed, seconds = samples - self._samples, max(now - self._looked_at, 1e-9)
        ahead = max(1, int(min(2.0, files.look_seconds / seconds) * passed))
        self._samples, self._looked_at, self._looks = samples, now, self._looks + 1
        own = f"{int(files.is_due())} {samples + ahead}"
        first = self._store.compare_set(f"checkpoints: look {self._looks}", "", own)
        comes, self._look_at = map(int, first.split())
        return bool(comes)

    def carry_out(self, write: Callable[[], None], files: CheckpointFiles) -> None:
        """Write when all workers have stopped, and wait until all processes have written, since the
        next step changes what others hold. Do nothing if a worker has ended instead. Raises
        TimeoutError.
        """
        self._number += 1
        stopped = f"checkpoints: stopped at {self._number}"
        self._store.add(stopped, 1)
        workers = self._counts.num_workers
        if not self._until(lambda: self._store.add(stopped, 0) == workers):
            return
        if self._counts.scheme.servers and worker_index() == 0:
            self._push.wire.keep()
        write()
        self._until(files.all_written)

    @property
    def _push(self) -> Any:
        return self._strategy.push

    def _until(self, all_have: Callable[[], bool]) -> bool:
        """Wait for the others; return False if a worker has ended instead."""
        deadline = time.monotonic() + self._timeout_seconds
        while not all_have():
            if self._store.check([_NO_MORE]):
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"a checkpoint is not there after {self._timeout_seconds} s")
            time.sleep(_POLL_SECONDS)
        return True


class Checkpoints(Callback):
    """Callback that writes a checkpoint every `training.checkpoint_seconds`, and on request.

    `clock`: the training clock, which is stopped while a checkpoint is written. `files`: the
    checkpoint files of this process.
    """

    def __init__(
        self,
        point: Point,
        clock: TrainingClock,
        strategy: AbstractTrainingStrategy,
        files: CheckpointFiles,
    ) -> None:
        self._clock, self._strategy, self._files = clock, strategy, files
        self._pauses: Pauses | None = None
        if files.seconds is not None and isinstance(strategy, AbstractWallStrategy):
            counts = Counts(point.scheme, point.workers)
            self._pauses = Pauses(counts, strategy, point.cluster.peer_seconds)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._files.begin()
        if self._pauses is not None:
            self._pauses.begin()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        strategy, files, pauses = self._strategy, self._files, self._pauses
        if files.seconds is None or trainer.should_stop:
            return
        if not (pauses.comes(files) if pauses else files.is_due()):
            return
        write = partial(files.write, partial(strategy.save_part, trainer), strategy.samples)
        with self._clock.stopped():
            rest()
            if pauses is None:
                return write()
            assert isinstance(strategy, AbstractWallStrategy)
            strategy.settle()
            pauses.carry_out(write, files)
        strategy.begin_anew()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._pauses is not None:
            self._files.end()
