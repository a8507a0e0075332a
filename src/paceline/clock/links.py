"""Driver of a scheme's rule (what a worker does in a step) on the wall or the virtual clock, and
the links that send the rule's messages.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from paceline.clock.run_spec import RunSpec
from paceline.scheme.rule import (
    AbstractScheme,
    Adopt,
    Apply,
    Keep,
    Kept,
    Mean,
    Message,
    NeighbourMean,
    PairMean,
    Push,
    Step,
    WorkerView,
    next_message,
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A generator that yields the awaited events of the virtual clock, and returns a result.
Process = Generator[Any, Any, Result]


class AbstractLinks(ABC):
    """One worker's weights, and its links to the others; each clock implements the methods that its
    schemes need. A method returns a process: on the virtual clock it yields each event that it
    awaits, on the wall clock it blocks and never yields. The result of the process is valid until
    the scheme's rule for this step ends.
    """

    def carry_out(self, message: Message) -> Process[Any]:
        """Return the process that carries out a message; its result is the answer that the rule
        gets.
        """
        match message:
            case Mean(value):
                return self.mean(value)
            case NeighbourMean(value, receivers, senders):
                return self.neighbour_mean(value, receivers, senders)
            case Push(value):
                return self.push(value)
            case PairMean(partner):
                return self.pair(partner)
            case Apply(gradient):
                return self.apply(gradient)
            case Adopt(weights):
                return self.adopt(weights)
            case Keep(vectors):
                return self.keep(vectors)
            case Kept():
                return self.kept()
            case _:
                raise TypeError(f"links have no verb for {type(message).__name__}")

    def mean(self, value: Tensor) -> Process[Tensor]:
        """Return the mean of the values of all workers."""
        raise NotImplementedError

    def neighbour_mean(
        self, value: Tensor, receivers: Sequence[int], senders: Sequence[int]
    ) -> Process[Tensor]:
        """Send `value` to some workers; return the mean of it and of what `senders` send."""
        raise NotImplementedError

    def push(self, value: Tensor) -> Process[Tensor]:
        """Send `value` to the servers and return the weights in their answers."""
        raise NotImplementedError

    def pair(self, partner: int) -> Process[None]:
        """Form the mean with a partner, as PairMean says."""
        raise NotImplementedError

    def apply(self, gradient: Tensor) -> Process[Tensor]:
        """Apply `gradient` by the worker's own optimizer and return the weights after that."""
        raise NotImplementedError

    def keep(self, vectors: Sequence[Tensor]) -> Process[None]:
        """Keep copies of `vectors` instead of those that were kept before."""
        raise NotImplementedError

    def kept(self) -> Process[Sequence[Tensor]]:
        """Return the vectors that were kept last."""
        raise NotImplementedError

    @abstractmethod
    def adopt(self, weights: Tensor) -> Process[None]:
        """Replace this worker's weights by a copy of `weights`."""


def at_once(verb: Callable[Arguments, Result]) -> Callable[Arguments, Process[Result]]:
    """Make a process that never waits from a method that blocks."""

    @wraps(verb)
    def process(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Process[Result]:
        yield from ()
        return verb(*args, **kwargs)

    return process


class RuleDriver:
    """Carries out the messages of one worker's rule over its links. Its methods return processes:
    the virtual clock interleaves them with those of other workers, the wall clock runs them by
    `complete`.
    """

    def __init__(
        self, scheme: AbstractScheme, links: AbstractLinks, index: int, run: RunSpec
    ) -> None:
        self._scheme, self._links, self._index, self._run = scheme, links, index, run

    def step(
        self, gradient: Tensor, weights: Tensor, num_steps: int, progress: float
    ) -> Process[None]:
        """Take a step with a computed gradient; WorkerView documents the arguments."""
        workers = self._run.num_workers
        view = WorkerView(gradient, weights, self._index, workers, num_steps, progress)
        return self._drive(self._scheme.step(view))

    def beside(self, num_steps: int) -> Process[None] | None:
        """Do what the rule does while a step is computed; None if nothing."""
        run = self._run
        rule = self._scheme.beside(self._index, run.num_workers, num_steps, run.seed)
        return None if rule is None else self._drive(rule)

    def end(self, weights: Tensor, num_steps: int) -> Process[None]:
        """Carry out the scheme's `end` after the last step of a worker with its own weights."""
        return self._drive(self._scheme.end(weights, num_steps))

    def _drive(self, rule: Step) -> Process[None]:
        answer = None
        while (message := next_message(rule, answer)) is not None:
            answer = yield from self._links.carry_out(message)


def complete(process: Process[None]) -> None:
    """Run a process of the wall clock, which never waits, to its end."""
    for awaited in process:
        raise RuntimeError(f"a process of the wall clock waits for {awaited!r}")
