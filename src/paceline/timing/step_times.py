"""Durations of an accelerator's steps: means, and random draws that are the same on both clocks;
and the pace of real processes, whose steps take at least as long.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from paceline.random_bits import normal, uniform
from paceline.settings import Count, NotNegative, Positive, Share, Whole, settings
from paceline.timing.workload import AbstractWorkload, OwnNetwork

TRAINED = OwnNetwork()


def interpolated(values: Mapping[int, float], at: int) -> float:
    """Return the value at the number `at`, linear between those in `values`, constant beyond."""
    known = sorted(values)
    return float(np.interp(at, known, [values[each] for each in known]))


def _in_one_line(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Replace pydantic's errors, one for each possible form of the setting, by a single one."""
    try:
        return check(value)
    except ValidationError:
        needed = "a number above 0, or {batch_size: seconds} with numbers above 0, is needed"
        raise ValueError(needed) from None


# Seconds, or {images per worker and step: seconds}; None: steps are not emulated.
StepSeconds = Annotated[
    Positive | Annotated[dict[Whole, Positive], Field(min_length=1)] | None,
    WrapValidator(_in_one_line),
]


def seconds_of_step(step_seconds: float | Mapping[int, float], batch_size: int) -> float:
    """Return the mean duration of a step with `batch_size` images [seconds]. It is linear between
    the batch sizes of a mapping, and proportional to the nearest one beyond them.
    """
    if not isinstance(step_seconds, Mapping):
        return step_seconds
    nearest = min(max(batch_size, min(step_seconds)), max(step_seconds))
    if nearest != batch_size:
        return step_seconds[nearest] * batch_size / nearest
    return interpolated(step_seconds, batch_size)


@settings("cluster.step_rates")
class StepRate:
    """Rate of an accelerator: a step with b images takes `fixed` + `per_image` * b [seconds].
    `batch_sizes`: least and greatest batch size of the data to which it was fitted. `rows`: ids of
    these data in papers/published.csv.
    """

    fixed: NotNegative
    per_image: Positive
    batch_sizes: tuple[Whole, Whole]
    rows: list[str]

    def seconds(self, batch_size: int) -> float:
        """Return the mean duration of a step with `batch_size` images [seconds]."""
        return self.fixed + self.per_image * batch_size

    def covers(self, batch_size: int) -> bool:
        """Return True if `batch_size` is in the range of the data to which the rate was fitted."""
        least, greatest = self.batch_sizes
        return least <= batch_size <= greatest


@settings("step_times")
class StepTimes:
    """Durations of all steps of all workers, drawn from `seed`. `jitter`: sigma of a log-normal
    factor of mean 1. Steps of the first `slow_workers` workers, from step `slow_from` on, take
    `slow_factor` times as long. Any step takes `straggler_factor` times as long with
    `straggler_probability`. The factors multiply.
    """

    step_seconds: Positive = 1.0
    jitter: NotNegative = 0.0
    slow_workers: Count = 0
    slow_factor: Positive = 1.0
    straggler_probability: Share = 0.0
    straggler_factor: Positive = 1.0
    seed: Count = 0
    slow_from: Count = 0

    def seconds(self, worker: int, step: int) -> float:
        """Return the duration of a step [seconds], which depends only on (seed, worker, step)."""
        seconds = self.step_seconds
        if worker < self.slow_workers and step >= self.slow_from:
            seconds *= self.slow_factor
        if self.straggler_probability and (
            uniform(step, "straggler", self.seed, worker) < self.straggler_probability
        ):
            seconds *= self.straggler_factor
        if self.jitter:
            drawn = normal(step, "jitter", self.seed, worker)
            seconds *= math.exp(self.jitter * drawn - self.jitter**2 / 2)
        return seconds


@settings("cluster")
class AbstractPacing:
    """Settings by which a worker emulates an accelerator, for clusters on both clocks.
    `step_seconds`: mean duration of a step; None if steps are not emulated. StepTimes documents the
    other settings; `step_jitter` is the `jitter` of StepTimes.
    """

    step_seconds: StepSeconds
    step_jitter: Annotated[float, Field(strict=True, ge=0, le=1.5)]  # more has no mean in practice
    slow_workers: Count
    slow_factor: Positive
    straggler_probability: Share
    straggler_factor: Positive

    def mean_step_seconds(
        self, batch_size: int, workload: AbstractWorkload = TRAINED
    ) -> float | None:
        """Return the mean duration of a step of this network; None if steps are not emulated."""
        if self.step_seconds is None:
            return None
        return seconds_of_step(self.step_seconds, batch_size)

    def step_times(
        self, batch_size: int, seed: int, workload: AbstractWorkload = TRAINED
    ) -> StepTimes | None:
        """Return the durations of all steps; None if steps are not emulated."""
        seconds = self.mean_step_seconds(batch_size, workload)
        if seconds is None:
            return None
        return StepTimes(
            step_seconds=seconds,
            jitter=self.step_jitter,
            slow_workers=self.slow_workers,
            slow_factor=self.slow_factor,
            straggler_probability=self.straggler_probability,
            straggler_factor=self.straggler_factor,
            seed=seed,
        )


class Pace:
    """Pace of one real worker. It computes its gradient, then sleeps, and only then communicates.
    If the system wakes it up late, because many processes share a core, the next step is shorter by
    that time. `late_steps`: number of steps that really took longer than emulated.
    """

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
        import torch  # takes seconds

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
