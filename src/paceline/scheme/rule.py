"""Interface between a scheme's rule (what a worker does in a step, and a server after a push) and
the clock that carries it out: the wall clock with real processes, or the virtual clock.

A rule is written in terms of values: gradients and messages in, messages out. The worker's part is
a generator; each `yield` is a communication or a change of the weights that the worker holds. A
second generator may communicate while a step is computed. The server's part decides after each push
which pushes are applied and which workers are answered. Rules change no tensor in place, do not use
a tensor again after sending it, and know no socket, clock or optimizer. Weights, optimizer state
and buffers belong to the clock that calls the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from paceline.scheme.audit import RunLog, ServedLog, not_in_groups
from paceline.scheme.serving import AbstractServing
from paceline.settings import Neutral, Whole

if TYPE_CHECKING:  # torch takes seconds
    from torch import Tensor

Vector: TypeAlias = "Tensor"


@dataclass(frozen=True)
class WorkerView:
    """Knowledge that a worker has when its gradient is ready.

    `weights` [num_weights]: weights that the worker holds. `gradient` [num_weights]: gradient of
    its batch at these weights. A rule that has sent one of them must not use it again. `index`:
    number of the worker, from 0. `num_steps`: number of steps that it took before. `progress`:
    share of the run's samples before this step; 0 if the run has no end, or servers count samples.
    """

    gradient: Tensor
    weights: Tensor
    index: int
    num_workers: int
    num_steps: int
    progress: float


class Message:
    """A communication of a worker, or a change of its weights, that a rule yields. `verb`: name of
    the method of a worker's links that carries it out.
    """

    verb: ClassVar[str] = ""


@dataclass(frozen=True)
class Mean(Message):
    """Send `value` to all workers; the answer is the mean of all their values."""

    verb = "mean"

    value: Tensor


@dataclass(frozen=True)
class NeighbourMean(Message):
    """Send `value` to the workers `receivers`; the answer is the mean of it and of the values of
    the `senders`, whose message in the same step must name this worker as one of its receivers.
    """

    verb = "neighbour_mean"

    value: Tensor
    receivers: tuple[int, ...]
    senders: tuple[int, ...]


@dataclass(frozen=True)
class Push(Message):
    """Send `value` to the servers; the answer is the weights that they release to this worker."""

    verb = "push"

    value: Tensor


@dataclass(frozen=True)
class Apply(Message):
    """Apply this gradient by the worker's own optimizer; the answer is its weights after that."""

    verb = "apply"

    gradient: Tensor


@dataclass(frozen=True)
class Adopt(Message):
    """Replace the worker's weights by a copy of `weights`; there is no answer."""

    verb = "adopt"

    weights: Tensor


@dataclass(frozen=True)
class PairMean(Message):
    """Send this worker's weights w to the partner, which sets its own to the mean m of both and
    answers m. This worker then adds m - w to its weights, so the sum of all weights is preserved,
    even if either applied gradients meanwhile. A step that has begun still computes the gradient of
    its old weights.
    """

    verb = "pair"

    partner: int


@dataclass(frozen=True)
class Keep(Message):
    """Keep copies of `vectors` [num_weights each] for this worker's later steps; no answer."""

    verb = "keep"

    vectors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Kept(Message):
    """The answer is the `number` vectors that this worker kept last, a list."""

    verb = "kept"

    number: int


Claim = Literal["synchronous", "asynchronous", "partly asynchronous", "equal at the end", "apart"]
Sharding = Annotated[Literal["bytes", "round_robin"], Neutral("bytes")]
Compression = Literal["none", "fp16", "bf16"]
GroupSize = Annotated[Whole, Neutral(1)]
Step = Generator[Message, Any, None]


def next_message(step: Step, answer: Any) -> Message | None:
    """Give a rule the answer to its last message; return its next one, None at the step's end."""
    try:
        return step.send(answer)
    except StopIteration:
        return None


