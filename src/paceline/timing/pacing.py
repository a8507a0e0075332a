"""The settings of an emulated accelerator, which clusters on either clock have in common."""

from paceline.settings import Count, NotNegative, Positive, Share, settings
from paceline.timing.step_seconds import StepSeconds, seconds_of_step
from paceline.timing.step_times import StepTimes


@settings("cluster")
class AbstractPacing:
    """Settings by which a worker stands for an accelerator; a cluster inherits them.

    `step_seconds` None: steps take as long as they really take. `step_jitter`: sigma of a
    log-normal factor of mean 1. The first `slow_workers` are slow by `slow_factor` in every step;
    any worker is slow by `straggler_factor` in a step with `straggler_probability`.
    """

    step_seconds: StepSeconds
    step_jitter: NotNegative
    slow_workers: Count
    slow_factor: Positive
    straggler_probability: Share
    straggler_factor: Positive

    def step_times(self, batch_size: int, seed: int) -> StepTimes | None:
        """Return the duration of each step; None where nothing is emulated."""
        if self.step_seconds is None:
            return None
        return StepTimes(
            step_seconds=seconds_of_step(self.step_seconds, batch_size),
            jitter=self.step_jitter,
            slow_workers=self.slow_workers,
            slow_factor=self.slow_factor,
            straggler_probability=self.straggler_probability,
            straggler_factor=self.straggler_factor,
            seed=seed,
        )
