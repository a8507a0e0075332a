"""Schedulers of the module, which count the batches of all workers together."""

from array import array
from collections.abc import Sequence
from typing import Any, TypedDict

from pytorch_lightning.utilities.types import LRSchedulerConfig

from paceline.clock.live_options import LiveOptions
from paceline.clock.run_spec import RunSpec
from paceline.errors import SettingError

_NEVER = 2**62  # batches


def check_schedulers(configs: Sequence[LRSchedulerConfig], run: RunSpec) -> None:
    """Raise SettingError for schedulers beside a schedule of the run, or without their metric.

    A run that counts epochs itself logs no metric before its end.
    """
    rate = run.learning_rate
    if configs and rate and (rate.rule, rate.schedule) != ("none", "constant"):
        raise SettingError("training.schedule", "the module brings a scheduler of its own")
    if run.epoch_samples is not None and any(config.reduce_on_plateau for config in configs):
        message = "its scheduler needs a validation metric, which a run only has at its end"
        raise SettingError("model", message)


class ScheduleState(TypedDict):
    """State of schedules: options after each number of batches, and those in the groups."""

    numbers: list[float]
    written: list[float]
    held: list[float]


class Schedules:
    """Schedulers that Lightning would step after each batch of one process.

    A step of one of them is a batch of any worker, so that a schedule is the same function of
    samples for any number of workers. `epoch_batches`: batches of all workers in a pass over the
    data, after which schedulers by epoch take a step; None leaves these, like those that need a
    metric, to Lightning's loop.
    """

    def __init__(
        self,
        configs: Sequence[LRSchedulerConfig],
        options: LiveOptions,
        epoch_batches: float | None = None,
    ) -> None:
        self._options = options
        self._periods: list[tuple[Any, float]] = []  # batches between steps
        for config in configs:
            by_batch = config.interval == "step"
            if config.reduce_on_plateau or not (by_batch or epoch_batches):
                continue
            self._periods.append(
                (config.scheduler, config.frequency * (1 if by_batch else epoch_batches or 1))
            )
            config.frequency = _NEVER  # to Lightning's loop
            # Its optimizer takes no step itself, of which torch would warn.
            config.scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]
        self._written = self._options.first
        self._numbers = array("d", self._written)  # after 0, 1, 2, ... batches

    def set(self, batches: int) -> None:
        """Give the optimizer's groups the options that follow after so many batches.

        Some of them may be fewer than before: a worker may know less than another.
        """
        if not self._periods:
            return
        size = len(self._written)
        if self._options.read() == self._written:  # else somebody changed them: go on from there
            self._options.write(self._numbers[-size:].tolist())
        while len(self._numbers) // size <= batches:
            self._advance(len(self._numbers) // size)
            self._numbers.extend(self._options.read())
        self._written = self._numbers[size * batches : size * (batches + 1)].tolist()
        self._options.write(self._written)

    def state(self) -> ScheduleState:
        """Return the state beside that of the schedulers themselves, which Lightning keeps."""
        numbers = self._numbers.tolist()
        return {"numbers": numbers, "written": self._written, "held": self._options.read()}

    def load_state(self, state: ScheduleState) -> None:
        self._numbers, self._written = array("d", state["numbers"]), state["written"]
        self._options.write(state["held"])

    def _advance(self, batches: int) -> None:
        for scheduler, period in self._periods:
            for _ in range(int(batches / period) - int((batches - 1) / period)):
                scheduler.step()
