"""Clusters of real processes, by a wall clock: one process for each worker and each server."""

from abc import ABC
from typing import TYPE_CHECKING

from paceline.cluster.cluster import AbstractCluster, Kind
from paceline.scheme.rule import AbstractScheme
from paceline.settings import settings

if TYPE_CHECKING:
    pass


@settings("cluster")
class AbstractWallClockCluster(AbstractCluster, ABC):
    """A kind of it says, by `run`, how the processes are started and how they find each other."""

    @property
    def kind(self) -> Kind:
        paced = self.step_seconds is not None or self.server_seconds > 0
        return "paced" if paced else "measured"

    def num_processes(self, scheme: AbstractScheme, num_workers: int) -> tuple[int, int]:
        return num_workers, scheme.servers

    def carried_out_by_ddp(self, scheme: AbstractScheme) -> bool:
        return scheme.carried_out_by_ddp
