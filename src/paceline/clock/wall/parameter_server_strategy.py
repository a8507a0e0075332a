"""Lightning strategy of a worker whose gradients are applied by servers, also during backward."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pytorch_lightning import Trainer
from torch import nn

from paceline.clock.flat_weights import FlatWeights, gather_gradients
from paceline.clock.links import AbstractLinks
from paceline.clock.snapshot import Snapshot
from paceline.clock.wall.rule_strategy import AbstractRuleStrategy
from paceline.clock.wall.wall_links import ServedLinks
from paceline.errors import SettingError
from paceline.timing.pace import Pace
from paceline.timing.workload import part_sizes

# Called with the weight from which on the gradient of a step is complete.
Tell = Callable[[int], None]


class AbstractEarlyParts(ABC):
    """Parts of the gradient of one worker. `sizes`: their numbers of weights, in the order of the
    vector.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self._hooks = sizes, list[Any]()
        self._begins = [0, *itertools.accumulate(sizes)][:-1]

    def begin(self, flat: FlatWeights, tell: Tell) -> None:
        """Call `tell` in each step from now on, as parts of `flat.gradient` become complete."""
        self._flat, self._tell = flat, tell

    @abstractmethod
    def finish_backward(self) -> None:
        """Tell what was completed before the end of a step's backward, if that was not observed."""

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()


class RealParts(AbstractEarlyParts):
    """Gradients of all parameters, as backward completes them. A gradient that is late, or never
    comes, delays those before it in the vector; so do optimizer groups that do not follow the order
    of layers. No hook may change a gradient after backward has completed it, since it may have been
    sent.
    """

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        super().__init__([weight.numel() for weight in weights])
        self._weights = weights

    def begin(self, flat: FlatWeights, tell: Tell) -> None:
        super().begin(flat, tell)
        self._hooks: list[Any] = [
            weight.register_post_accumulate_grad_hook(partial(self._take, number))  # pyright: ignore[reportUnknownMemberType]
            for number, weight in enumerate(self._weights)
            if weight.requires_grad
        ]
        self._forget()

    def finish_backward(self) -> None:
        """Forget the step. Raises SettingError if complete gradients have changed."""
        if self._version not in (None, self._flat.gradient._version):
            _refuse("gradients are changed after backward")
        self._forget()

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
    """Gradients of the layers of the workload, as an emulated backward completes them."""

    def __init__(self, pace: Pace, own_bytes: int, num_weights: int) -> None:
        self._pace, self._parts = pace, pace.workload.parts(own_bytes)
        super().__init__(part_sizes(self._parts, num_weights))

    def finish_backward(self) -> None:
        """Sleep until each part of the emulated backward is complete, and tell it."""
        for part, begin in zip(self._parts, reversed(self._begins), strict=True):
            if part.ready < 1:
                self._pace.wait_for(part)
                self._tell(begin)


def _refuse(reason: str) -> None:
    raise SettingError("scheme.overlap", f"{reason}, after parts were sent; false is needed")


class ParameterServerStrategy(AbstractRuleStrategy):
    """Strategy of a worker that pushes to servers, which answer with weights and grant steps. With
    the scheme's `overlap`, pushes leave during backward: to servers on other nodes, and from a GPU
    to servers in host memory.
    """

    applied_by = "a parameter server"
    _early: AbstractEarlyParts | None = None

    def _connect(self, trainer: Trainer) -> tuple[FlatWeights, AbstractLinks]:
        """Put weights and gradient into the wire's buffers, so that pushes copy nothing."""
        early = self._early_parts()
        vectors = replace(self.vectors, parts=early.sizes) if early else self.vectors
        self.push = self._push = self._push_link(vectors)
        wire = self._push.wire
        flat = FlatWeights(self.held_weights, wire.weights, wire.gradient)
        self._push.begin(wire.weights)
        trainer.should_stop = not self._push.granted
        flat.adopt(wire.weights)
        if early and self._push.sends_early:
            early.begin(flat, partial(self._push.send_early, flat.gradient))
            self._early = early
        return flat, ServedLinks(flat, self._push)

    @property
    def updates(self) -> int:
        """Updates of server 0's weights when this worker last read them."""
        return self._push.wire.versions[0]

    @property
    def samples(self) -> int:
        return self.run.samples_at(self.accounting.batches(self.updates, self.run.num_steps))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._push.bytes_exchanged

    def state(self) -> dict[str, Any]:
        read = {"weights": self._flat.weights, "versions": self._push.wire.versions}
        return {**super().state(), "read": read}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue with the weights that this worker had read, which are not the latest."""
        super().load_state(state)
        self._flat.adopt(state["read"]["weights"])
        self._push.wire.versions = state["read"]["versions"]

    def _leave(self) -> list[Snapshot]:
        if self._early:
            self._early.end()
        return self._push.finish()

    def _finish_backward(self) -> None:
        super()._finish_backward()
        if self._early:
            self._early.finish_backward()

    def _begin_step(self) -> None:
        super()._begin_step()
        self._push.send_numbers()  # which leave with the first part, before the step ends

    def _finish_step(self) -> None:
        self._trainer.should_stop = not self._push.granted

    def _early_parts(self) -> AbstractEarlyParts | None:
        """Return the parts in which pushes leave; None if they leave as a whole."""
        if not self.scheme.overlap:
            return None
        if self.pace is None:
            return RealParts(self.held_weights)
        num_weights = self.vectors.num_weights
        own_bytes = num_weights * self.held_weights[0].element_size()
        return PacedParts(self.pace, own_bytes, num_weights)