class AbstractScheme(ABC):
    """One way of sharing updates. A concrete scheme is a settings class that defines the rule and
    what it promises; it is never subclassed.

    Traits, which a scheme sets by a class attribute, a property or a setting of that name, and
    which must be true of its rule:

    `own_weights`: True if workers apply gradients to weights of their own; False if only servers
    apply them, and a server's answer then tells a worker whether it may take another step.
    `equal_steps`: True if workers wait for each other in a Mean or a NeighbourMean, so that all
    take equally many steps; otherwise they draw steps from a common budget, and faster workers take
    more. `averages_gradients`: True if workers apply means of gradients with weights of their own.
    `steps_between_pushes`: number of steps of one worker from one push to the next, if workers have
    weights of their own. `needs_read`: True if `served` depends on the weights that a server last
    sent to the worker, of which it then keeps a copy. `servers`: number of servers, each of which
    holds a part of the weights; 0 if there are none. `sharding`: how the weights are divided among
    servers: "bytes" in equal parts, "round_robin" in whole tensors in turn. `group_size`: number of
    workers in a group, whose first worker pushes the mean of the group; it must divide the number
    of workers. `collective`, `compression`: how a Mean is formed. `carried_out_by_ddp`: True if on
    real processes Lightning's DDP does the same. `needs_end`: True if the rule depends on the
    progress of the run, so that the run must have an end.
    """

    own_weights: bool = True
    equal_steps: bool = False
    servers: int = 0
    sharding: Sharding = "bytes"
    group_size: int = 1
    collective: str = "native"
    compression: Compression = "none"
    carried_out_by_ddp: bool = False
    needs_end: bool = False

    @property
    def averages_gradients(self) -> bool:
        return False

    @property
    def steps_between_pushes(self) -> int:
        return 1

    @property
    def needs_read(self) -> bool:
        return False

    @abstractmethod
    def step(self, worker: WorkerView) -> Step:
        """Yield what one worker does in a step, after its gradient has been computed."""

    def beside(self, worker: int, num_workers: int, num_steps: int, seed: int) -> Step | None:
        """Return what a worker with its own weights does while it computes its next step, after
        `num_steps` steps; None if nothing. It yields only PairMean, and no worker waits for it. If
        it lasts longer than the step, it continues, and the next step has none. `seed`: seed of the
        run, for random choices.
        """
        return None

    def end(self, weights: Tensor, steps: int) -> Step:
        """Yield what a worker with its own weights does after its last step, in a run that has an
        end. Without servers it must keep the mean of all workers' weights, because the last
        snapshot may come before it.
        """
        yield from ()

    def serving(self, num_workers: int) -> AbstractServing:
        """Build the state machine by which one server decides about pushes in a run. Raises
        SettingError for a wrong number of workers.
        """
        raise NotImplementedError(f"{type(self).__name__} has no servers")

    def served(self, pushed: Tensor, weights: Tensor, read: Tensor) -> Tensor:
        """Return the gradient to apply to `weights` for a push computed on the weights `read`."""
        return pushed

    def step_factor(self, staleness: int) -> float:
        """Return the factor on the rate of an update whose stalest push has this `staleness`."""
        return 1.0

    def claim(self, num_workers: int) -> Claim:
        """Return how consistently workers are said to share updates; the certificate checks it."""
        return "apart"

    def broken(self, log: RunLog) -> str:
        """Return in words the first entry of a run's log that breaks the rule, or ""."""
        return ""

    def partners(self, worker: int, num_workers: int) -> tuple[int, ...]:
        """List the workers that this worker may ask for a PairMean; the listed workers never ask.
        The worker connects to all of them before the first step.
        """
        return ()


class AbstractServedScheme(AbstractScheme):
    """Scheme in which only servers apply gradients; such schemes differ in what servers do."""

    own_weights = False

    def step(self, worker: WorkerView) -> Step:
        weights = yield Push(worker.gradient)
        yield Adopt(weights)

    def broken(self, log: RunLog) -> str:
        for number, served in enumerate(log.servers):
            groups = not_in_groups(served, self.group_size, log.steps)
            if line := groups or self.not_served(served):
                return f"server {number}: {line}"
        return ""

    def not_served(self, log: ServedLog) -> str:
        """Return in words the first entry of a log that contradicts `serving`, or ""."""
        return ""
