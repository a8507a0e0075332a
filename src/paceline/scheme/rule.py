"""The seam between a rule and a clock.

A rule is written over values: gradients and messages in, messages out. The worker's part is a
generator in which every `yield` is a communication, or a change of what the worker holds; the
server's part says, after each push, what is applied and who is answered. Rules mutate nothing, use
nothing again that they gave away in a message, and know no socket, clock or optimizer: what drives
them (real processes, or an event queue) owns weights, optimizer state and buffers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from paceline.errors import SettingError
from paceline.scheme.serving import Serving


@dataclass(frozen=True)
class WorkerView:
    """What a worker knows when its gradient is there.

    `gradient`, `weights` [num_weights]: of its batch, at the weights that it holds, until it gives
    them away. `index`: of the worker, from 0. `num_steps`: that it took before. `progress`: the
    share of the run's samples that is
    behind these weights; 0 where the run has no end, or servers count.
    """

    gradient: Tensor
    weights: Tensor
    index: int
    num_workers: int
    num_steps: int
    progress: float


@dataclass(frozen=True)
class Mean:
    """All workers meet here; each is answered with the mean of what they brought."""

    value: Tensor


@dataclass(frozen=True)
class Push:
    """To the servers; answered with the weights that they release to this worker."""

    value: Tensor


@dataclass(frozen=True)
class Apply:
    """The worker's own optimizer applies this gradient; answered with its weights after that."""

    gradient: Tensor


@dataclass(frozen=True)
class Adopt:
    """The worker holds these weights from now on."""

    weights: Tensor


@dataclass(frozen=True)
class PairMean:
    """The mean of this worker's and the partner's weights replaces both, at once, even in the
    middle of the partner's step, whose gradient is still that of the weights before.
    """

    partner: int


Claim = Literal["synchronous", "asynchronous", "partly asynchronous", "equal at the end", "apart"]
Message = Mean | Push | PairMean | Apply | Adopt
Step = Generator[Message, Any, None]


def next_message(step: Step, answer: Any) -> Message | None:
    """Go on with a rule: its next message; None at the end of the step."""
    try:
        return step.send(answer)
    except StopIteration:
        return None


def drive(step: Step, answer: Callable[[Message], Any]) -> None:
    """To the end of a rule that nobody else waits for; each message is answered at once."""
    reply = None
    while (message := next_message(step, reply)) is not None:
        reply = answer(message)


class AbstractScheme(ABC):
    """One way of sharing updates. A concrete scheme fills in the rule and is never subclassed.

    `servers`: processes that share the weights by bytes. `own_weights`: workers hold weights of
    their own, and apply gradients to them; else the servers apply gradients, and grant steps.
    `equal_steps`: workers with weights of their own take equally many; else who is faster takes
    more. `needs_end`: the rule goes by the share of the run that is behind. `group_size`: workers
    that push as one, which divides their number: the first of them pushes their mean.
    `steps_per_push`: batches behind a push. `needs_read`: servers keep the weights that each worker
    was answered with.
    """

    servers: int = 0
    own_weights: bool = True
    equal_steps: bool = True
    needs_end: bool = False
    group_size: int = 1
    steps_per_push: int = 1
    needs_read: bool = False
    collective: str = "native"  # that carries out a Mean
    compression: str = "none"
    carried_out_by_ddp: bool = False

    @abstractmethod
    def step(self, worker: WorkerView) -> Step:
        """One worker's step, from its gradient to its end."""

    def end(self, weights: Tensor, steps: int) -> Step:
        """After the last step of a worker with weights of its own, in a run that has an end."""
        yield from ()

    def claim(self, workers: int) -> Claim:
        """What a run calls itself, which its certificate confirms or denies."""
        return "apart"

    def pushes_per_update(self, workers: int) -> int:
        """Batches behind one update of the weights: what rate rules scale with."""
        return workers

    def expected_staleness(self, workers: int) -> float:
        """Mean over the pushes that are not waited for, if any are, of equally fast workers."""
        return 0.0

    def images_per_update(self, batch_size: int, workers: int) -> int:
        return batch_size * self.pushes_per_update(workers)

    def batches_per_round(self, workers: int) -> int:
        """A run takes a whole multiple of them."""
        if self.own_weights:
            return workers if self.equal_steps else self.steps_per_push
        return self.pushes_per_update(workers)

    def batches(self, updates: int, workers: int, num_steps: int | None) -> int:
        """Behind so many updates of a run that takes `num_steps` batches; None: it has no end."""
        return updates * self.pushes_per_update(workers)

    def most_batches(self, num_steps: int, workers: int) -> int:
        """That are drawn at most until `num_steps` of them are in the weights."""
        return num_steps

    def group_of(self, worker: int) -> range:
        """Those who push as one with this worker; the first of them speaks to the servers."""
        first = worker - worker % self.group_size
        return range(first, first + self.group_size)

    def pushing(self, workers: int) -> range:
        """Workers that speak to the servers."""
        return range(0, workers, self.group_size)

    def partners(self, worker: int, workers: int) -> tuple[int, ...]:
        """Whom this worker may ask for a PairMean; they themselves ask nobody."""
        return ()

    def serving(self, workers: int) -> Serving:
        """A server's part, for one server and run."""
        raise NotImplementedError(f"{type(self).__name__} has no servers")

    def served(self, pushed: Tensor, staleness: int, weights: Tensor, read: Tensor) -> Tensor:
        """The gradient that a push stands for. `weights`: of the server now; `read`: as they were
        when the worker got them (where `needs_read`; else `weights`).
        """
        return pushed


class AbstractServedScheme(AbstractScheme):
    """Servers apply the workers' gradients; such schemes differ in the servers' part alone."""

    own_weights = False

    def step(self, worker: WorkerView) -> Step:
        weights = yield Push(worker.gradient)
        yield Adopt(weights)


def check_servers(servers: int) -> int:
    """Raises SettingError("scheme.servers")."""
    return check_whole("servers", servers, at_least=1)


def check_whole(name: str, value: Any, *, at_least: int) -> int:
    """Raises SettingError for a setting of the scheme."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        message = f"a whole number of at least {at_least} is needed, not {value!r}"
        raise SettingError(f"scheme.{name}", message)
    return value


def check_share(name: str, value: Any, *, below: float = 1.0) -> float:
    """Raises SettingError for a setting of the scheme that is no number from 0 to `below`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= below:
        message = f"a number from 0 to {below:g} is needed, not {value!r}"
        raise SettingError(f"scheme.{name}", message)
    return float(value)
