"""Observes one training process: its steps, its wait for batches, and its snapshots' scores."""

import bisect
import itertools
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.clock.reports import TrainingClock
from paceline.clock.snapshot import Snapshot, fill, statistics_of
from paceline.clock.training_strategy import SizedBatches, loss_of
from paceline.errors import SettingError
from paceline.exchange.liveness import rest, work
from paceline.model.score import Score, as_precise, score

LIVE_COLUMNS = ("samples", "seconds", "share", "train_loss", "images_per_second")


class Observer(Callback):
    """Callback that records when each step ended and sums the training loss.

    `steps(loss)` returns the samples of all workers after each step of a batch, and its loss. These
    are averaged between `thresholds`, ascending numbers of samples. `live` is a CSV file to which
    worker 0 appends a line about once a real second; it is None for other workers. Its seconds are
    `training_seconds(real)`, which are modelled on a virtual clock. Its `share` is the part of the
    run's samples that is done.
    """

    def __init__(
        self,
        clock: TrainingClock,
        steps: Callable[[torch.Tensor], Sequence[tuple[int, torch.Tensor]]],
        thresholds: list[int],
        *,
        live: Path | None,
        training_seconds: Callable[[float], float],
    ) -> None:
        self.step_ends = array("d")  # seconds of the training clock
        self.loss_sums: list[Any] = [0.0] * len(thresholds)
        self.loss_counts = [0] * len(thresholds)
        self._clock, self._steps, self._thresholds = clock, steps, thresholds
        self._live, self._training_seconds = live, training_seconds
        self._live_real = self._live_seconds = 0.0
        self._live_samples = 0
        if live is not None:
            live.write_text(",".join(LIVE_COLUMNS) + "\n")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: object
    ) -> None:
        seconds = self._clock.seconds()
        if outputs == {}:  # of a step that was skipped
            self.step_ends.append(seconds)
            return
        steps = self._steps(loss_of(outputs).detach())
        self.step_ends.extend([seconds] * len(steps))
        for index, group in itertools.groupby(steps, key=lambda step: self._index(step[0])):
            losses = [loss for _, loss in group]
            added = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
            self.loss_sums[index] = self.loss_sums[index] + added  # .item() would stall a GPU
            self.loss_counts[index] += len(losses)
        if self._live is not None and seconds - self._live_real >= 1 and steps:
            samples, loss = steps[-1]
            self._live_real = seconds
            self._write_live(samples, self._training_seconds(seconds), float(loss))

    # Lightning skips hooks that are not callable
    on_train_batch_start = None  # type: ignore[assignment]
    on_before_zero_grad = None  # type: ignore[assignment]
    on_before_backward = None  # type: ignore[assignment]
    on_after_backward = None  # type: ignore[assignment]
    on_before_optimizer_step = None  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        return {
            "step_ends": torch.tensor(self.step_ends, dtype=torch.float64),
            "loss_sums": list(self.loss_sums),
            "loss_counts": list(self.loss_counts),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.step_ends = array("d", state_dict["step_ends"].tolist())
        self.loss_sums, self.loss_counts = state_dict["loss_sums"], state_dict["loss_counts"]

    def losses(self) -> list[tuple[float, int]]:
        """Return (sum of the loss, number of steps) up to each threshold, from the one before."""
        sums = [float(loss_sum) for loss_sum in self.loss_sums]
        return list(zip(sums, self.loss_counts, strict=True))

    def _index(self, samples: int) -> int:
        return min(bisect.bisect_left(self._thresholds, samples), len(self._thresholds) - 1)

    def _write_live(self, samples: int, seconds: float, loss: float) -> None:
        assert self._live is not None
        passed = seconds - self._live_seconds  # virtual seconds may not advance within a round
        rate = f"{(samples - self._live_samples) / passed:.6g}" if passed else ""
        share = samples / self._thresholds[-1]
        with self._live.open("a") as file:
            file.write(f"{samples},{seconds:.3f},{share:.4f},{loss:.6g},{rate}\n")
        self._live_seconds, self._live_samples = seconds, samples


class TimedBatches:
    """Iterator over `batches` that starts `clock` just before it draws the first one.

    `waits`: True if processes wait for each other inside a step. `seconds_waiting` is the time
    spent on drawing; `drawn` is the number of batches drawn. A checkpoint keeps both, and the time
    of the clock. `epoch_ended()`: an iterator ends there, and the next one goes on. Raises
    SettingError("model") if a module has left an iterator before its end.
    """

    def __init__(self, batches: SizedBatches, clock: TrainingClock, *, waits: bool = False) -> None:
        self._batches, self._begin = batches, rest if waits else work
        self._clock, self.seconds_waiting, self.drawn = clock, 0.0, 0
        self._seconds_before = 0.0  # of the training clock, before the run was resumed
        self._source: Iterator[Any] | None = None
        self.epoch_ended: Callable[[], bool] = lambda: False
        self._is_left = False

    def check_end(self) -> None:
        """Raise SettingError("model") if the last iterator was left before its end."""
        if self._is_left and self.drawn < len(self._batches):
            message = "on_train_batch_start returned -1, and no step of a worker can be skipped"
            raise SettingError("model", message)

    @property
    def begun(self) -> bool:
        return self._source is not None

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        self.check_end()
        while self.drawn < len(self._batches) and not self.epoch_ended():
            if self._source is None:
                self._source = self._batches.beginning_at(self.drawn)
                self._clock.start(self._seconds_before)
            self._begin()
            before = time.perf_counter()
            batch = next(self._source, None)
            if batch is None:  # the virtual clock ended a run that diverged
                return
            self.seconds_waiting += time.perf_counter() - before
            self.drawn += 1
            self._begin()
            self._is_left = True
            yield batch
            self._is_left = False

    def state_dict(self) -> dict[str, float]:
        return {
            "seconds_waiting": self.seconds_waiting,
            "drawn": self.drawn,
            "seconds": self._clock.seconds(),
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.seconds_waiting, self.drawn = state["seconds_waiting"], int(state["drawn"])
        self._seconds_before = state["seconds"]


class Evaluation:
    """Loads snapshots into `module`, which maps images to logits, and scores them on `device`.

    `weights` are the module's parameters in the order of a snapshot's vector. `moving`: names of
    the parameters that are among its statistics, see `statistics_of`.
    """

    def __init__(
        self, module: Any, weights: list, device: torch.device, moving: Collection[str] = ()
    ) -> None:
        self._module = module.to(device)
        self._weights = weights
        self._statistics = statistics_of(module, moving)  # after `to`, which replaces buffers
        self._device = device

    def load(self, weights: torch.Tensor, statistics: torch.Tensor) -> None:
        fill(self._weights, weights)
        fill(self._statistics, statistics)

    def scores(self, snapshot: Snapshot, batches: Callable[[], Iterable]) -> list[Score]:
        """Score the weights of `snapshot`, and then their moving average if there is one.

        `batches` returns pairs of images [N, C, H, W] and labels [N].
        """
        scores = []
        for weights in snapshot.weights:
            self.load(weights, snapshot.statistics)
            given = ((as_precise(x, self._weights[0]), labels) for x, labels in batches())
            scores.append(score(self._module, given, self._device))
        return scores
