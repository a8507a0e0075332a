"""Workers on the virtual clock, and vectors that many of them share.

A vector is recycled when its last holder releases it: a new one of 45 MB per update costs 27 ms in
page faults, a recycled one 5 ms.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.clock.reports import Span, WorkerReport
from paceline.clock.snapshot import weights_digest
from paceline.clock.virtual.kernel import Event
from paceline.scheme.audit import Averaged

_TIMELINE_STEPS = 12  # of each worker, as much as a figure can show


class Buffer:
    """Vector with a count of its holders."""

    def __init__(self, vector: Tensor) -> None:
        self.vector = vector
        self.holders = 1
        self._views: list[Tensor] = []

    def move(self, vector: Tensor) -> None:
        """Use `vector`, to which the caller has copied the content, from now on."""
        self.vector, self._views = vector, []

    def views(self, like: Sequence[Tensor]) -> list[Tensor]:
        """Return views of the vector with the shapes of `like`, which are made once."""
        if not self._views:
            parts = torch.split(self.vector, [tensor.numel() for tensor in like])
            self._views = [part.view_as(t) for part, t in zip(parts, like, strict=True)]
        return self._views


class BufferPool:
    """Vectors of one size, dtype and device. `made`: number of vectors that have been allocated."""

    def __init__(self, like: Tensor) -> None:
        self._like, self._shape = like.new_empty(0), like.shape
        self._free: list[Buffer] = []
        self.made = 0

    def take(self) -> Buffer:
        """Return a buffer with one holder and undefined content."""
        if self._free:
            buffer = self._free.pop()
            buffer.holders = 1
            return buffer
        self.made += 1
        return Buffer(self._like.new_empty(self._shape))

    def new(self, length: int) -> Tensor:
        """Return a vector of another length, which is not recycled."""
        return self._like.new_empty(length)

    def copy(self, vector: Tensor) -> Buffer:
        buffer = self.take()
        buffer.vector.copy_(vector)
        return buffer

    def share(self, buffer: Buffer) -> Buffer:
        """Return the content for one more holder, which must not write to it."""
        buffer.holders += 1
        return buffer

    def add(self, total: Buffer | None, value: Buffer) -> Buffer:
        """Return the sum in the first buffer; both are handed over to this call."""
        if total is None:
            return value
        total.vector.add_(value.vector)
        self.release(value)
        return total

    def release(self, buffer: Buffer) -> None:
        """Remove one holder; recycle the buffer after the last."""
        buffer.holders -= 1
        if buffer.holders == 0:
            self._free.append(buffer)


class Ahead:
    """Result of a step that has been computed before its backward ends. `statistics`: those of the
    module after it. `loss`: a scalar. The buffers are filled by whoever computes the step.
    """

    __slots__ = ("gradient", "loss", "statistics")

    def __init__(self, gradient: Buffer, statistics: Buffer, loss: Tensor) -> None:
        self.gradient, self.statistics, self.loss = gradient, statistics, loss


class VirtualWorker:
    """State of one worker. Times are virtual seconds.

    `weights`: weights on which it computes; None while it waits for an answer that replaces them.
    `statistics`: floating-point buffers of the module, as one vector; `counters`: its other
    buffers. `computed`: event with the gradient of the step under way as its value, or None if the
    step is abandoned. `message`: vector that it pushes. `answer`: result of its rule's last
    message. `kept`: vectors that its rule keeps between steps. `ahead`: result of the step under
    way, if it has been computed. `numbers`: options of its optimizer with which its latest gradient
    is to be applied; None where they do not change. `granted`: server 0 lets it take another step.
    """

    def __init__(self, index: int, statistics: Buffer, counters: list[Tensor]) -> None:
        self.index = index
        self.weights: Buffer | None = None
        self.statistics, self.counters = statistics, counters
        self.versions: list[int] = []  # of each server's part of the weights
        self.computed = Event()
        self.ahead: Ahead | None = None
        self.gradient: Buffer | None = None
        self.message: Tensor | None = None
        self.answer: Buffer | None = None
        self.kept: list[Buffer] = []
        self.numbers: Tensor | None = None
        self.granted = True
        self.averages: list[Averaged] = []
        self.beside: Event | None = None  # end of what its rule did last beside computing
        self.num_steps = 0
        self.step_numbers: list[int] = []  # run-wide, the next step's last; empty if servers grant
        self.bytes_sent = self.bytes_received = 0
        self.activation_bytes = 0  # between its processes, if it is split
        self.computing = False
        self.compute_seconds = self.computed_at = 0.0  # of the step under way
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
        numbers: Any = self.numbers
        return None if numbers is None else numbers.tolist()

    def spend(self, phase: str, start: float, end: float) -> None:
        """Record a span of time; `phase`: compute, communicate or wait."""
        if end > start:
            if phase == "wait":
                self.seconds_waiting += end - start
            if self.timeline is not None and self.num_steps < _TIMELINE_STEPS:
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
            pool.release(self.give_gradient())

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
