"""One of many workers on the virtual clock: what it holds, and what it has done."""

from typing import Any

from torch import Tensor

from paceline.scheme.rule import Step, next_message
from paceline.virtual_clock.buffers import Buffer, BufferPool

TIMELINE_STEPS = 12  # of each worker, as much as a figure can show

Span = tuple[int, str, float, float]  # worker, phase, start and end [virtual seconds]


class VirtualWorker:
    """`weights`: None while a push waits for its answer, which replaces them."""

    def __init__(self, index: int, statistics: Buffer) -> None:
        self.index = index
        self.weights: Buffer | None = None
        self.statistics = statistics
        self.versions: list[int] = []  # of each server's part of the weights
        self.step: Step | None = None
        self.gradient: Buffer | None = None
        self.message: Tensor | None = None
        self.answer: Buffer | None = None  # to a push
        self.granted = True  # another step, by server 0
        self.averages: list[tuple[int, int]] = []  # in pairs: steps before, the partner
        self.finished = 0  # steps
        self.numbers = [0]  # of its steps, and the next, among all; where servers grant them, none
        self.ended = False  # no step follows
        self.bytes_sent = 0
        self.bytes_received = 0
        self.computing = False
        self.compute_seconds = 0.0  # of the step under way
        self.computed_at = 0.0
        self.seconds_communicating = 0.0  # waiting included
        self.step_ends: list[float] = []
        self.timeline: list[Span] | None = None  # a list: record here

    @property
    def number(self) -> int:
        return self.numbers[-1]

    def spend(self, phase: str, start: float, end: float) -> None:
        """`phase`: compute, communicate or wait."""
        if self.timeline is not None and self.finished < TIMELINE_STEPS and end > start:
            self.timeline.append((self.index, phase, start, end))

    def give_gradient(self) -> Buffer:
        """Whoever gets it lets go of it."""
        assert self.gradient is not None
        gradient, self.gradient = self.gradient, None
        return gradient

    def let_go_of_gradient(self, pool: BufferPool) -> None:
        """What a rule has given away it may not use again."""
        if self.gradient is not None:
            pool.release(self.gradient)
            self.gradient = None

    def let_go_of_answer(self, pool: BufferPool) -> None:
        if self.answer is not None:
            pool.release(self.answer)
            self.answer = None

    def send(self, reply: Any) -> Any:
        """Go on with the rule: its next message; None at the end of the step."""
        assert self.step is not None
        return next_message(self.step, reply)
