"""Mixed groups: synchronous inside a group of workers, asynchronous between groups.

A group is a node with its GPUs (Campos et al. 2017, Procedia Computer Science 108).

    worker k:            its gradient goes to the first of its group
    first of a group:    push the mean of the group's gradients; hand on the answer
    server:              at each push   w <- sgd(w, mean);   answer at once

Law: with a single group this is the same as sync_parameter_server, with groups of one worker the
same as async_parameter_server.
"""

from pydantic import Field

from paceline.scheme.audit import ServedLog, not_at_once
from paceline.scheme.rule import AbstractServedScheme, Claim, Sharding
from paceline.scheme.serving import AbstractServing, AtOnce
from paceline.settings import Whole, settings


@settings("scheme")
class Mixed(AbstractServedScheme):
    """The workers of a group push one gradient, their mean. `group_size`: number of workers in a
    group; it must divide the number of all workers.
    """

    servers: Whole = Field()
    group_size: Whole = Field()  # not neutral at 1, since it is in the keys of all earlier records
    sharding: Sharding = "bytes"

    def serving(self, num_workers: int) -> AbstractServing:
        return AtOnce()

    def not_served(self, log: ServedLog) -> str:
        return not_at_once(log)

    def claim(self, num_workers: int) -> Claim:
        if num_workers == self.group_size > 1:
            return "synchronous"
        return "partly asynchronous" if self.group_size > 1 else "asynchronous"
