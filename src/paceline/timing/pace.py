"""Pacing of real processes: a step takes at least as long as on the emulated accelerator. A worker
computes its real gradient, then sleeps, and only then communicates. If the system wakes it up late,
because many processes share a core, the next step is shorter by that time.
"""

import os
import time
from collections.abc import Sequence

import torch

from paceline.timing.step_times import StepTimes


class Pace:
    """Pace of one worker; `late_steps`: number of steps that really took longer than emulated."""

    def __init__(self, step_times: StepTimes, worker: int) -> None:
        self.late_steps = 0
        self._step_times = step_times
        self._worker = worker
        self._step = 0
        self._overslept = 0.0  # seconds
        self._begun = time.perf_counter()

    def begin(self) -> None:
        """Start a step of the emulated accelerator."""
        self._begun = time.perf_counter() - self._overslept
        self._overslept = 0.0

    def wait(self, exchanging: float = 0.0) -> None:
        """Sleep until the present step would have ended. `exchanging`: seconds of the step in which
        the accelerator would not have computed.
        """
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the gradient may be queued only
        end = self._begun + self._step_times.seconds(self._worker, self._step) + exchanging
        self._step += 1
        remaining = end - time.perf_counter()
        if remaining > 0:
            time.sleep(remaining)
            self._overslept = time.perf_counter() - end
        else:
            self.late_steps += 1

    def state(self) -> tuple[int, int]:
        return self._step, self.late_steps

    def load_state(self, state: Sequence[int]) -> None:
        self._step, self.late_steps = state


def give_way() -> None:
    """Let this worker compute only when no server needs its core (Linux; needs no privilege). A
    server stands for a separate machine. With niceness only, a worker that was just answered keeps
    the server's core for 4 ms, the shortest time slice of the scheduler.
    """
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
