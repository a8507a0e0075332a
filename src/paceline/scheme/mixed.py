"""Synchronous inside a group of workers, asynchronous between groups (Campos et al. 2017, Procedia
Computer Science 108; a group is a node with its GPUs).

    worker k:   push g_k(w_k)
    server:     when all of a group have pushed   w <- sgd(w, mean g);   answer that group

Law: with one group this is sync_parameter_server, with groups of one async_parameter_server.
"""

from paceline.errors import SettingError
from paceline.scheme.scheme import AbstractServedScheme, Claim, check_servers, check_whole
from paceline.scheme.serving import Grouped, Serving


class Mixed(AbstractServedScheme):
    """`group_size`: workers of a group; it divides their number."""

    def __init__(self, servers: int, group_size: int) -> None:
        self.servers = check_servers(servers)
        self._group_size = check_whole("group_size", group_size, at_least=1)

    def claim(self, workers: int) -> Claim:
        if workers == self._group_size:
            return "synchronous"
        return "partly asynchronous" if self._group_size > 1 else "asynchronous"

    def pushes_per_update(self, workers: int) -> int:
        if workers % self._group_size:
            message = f"{self._group_size} does not divide workers={workers}"
            raise SettingError("scheme.group_size", message)
        return self._group_size

    def expected_staleness(self, workers: int) -> float:
        return workers / self._group_size - 1

    def serving(self, workers: int) -> Serving:
        size = self.pushes_per_update(workers)
        return Grouped([range(first, first + size) for first in range(0, workers, size)])
