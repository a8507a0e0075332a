"""Duration of each step of an emulated accelerator: the same random draws on both clocks."""

import math

from paceline.random_bits import normal, uniform
from paceline.settings import Count, NotNegative, Positive, Share, settings


@settings("step_times")
class StepTimes:
    """Durations of all steps of all workers, drawn from `seed`.

    `jitter`: sigma of a log-normal factor of mean 1. Every step of the first `slow_workers`, from
    their step `slow_from` on, takes `slow_factor` times as long; with `straggler_probability` any
    step takes `straggler_factor` times as long. The factors multiply.
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
        """Return the duration of a worker's step [seconds]; steps count from 0.

        It depends on (seed, worker, step) alone.
        """
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
