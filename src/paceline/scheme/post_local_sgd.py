"""Post-local SGD (Lin et al. 2018, arXiv:1808.07217): synchronous first, local SGD later.

    until `switch_at` of the run's samples:   g <- mean_k g_k;   w_k <- sgd(w_k, g)
    afterwards, every step:                   w_k <- sgd(w_k, g_k)
    and every `period` steps:                 w_k <- mean_j w_j

Law: switched at 1 this is sync_allreduce, at 0 local_sgd.
"""

from paceline.scheme.scheme import (
    AbstractScheme,
    Adopt,
    Apply,
    Mean,
    Step,
    Turn,
    check_share,
    check_whole,
)


class PostLocalSGD(AbstractScheme):
    """`switch_at`: a share of the run's samples. `period`: steps of each worker between means."""

    def __init__(self, period: int, switch_at: float) -> None:
        self._period = check_whole("period", period, at_least=1)
        self._switch_at = check_share("switch_at", switch_at)

    def step(self, turn: Turn) -> Step:
        if turn.progress < self._switch_at:
            mean = yield Mean(turn.gradient)
            yield Apply(mean)
            return
        weights = yield Apply(turn.gradient)
        if (turn.step + 1) % self._period == 0:
            mean = yield Mean(weights)
            yield Adopt(mean)

    def batches_per_round(self, workers: int) -> int:
        return workers * self._period  # a run ends with a mean
