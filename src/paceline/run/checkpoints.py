"""Checkpoints of a process that trains, by Lightning's own."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.engine.training_clock import TrainingClock
from paceline.record.checkpoint import complete, folder_of, latest
from paceline.record.point import Point
from paceline.run.asked import when_asked

_LOOK_SECONDS = 0.25  # from one look at what was asked to the next


class Checkpoints(Callback):
    """Callback that writes a checkpoint every `training.checkpoint_seconds`, and when asked.

    `record`: folder of the partial record. `clock`: stopped meanwhile. `samples()`: of all workers
    so far. `name`: of the process. `before`: file of the checkpoint from which it goes on.
    `written`, `resumes`: numbers over the whole run.
    """

    def __init__(
        self,
        point: Point,
        record: Path,
        clock: TrainingClock,
        samples: Callable[[], int],
        name: str,
    ) -> None:
        self._seconds = point.training.checkpoint_seconds
        self._record, self._clock, self._samples, self._name = record, clock, samples, name
        before = latest(record)
        self.before = folder_of(record, before.number) / f"{name}.ckpt" if before else None
        self.written = before.number if before else 0
        self.resumes = before.resumes + 1 if before else 0
        self._at = self._looked_at = time.perf_counter()
        self._asked_at = when_asked(record)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at = self._looked_at = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._seconds is not None and not trainer.should_stop and self._is_due(self._seconds):
            with self._clock.stopped():
                self._write(trainer)
            self._at = time.perf_counter()

    def _is_due(self, seconds: float) -> bool:
        now = time.perf_counter()
        if now - self._looked_at < min(_LOOK_SECONDS, seconds):
            return False
        self._looked_at, asked_before = now, self._asked_at
        self._asked_at = when_asked(self._record)
        return self._asked_at > asked_before or now - self._at >= seconds

    def _write(self, trainer: Trainer) -> None:
        self.written += 1
        folder = folder_of(self._record, self.written)
        folder.mkdir(parents=True, exist_ok=True)
        trainer.save_checkpoint(folder / f"{self._name}.ckpt", weights_only=False)
        complete(self._record, self.written, self._samples(), self.resumes)
