"""Observes the end and the loss of each step of one worker, and changes nothing."""

import bisect
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.clock.reports import TrainingClock

LIVE_COLUMNS = ("samples", "seconds", "share", "train_loss", "images_per_second")


class Observer(Callback):
    """Callback that records when each step ended and sums the training loss.

    `samples` returns the number of samples of all workers; it is called after each step.
    `thresholds` are ascending sample counts, between which losses are averaged. `live` is a CSV
    that grows by a line about once a real second, for worker 0; it is None for the others. Its
    seconds are `training_seconds(real)`: on a virtual clock, modelled ones. `share`: of all samples
    of the run.
    """

    def __init__(
        self,
        clock: TrainingClock,
        samples: Callable[[], int],
        thresholds: list[int],
        *,
        live: Path | None,
        training_seconds: Callable[[float], float],
    ) -> None:
        self.step_ends = array("d")  # seconds of the training clock
        self.loss_sums: list[Any] = [0.0] * len(thresholds)
        self.loss_counts = [0] * len(thresholds)
        self._clock = clock
        self._samples = samples
        self._thresholds = thresholds
        self._live = live
        self._training_seconds = training_seconds
        self._live_real = self._live_seconds = 0.0
        self._live_samples = 0
        if live is not None:
            live.write_text(",".join(LIVE_COLUMNS) + "\n")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: object
    ) -> None:
        seconds = self._clock.seconds()
        self.step_ends.append(seconds)
        samples = self._samples()
        index = min(bisect.bisect_left(self._thresholds, samples), len(self._thresholds) - 1)
        loss = _loss(outputs)
        self.loss_sums[index] = self.loss_sums[index] + loss  # no .item(): it would stall a GPU
        self.loss_counts[index] += 1
        if self._live is not None and seconds - self._live_real >= 1:
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

    def _write_live(self, samples: int, seconds: float, loss: float) -> None:
        assert self._live is not None
        passed = seconds - self._live_seconds  # modelled ones may stand still in a round
        rate = f"{(samples - self._live_samples) / passed:.6g}" if passed else ""
        share = samples / self._thresholds[-1]
        with self._live.open("a") as file:
            file.write(f"{samples},{seconds:.3f},{share:.4f},{loss:.6g},{rate}\n")
        self._live_seconds, self._live_samples = seconds, samples


def _loss(outputs: Any) -> torch.Tensor:
    return (outputs["loss"] if isinstance(outputs, Mapping) else outputs).detach()
