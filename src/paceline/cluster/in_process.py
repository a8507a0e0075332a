"""Variant of a local cluster for debugging, which runs one process of the run in the calling
process.

`paceline train cluster=in_process cluster.rank=0 workers=2` runs worker 0 in the foreground for
`breakpoint()`, a debugger or a profiler. The other processes run as with `cluster=local`.
"""

from typing import Any

from paceline.cluster.cluster import AbstractWallClockCluster
from paceline.cluster.launcher import launch_task
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import Count, settings


@settings("cluster")
class InProcessCluster(AbstractWallClockCluster):
    """Cluster on this machine, where the calling process has this `rank`, workers first."""

    rank: Count

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        super().check(scheme, num_workers)
        num_processes = sum(self.num_processes(scheme, num_workers))
        if self.rank >= num_processes:
            message = f"there are {num_processes} processes, the first is 0, not {self.rank}"
            raise SettingError("cluster.rank", message)

    def run(self, task: Task) -> list[Any]:
        return launch_task(task, own_rank=self.rank)
