"""Synchronous SGD by all-reduce (Goyal et al. 2017, arXiv:1706.02677, section 2.3).

    every step:   g <- mean_k g_k;   w <- sgd(w, g)    on every worker

Law: K workers with batches of B/K are one worker with batches of B, momentum and weight decay too.
On real processes this rule is carried out by Lightning's DDP, whose buckets overlap backward.
"""

from paceline.scheme.scheme import AbstractScheme, Apply, Mean, Step, Turn


class SyncAllReduce(AbstractScheme):
    """`collective`: how the mean is formed: native, or on the virtual clock also ring, tree,
    multicolor, parameter_server, which differ in time alone.
    """

    claim = "synchronous"

    def __init__(self, collective: str = "native") -> None:
        self.collective = collective

    def step(self, turn: Turn) -> Step:
        mean = yield Mean(turn.gradient)
        yield Apply(mean)
