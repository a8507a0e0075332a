"""Synchronous inside a group of workers, asynchronous between groups (Campos et al. 2017, Procedia
Computer Science 108; a group is a node with its GPUs).

    worker k:            its gradient goes to the first of its group
    first of a group:    push the mean of the group's gradients; hand on the answer
    server:              at each push   w <- sgd(w, mean);   answer at once

Law: with one group this is sync_parameter_server, with groups of one async_parameter_server.
"""

from paceline.errors import SettingError
from paceline.scheme.rule import AbstractServedScheme, Claim, check_servers, check_whole
from paceline.scheme.serving import AtOnce, Serving


class Mixed(AbstractServedScheme):
    """`group_size`: workers of a group; it divides their number."""

    def __init__(self, servers: int, group_size: int) -> None:
        self.servers = check_servers(servers)
        self.group_size = check_whole("group_size", group_size, at_least=1)
        self.steps_per_push = self.group_size

    def claim(self, workers: int) -> Claim:
        if workers == self.group_size:
            return "synchronous"
        return "partly asynchronous" if self.group_size > 1 else "asynchronous"

    def pushes_per_update(self, workers: int) -> int:
        if workers % self.group_size:
            message = f"{self.group_size} does not divide workers={workers}"
            raise SettingError("scheme.group_size", message)
        return self.group_size

    def expected_staleness(self, workers: int) -> float:
        return workers / self.group_size - 1

    def serving(self, workers: int) -> Serving:
        return AtOnce()
