"""Driver of a scheme's rule (what a worker does in a step) on the wall or the virtual clock, and
the links that send the rule's messages.
"""

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from paceline.clock.run_spec import RunSpec
from paceline.scheme.rule import AbstractScheme, Message, Step, WorkerView, next_message

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A generator that yields the awaited events of the virtual clock, and returns a result.
Process = Generator[Any, Any, Result]


class AbstractLinks:
    """One worker's weights, and its links to the others. Each clock has a method for each message
    that its schemes need, with the values of the message as its arguments. A method returns a
    process: on the virtual clock it yields each event that it awaits, on the wall clock it blocks
    and never yields. The result of the process is valid until the scheme's rule for this step ends.
    """

    def carry_out(self, message: Message) -> Process[Any]:
        """Return the process that carries out a message, by the method that its `verb` names; its
        result is the answer that the rule gets.
        """
        method = getattr(self, message.verb, None)
        if method is None:
            raise TypeError(f"links have no verb for {type(message).__name__}")
        return method(*vars(message).values())


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
