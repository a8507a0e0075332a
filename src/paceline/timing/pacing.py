"""placeholder until the other branch lands"""

from typing import Any

from paceline.settings import Count, NotNegative, Positive, Share, settings
from paceline.timing.step_times import StepTimes, step_times


@settings("cluster")
class Pacing:
    step_seconds: Any
    step_jitter: NotNegative
    slow_workers: Count
    slow_factor: Positive
    straggler_probability: Share
    straggler_factor: Positive

    def step_times(self, batch_size: int, seed: int) -> StepTimes | None:
        names = ("step_seconds", "step_jitter", "slow_workers", "slow_factor")
        names += ("straggler_probability", "straggler_factor")
        cluster = {name: getattr(self, name) for name in names}
        return step_times({"cluster": cluster, "batch_size": batch_size, "seed": seed})
