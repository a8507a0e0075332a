"""Links of a worker, on which its scheme's rule acts: the verbs that each clock implements."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A generator that yields the awaited events of the virtual clock, and returns a result.
Process = Generator[Any, Any, Result]


class AbstractLinks(ABC):
    """One worker's links to the others, and its weights.

    A verb that communicates is a process: on the virtual clock it yields each event it waits for,
    on the wall clock it blocks and never yields. Its result is valid until the rule ends.
    """

    @abstractmethod
    def mean(self, value: Tensor) -> Process[Tensor]:
        """Return the mean of the values of all workers."""

    @abstractmethod
    def push(self, value: Tensor) -> Process[Tensor]:
        """Send `value` to the servers and return the weights in their answers."""

    @abstractmethod
    def pair(self, partner: int) -> Process[None]:
        """Replace this worker's and the partner's weights by their mean, at once."""

    @abstractmethod
    def apply(self, gradient: Tensor) -> Process[Tensor]:
        """Apply `gradient` by the worker's own optimizer and return the weights after that."""

    @abstractmethod
    def adopt(self, weights: Tensor) -> None:
        """Replace this worker's weights by a copy of `weights`."""


def at_once(verb: Callable[Arguments, Result]) -> Callable[Arguments, Process[Result]]:
    """Make a process that never waits from a verb that blocks."""

    @wraps(verb)
    def process(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Process[Result]:
        yield from ()
        return verb(*args, **kwargs)

    return process
