"""Cluster on this machine, with new processes for each run."""

from typing import Any

from paceline.cluster.cluster import Task
from paceline.cluster.launcher import launch_task
from paceline.cluster.wall_clock import AbstractWallClockCluster
from paceline.settings import settings


@settings("cluster")
class LocalCluster(AbstractWallClockCluster):
    """Cluster on this machine, with new processes for each run."""

    def run(self, task: Task) -> list[Any]:
        return launch_task(task)
