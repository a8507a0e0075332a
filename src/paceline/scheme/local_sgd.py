"""Local SGD (Stich 2018, arXiv:1805.09767).

    every step:              w_k <- sgd(w_k, g_k)
    every `period` steps:    w_k <- mean_j w_j

Each worker keeps its own momentum.

Law: with period 1 and no momentum this is sync_allreduce.
"""

from paceline.scheme.scheme import AbstractScheme, Adopt, Apply, Mean, Step, Turn, check_whole


class LocalSGD(AbstractScheme):
    """`period`: steps of each worker from one mean to the next."""

    def __init__(self, period: int) -> None:
        self._period = check_whole("period", period, at_least=1)

    def step(self, turn: Turn) -> Step:
        weights = yield Apply(turn.gradient)
        if (turn.step + 1) % self._period == 0:
            mean = yield Mean(weights)
            yield Adopt(mean)

    def batches_per_round(self, workers: int) -> int:
        return workers * self._period  # a run ends with a mean
