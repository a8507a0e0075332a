"""State of one of many workers on the virtual clock."""

import numpy as np
from torch import Tensor

from paceline.clock.reports import Span, WorkerReport
from paceline.clock.snapshot import weights_digest
from paceline.clock.virtual.buffers import Buffer, BufferPool
from paceline.clock.virtual.kernel import Event
from paceline.scheme.audit import Averaged

TIMELINE_STEPS = 12  # of each worker, as much as a figure can show


class VirtualWorker:
    """State of one worker. Times are virtual seconds.

    `weights`: weights on which it computes; None while it waits for an answer that replaces them.
    `statistics`: floating-point buffers of the module, as one vector; `counters`: its other
    buffers. `computed`: event with the gradient of the step under way as its value, or None if the
    step is abandoned. `message`: vector that it pushes. `answer`: result of its rule's last
    message. `numbers`: options of its optimizer with which its latest gradient is to be applied;
    None where they do not change. `granted`: True if server 0 lets it take another step.
    """

    def __init__(self, index: int, statistics: Buffer, counters: list[Tensor]) -> None:
        self.index = index
        self.weights: Buffer | None = None
        self.statistics, self.counters = statistics, counters
        self.versions: list[int] = []  # of each server's part of the weights
        self.computed = Event()
        self.gradient: Buffer | None = None
        self.message: Tensor | None = None
        self.answer: Buffer | None = None
        self.numbers: Tensor | None = None
        self.granted = True
        self.averages: list[Averaged] = []
        self.beside: Event | None = None  # end of what its rule did last beside computing
        self.num_steps = 0
        self.step_numbers: list[int] = []  # run-wide, the next step's last; none from servers
        self.bytes_sent = 0
        self.bytes_received = 0
        self.activation_bytes = 0  # that its processes send each other, if it is split
        self.computing = False
        self.compute_seconds = 0.0  # of the step under way
        self.computed_at = 0.0
        self.seconds_communicating = 0.0  # waiting included
        self.seconds_fetching = 0.0  # data
        self.seconds_waiting = 0.0  # for others; of several servers, for the first
        self.step_ends: list[float] = []
        self.timeline: list[Span] | None = None  # None: spans are not recorded

    @property
    def next_number(self) -> int:
        """Run-wide number of the worker's next step; 0 if servers grant steps."""
        return self.step_numbers[-1] if self.step_numbers else 0

    def take_numbers(self) -> list[float] | None:
        """Return the numbers of its latest gradient."""
        return None if self.numbers is None else [float(each) for each in self.numbers.numpy()]

    def spend(self, phase: str, start: float, end: float) -> None:
        """Record a span of time; `phase`: compute, communicate or wait."""
        if phase == "wait" and end > start:
            self.seconds_waiting += end - start
        if self.timeline is not None and self.num_steps < TIMELINE_STEPS and end > start:
            self.timeline.append((self.index, phase, start, end))

    def give_gradient(self) -> Buffer:
        """Hand over the gradient's buffer, which the caller must release."""
        assert self.gradient is not None
        gradient, self.gradient = self.gradient, None
        return gradient

    def take_answer(self, answer: Buffer, pool: BufferPool) -> Tensor:
        """Keep an answer until the rule ends; return its vector."""
        self.release_answer(pool)
        self.answer = answer
        return answer.vector

    def release_gradient(self, pool: BufferPool) -> None:
        if self.gradient is not None:
            pool.release(self.gradient)
            self.gradient = None

    def release_answer(self, pool: BufferPool) -> None:
        if self.answer is not None:
            pool.release(self.answer)
            self.answer = None

    def report(self) -> WorkerReport:
        return WorkerReport(
            worker=self.index,
            steps=self.num_steps,
            step_ends=np.array(self.step_ends),
            weights_digest=weights_digest([] if self.weights is None else [self.weights.vector]),
            seconds_data=self.seconds_fetching,
            seconds_communicating=self.seconds_communicating,
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            activation_bytes_sent=self.activation_bytes,
            activation_bytes_received=self.activation_bytes,
            step_numbers=self.step_numbers,
            averages=self.averages,
            timeline=self.timeline or (),
        )
