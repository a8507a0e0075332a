"""The seam between a rule and a clock.

A rule is written over values: gradients and messages in, messages out. The worker's part is a
generator in which every `yield` is a communication, or a change of what the worker holds; another
one may go on beside the computing of a step. The server's part says, after each push, what is
applied and who is answered. Rules mutate nothing, use nothing again that they gave away in a
message, and know no socket, clock or optimizer: what drives them (real processes, or an event
queue) owns weights, optimizer state and buffers.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor

from paceline.scheme.audit import RunLog, ServedLog, not_in_groups
from paceline.scheme.serving import AbstractServing
from paceline.settings import Neutral, Whole


@dataclass(frozen=True)
class WorkerView:
    """The knowledge of a worker whose gradient is there.

    `gradient`, `weights` [num_weights]: of its batch, at the weights that it holds, until it gives
    them away. `index`: of the worker, from 0. `num_steps`: that it took before. `progress`: the
    share of the run's samples that is behind these weights; 0 where the run has no end, or servers
    count.
    """

    gradient: Tensor
    weights: Tensor
    index: int
    num_workers: int
    num_steps: int
    progress: float


class Message:
    """A communication of a worker, or a change of its weights, that a rule yields. `meets_all`:
    nobody is answered before all workers have sent it.
    """

    meets_all: ClassVar[bool] = False


@dataclass(frozen=True)
class Mean(Message):
    """All workers meet here; each is answered with the mean of what they brought."""

    meets_all = True

    value: Tensor


@dataclass(frozen=True)
class Push(Message):
    """A message to the servers; answered with the weights that they release to this worker."""

    value: Tensor


@dataclass(frozen=True)
class Apply(Message):
    """The worker's own optimizer applies this gradient; answered with its weights after that."""

    gradient: Tensor


@dataclass(frozen=True)
class Adopt(Message):
    """The worker holds these weights from now on."""

    weights: Tensor


@dataclass(frozen=True)
class PairMean(Message):
    """This worker sends its weights; the partner holds their mean with its own from then on, and
    this worker changes by as much as that mean differs from what it sent when it is answered.
    So the sum of all weights is the same after that, whatever either applies meanwhile. A step
    under way still gives the gradient of the weights that it began with.
    """

    partner: int


Claim = Literal["synchronous", "asynchronous", "partly asynchronous", "equal at the end", "apart"]
Sharding = Annotated[Literal["bytes", "round_robin"], Neutral("bytes")]
GroupSize = Annotated[Whole, Neutral(1)]
Overlap = Annotated[bool, Neutral(False)]
Step = Generator[Message, Any, None]


def next_message(step: Step, answer: Any) -> Message | None:
    """Go on with a rule, and return its next message; None at the end of the step."""
    try:
        return step.send(answer)
    except StopIteration:
        return None


class AbstractScheme(ABC):
    """One way of sharing updates. A concrete scheme is a settings class: it fills in the rule, says
    what it promises, and is never subclassed. What others count by is asked of the rule itself, by
    `paceline.scheme.accounting`.

    Traits, which a scheme overrides with a class attribute or a setting of that name:

    `servers`: processes that share the weights. `sharding`: how, in equal parts by bytes, or whole
    tensors in turn. `group_size`: workers that push as one, which divides their number: the first
    of them pushes their mean. `overlap`: a push is of the gradient, and leaves during backward,
    layer by layer from the last, where it leaves its node.
    `collective`, `compression`: how a Mean travels. `carried_out_by_ddp`: on real processes
    Lightning's DDP carries out this rule. `needs_end`: the rule goes by the share of the run that
    is behind (a trait, since no number of trials shows that a rule never does).
    """

    servers: int = 0
    sharding: Sharding = "bytes"
    group_size: int = 1
    overlap: bool = False
    collective: str = "native"
    compression: str = "none"
    carried_out_by_ddp: bool = False
    needs_end: bool = False

    @abstractmethod
    def step(self, worker: WorkerView) -> Step:
        """Yield what one worker does in a step, from its gradient to the step's end."""

    def beside(self, worker: int, num_workers: int, num_steps: int, seed: int) -> Step | None:
        """Return what a worker with weights of its own does beside the computing of the step after
        `num_steps`, which waits for it no more than anybody else; None: nothing. It yields
        PairMean only. Where it outlasts its step, it goes on, and the next step has none.

        `seed`: of the run, for what is drawn.
        """
        return None

    def end(self, weights: Tensor, steps: int) -> Step:
        """Yield what a worker with weights of its own does after its last step, in a run that has
        an end. A rule that takes a Mean in some steps only takes one here too, after a single step.
        """
        yield from ()

    def serving(self, num_workers: int) -> AbstractServing:
        """Build a server's part, for one server and run. Raises SettingError where the rule cannot
        have so many workers.
        """
        raise NotImplementedError(f"{type(self).__name__} has no servers")

    def served(self, pushed: Tensor, weights: Tensor, read: Tensor) -> Tensor:
        """Return the gradient that a push stands for. `weights`: of the server now; `read`: as they
        were when the worker got them.
        """
        return pushed

    def step_factor(self, staleness: int) -> float:
        """Return the factor on the rate of an update; `staleness`: of its stalest push."""
        return 1.0

    def claim(self, num_workers: int) -> Claim:
        """Return the name that a run gives itself, which its certificate confirms or denies."""
        return "apart"

    def broken(self, log: RunLog) -> str:
        """Return the line of a run's log that breaks the rule, in words; "" if none does."""
        return ""

    def partners(self, worker: int, num_workers: int) -> tuple[int, ...]:
        """List those whom this worker may ask for a PairMean; they themselves ask nobody. Links to
        all of them are opened before the first step, and a trial would meet only some.
        """
        return ()


class AbstractServedScheme(AbstractScheme):
    """Servers apply the workers' gradients; such schemes differ in the servers' part alone."""

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
        """Return what in a server's log this scheme's `serving` cannot have done, in words."""
        return ""
