"""Links of a worker, on which its scheme's rule acts: the verbs that each clock implements."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from paceline.scheme.rule import Adopt, Apply, Mean, Message, PairMean, Push

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A generator that yields the awaited events of the virtual clock, and returns a result.
Process = Generator[Any, Any, Result]


class AbstractLinks(ABC):
    """One worker's links to the others, and its weights.

    A verb returns a process: on the virtual clock it yields each event it waits for, on the wall
    clock it blocks and never yields. Its result is valid until the rule ends.
    """

    def carry_out(self, message: Message) -> Process[Any]:
        """Return the process that carries out a message; its result is the rule's answer."""
        match message:
            case Mean(value):
                return self.mean(value)
            case Push(value):
                return self.push(value)
            case PairMean(partner):
                return self.pair(partner)
            case Apply(gradient):
                return self.apply(gradient)
            case Adopt(weights):
                return self.adopt(weights)
            case _:
                raise TypeError(f"links have no verb for {type(message).__name__}")

    @abstractmethod
    def mean(self, value: Tensor) -> Process[Tensor]:
        """Return the mean of the values of all workers."""

    @abstractmethod
    def push(self, value: Tensor) -> Process[Tensor]:
        """Send `value` to the servers and return the weights in their answers."""

    @abstractmethod
    def pair(self, partner: int) -> Process[None]:
        """Send this worker's weights to the partner, which holds the mean of both from then on;
        change this worker's by as much as the mean differs from what was sent.
        """

    @abstractmethod
    def apply(self, gradient: Tensor) -> Process[Tensor]:
        """Apply `gradient` by the worker's own optimizer and return the weights after that."""

    @abstractmethod
    def adopt(self, weights: Tensor) -> Process[None]:
        """Replace this worker's weights by a copy of `weights`."""


def at_once(verb: Callable[Arguments, Result]) -> Callable[Arguments, Process[Result]]:
    """Make a process that never waits from a verb that blocks."""

    @wraps(verb)
    def process(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Process[Result]:
        yield from ()
        return verb(*args, **kwargs)

    return process
