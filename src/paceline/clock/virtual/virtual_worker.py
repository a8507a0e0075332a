"""Workers of a simulated run: what they have done, and when."""

import numpy as np

from paceline.clock.reports import Span, WorkerReport
from paceline.clock.virtual.kernel import Event
from paceline.scheme.audit import Averaged

_TIMELINE_STEPS = 12  # of each worker, as much as a figure can show


class VirtualWorker:
    """Course of one worker, without its vectors. Times are virtual seconds.

    `versions`: version of each server's part of its weights. `granted`: server 0 lets it take
    another step. `computing`: it has begun a step and lacks the gradient.
    """

    def __init__(self, index: int, *, has_timeline: bool) -> None:
        self.index = index
        self.versions: list[int] = []
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
        self.timeline: list[Span] | None = [] if has_timeline else None

    @property
    def next_number(self) -> int:
        """Run-wide number of the worker's next step; 0 if servers grant steps."""
        return self.step_numbers[-1] if self.step_numbers else 0

    def spend(self, phase: str, start: float, end: float) -> None:
        """Record a span of time; `phase`: compute, communicate or wait."""
        if end > start:
            if phase == "wait":
                self.seconds_waiting += end - start
            if self.timeline is not None and self.num_steps < _TIMELINE_STEPS:
                self.timeline.append((self.index, phase, start, end))

    def exchange(self, other: "VirtualWorker", num_bytes: int) -> None:
        """Count a message to another worker."""
        self.bytes_sent += num_bytes
        other.bytes_received += num_bytes

    def report(self) -> WorkerReport:
        """Return a report without a digest of the weights."""
        return WorkerReport(
            worker=self.index,
            steps=self.num_steps,
            step_ends=np.array(self.step_ends),
            weights_digest="",
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
