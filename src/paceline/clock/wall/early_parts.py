"""Parts of a gradient that can leave while backward computes the others."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn

from paceline.clock.flat_weights import FlatWeights, gather_gradients
from paceline.errors import SettingError
from paceline.timing.pace import Pace
from paceline.timing.workload import part_sizes

# Called with the weight from which on the gradient of a step is complete.
Tell = Callable[[int], None]


class AbstractEarlyParts(ABC):
    """Parts of the gradients of one worker. `sizes`: numbers of weights of each, in order."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self._begins = [0, *itertools.accumulate(sizes)][:-1]

    @abstractmethod
    def begin(self, flat: FlatWeights, tell: Tell) -> None:
        """Tell from now on, for each step, which parts of `flat.gradient` are complete."""

    @abstractmethod
    def finish_backward(self) -> None:
        """Tell what is complete before the end of a step's backward, if that was not seen."""

    @abstractmethod
    def end(self) -> None:
        """Tell no more."""


class RealParts(AbstractEarlyParts):
    """Gradients of all parameters, as backward completes them.

    One that is late, or never comes, holds up those before it in the vector: so groups of the
    optimizer that do not follow the layers delay what leaves. A hook must not change a gradient
    once it is there.
    """

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        super().__init__([weight.numel() for weight in weights])
        self._weights = weights

    def begin(self, flat: FlatWeights, tell: Tell) -> None:
        self._flat, self._tell = flat, tell
        self._hooks: list[Any] = [
            weight.register_post_accumulate_grad_hook(partial(self._take, number))  # pyright: ignore[reportUnknownMemberType]
            for number, weight in enumerate(self._weights)
            if weight.requires_grad
        ]
        self._forget()

    def finish_backward(self) -> None:
        """Forget the step. Raises SettingError if gradients have changed after they were told."""
        if self._version not in (None, self._flat.gradient._version):
            _refuse("gradients are changed after backward")
        self._forget()

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _forget(self) -> None:
        self._complete = [not weight.requires_grad for weight in self._weights]
        self._first = len(self._begins)  # number of the weight from which on all are complete
        self._version: int | None = None  # of the gradient's content

    def _take(self, number: int, weight: nn.Parameter) -> None:
        if self._complete[number]:
            _refuse("a step has more than one backward")
        view = self._flat.gradients[number]
        gather_gradients([weight], [view])
        weight.grad = view
        self._complete[number], before = True, self._first
        while self._first and self._complete[self._first - 1]:
            self._first -= 1
        self._version = self._flat.gradient._version
        if self._first < before:
            self._tell(self._begins[self._first])


class PacedParts(AbstractEarlyParts):
    """Gradients of the layers of the workload, as an emulated backward has them."""

    def __init__(self, pace: Pace, own_bytes: int, num_weights: int) -> None:
        self._pace, self._parts = pace, pace.workload.parts(own_bytes)
        super().__init__(part_sizes(self._parts, num_weights))

    def begin(self, flat: FlatWeights, tell: Tell) -> None:
        self._tell = tell

    def finish_backward(self) -> None:
        """Sleep until the last part that is there before the step's end, and tell each."""
        for part, begin in zip(self._parts, reversed(self._begins), strict=True):
            if part.ready < 1:
                self._pace.wait_for(part)
                self._tell(begin)

    def end(self) -> None:
        """Do nothing: what tells is the step itself."""


def _refuse(reason: str) -> None:
    raise SettingError("scheme.overlap", f"{reason}, when some have left; false is needed")
