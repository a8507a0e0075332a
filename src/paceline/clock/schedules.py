"""Options and schedulers of the module's optimizer, which count the batches of all workers."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.utilities.types import LRSchedulerConfig
from torch import Tensor
from torch.optim import Optimizer

from paceline.clock.flat_optimizer import slots
from paceline.clock.run_spec import RunSpec
from paceline.errors import SettingError

_NEVER = 2**62  # batches


class LiveOptions:
    """Numbers among the options of all groups of an optimizer, in order: rates, momenta and so on.
    A gradient is applied with the numbers that its worker's optimizer has in the step in which the
    gradient was computed.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._groups, self._num_groups = optimizer.param_groups, len(optimizer.param_groups)
        self._slots = [(group, key, place) for group in self._groups for key, place in slots(group)]
        weights = [weight for group in self._groups for weight in group["params"]]
        self._frozen = [weight for weight in weights if not weight.requires_grad]
        self.first = self.read()

    def read(self) -> list[float]:
        """Return the present numbers. Raises SettingError("model") if the optimizer has received
        weights during training, which servers do not know.
        """
        if len(self._groups) != self._num_groups or any(w.requires_grad for w in self._frozen):
            message = "the optimizer received weights during training, as by callbacks; "
            raise SettingError("model", message + "it must train all of them from the start")
        return [
            float(group[key] if place is None else group[key][place])
            for group, key, place in self._slots
        ]

    def write(self, numbers: Sequence[float]) -> None:
        for (group, key, place), number in zip(self._slots, numbers, strict=True):
            held = group[key]
            if isinstance(held, Tensor):
                held.fill_(number)
            elif place is None:
                group[key] = number
            else:
                group[key] = type(held)((*held[:place], number, *held[place + 1 :]))


class Schedules:
    """Schedulers that Lightning would step after each batch of one process.

    Here a step of a scheduler is a batch of any worker, so that a schedule is the same function of
    samples for any number of workers. Schedulers by epoch take a step after the run's
    `epoch_batches`; without these they are left to Lightning's loop, like those that need a metric.
    Raises SettingError for schedulers in addition to a schedule of the run, and for those that need
    a metric in a run that counts epochs itself and has metrics only at its end.
    """

    def __init__(
        self, configs: Sequence[LRSchedulerConfig], options: LiveOptions, run: RunSpec
    ) -> None:
        rate, epoch_batches = run.learning_rate, run.epoch_batches
        if configs and rate and (rate.rule, rate.schedule) != ("none", "constant"):
            raise SettingError("training.schedule", "the module has its own scheduler")
        if epoch_batches and any(config.reduce_on_plateau for config in configs):
            message = "its scheduler needs a validation metric, which a run has only at its end"
            raise SettingError("model", message)
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
        """Give the optimizer's groups the options that follow after so many batches. The number may
        be smaller than before, since one worker may know less than another.
        """
        if not self._periods:
            return
        size = len(self._written)
        if self._options.read() == self._written:  # else somebody changed them: go on from there
            self._options.write(self._numbers[-size:].tolist())
        while (following := len(self._numbers) // size) <= batches:
            for scheduler, period in self._periods:
                for _ in range(int(following / period) - int((following - 1) / period)):
                    scheduler.step()
            self._numbers.extend(self._options.read())
        self._written = self._numbers[size * batches : size * (batches + 1)].tolist()
        self._options.write(self._written)

    def state(self) -> dict[str, list[float]]:
        """Return the state besides that of the schedulers themselves, which Lightning saves."""
        numbers = self._numbers.tolist()
        return {"numbers": numbers, "written": self._written, "held": self._options.read()}

    def load_state(self, state: Mapping[str, list[float]]) -> None:
        self._numbers, self._written = array("d", state["numbers"]), state["written"]
        self._options.write(state["held"])
