"""Options of the module's optimizer, which callbacks and schedulers change while it trains."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from paceline.clock.segment import slots
from paceline.errors import SettingError


class LiveOptions:
    """Numbers of all groups of an optimizer, in order: its rates, momenta and so on.

    A gradient is applied with those that its worker has when it takes the step.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._groups = optimizer.param_groups
        self._num_groups = len(self._groups)
        self._slots = [(group, key, place) for group in self._groups for key, place in slots(group)]
        weights = [weight for group in self._groups for weight in group["params"]]
        self._frozen = [weight for weight in weights if not weight.requires_grad]
        self.first = self.read()

    def read(self) -> list[float]:
        """Return the present numbers.

        Raises SettingError("model") if the optimizer has got weights that nobody else knows of.
        """
        if len(self._groups) != self._num_groups or any(w.requires_grad for w in self._frozen):
            message = "the optimizer got weights while it trained, as finetuning callbacks add; "
            raise SettingError("model", message + "it must train all of them from the first")
        return [_number(group[key], place) for group, key, place in self._slots]

    def write(self, numbers: Sequence[float]) -> None:
        """Replace the numbers in the groups."""
        for (group, key, place), number in zip(self._slots, numbers, strict=True):
            held = group[key]
            if isinstance(held, Tensor):
                held.fill_(number)
            elif place is None:
                group[key] = number
            else:
                group[key] = type(held)((*held[:place], number, *held[place + 1 :]))


def _number(option: Any, place: int | None) -> float:
    return float(option if place is None else option[place])
