"""Settings of an emulated accelerator, common to clusters on both clocks."""

from paceline.settings import Count, NotNegative, Positive, Share, settings
from paceline.timing.step_seconds import StepSeconds, seconds_of_step
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import OWN


@settings("cluster")
class AbstractPacing:
    """Settings by which a worker emulates an accelerator; a cluster inherits them.

    `step_seconds`: mean duration of a step; None if steps are not emulated. `step_jitter`: sigma of
    a log-normal factor of mean 1. Every step of the first `slow_workers` takes `slow_factor` times
    as long; with `straggler_probability` any step takes `straggler_factor` times as long.
    """

    step_seconds: StepSeconds
    step_jitter: NotNegative
    slow_workers: Count
    slow_factor: Positive
    straggler_probability: Share
    straggler_factor: Positive

    def mean_step_seconds(self, batch_size: int, workload: str) -> float | None:
        """Return the mean duration of a step; None if steps are not emulated.

        `workload`: name of the network that the gradients stand for.
        """
        if self.step_seconds is None:
            return None
        return seconds_of_step(self.step_seconds, batch_size)

    def step_times(self, batch_size: int, seed: int, workload: str = OWN) -> StepTimes | None:
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
