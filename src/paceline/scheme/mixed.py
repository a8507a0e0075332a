"""Mixed groups: synchronous inside a group of workers, asynchronous between groups.

A group is a node with its GPUs (Campos et al. 2017, Procedia Computer Science 108).

    worker k:            its gradient goes to the first of its group
    first of a group:    push the mean of the group's gradients; hand on the answer
    server:              at each push   w <- sgd(w, mean);   answer at once

Law: with one group this is sync_parameter_server, with groups of one async_parameter_server.
"""

from pydantic import Field

from paceline.scheme.audit import ServedLog, not_at_once
from paceline.scheme.rule import AbstractServedScheme, Claim, Sharding
from paceline.scheme.serving import AbstractServing, AtOnce
from paceline.settings import Whole, settings


@settings("scheme")
class Mixed(AbstractServedScheme):
    """Workers of a group push as one. `group_size`: workers of a group; it divides their number."""

    servers: Whole = Field()
    group_size: Whole = Field()  # has been in every record of this scheme
    sharding: Sharding = "bytes"

    def serving(self, num_workers: int) -> AbstractServing:
        return AtOnce()

    def not_served(self, log: ServedLog) -> str:
        return not_at_once(log)

    def claim(self, num_workers: int) -> Claim:
        if num_workers == self.group_size:
            return "synchronous"
        return "partly asynchronous" if self.group_size > 1 else "asynchronous"
