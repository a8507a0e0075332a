"""Cluster on this machine, with new processes for each run."""

from typing import Annotated, Any

import psutil

from paceline.cluster.cluster import AbstractWallClockCluster
from paceline.cluster.launcher import launch_task
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import Count, Neutral, settings

_PROCESS_BYTES = 100 * 2**20  # of a process that has imported torch, at least


@settings("cluster")
class LocalCluster(AbstractWallClockCluster):
    """Cluster on this machine, with new processes for each run. `rank`: of the calling process, if
    it is one of them, for `breakpoint()`, a debugger or a profiler; workers come first.
    """

    rank: Annotated[Count | None, Neutral(None)] = None

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        """Raise SettingError also if the processes do not fit into the memory of this machine."""
        training, servers = self.num_processes(scheme, num_workers)
        most = psutil.virtual_memory().total // _PROCESS_BYTES
        if training + servers > most:
            setting = "scheme.servers" if servers > training else "workers"
            message = f"{training + servers} processes do not fit into this machine's memory"
            raise SettingError(setting, f"{message}, of {most} at most; cluster=virtual needs one")
        super().check(scheme, num_workers)
        if self.rank is not None and self.rank >= training + servers:
            message = f"there are {training + servers} processes, the first is 0, not {self.rank}"
            raise SettingError("cluster.rank", message)

    def run(self, task: Task) -> list[Any]:
        return launch_task(task, own_rank=self.rank)
