"""Cluster under Slurm. A point runs in an allocation, which `queue/` asks for.

The job's first process is the head; where there are several nodes, srun starts an agent on each.
"""

from collections import Counter
from typing import Any

from paceline.cluster import slurm_allocation
from paceline.cluster.abstract_agents import AbstractAgentsCluster
from paceline.cluster.accelerator import Device
from paceline.cluster.cluster import Task
from paceline.cluster.launcher import launch_task
from paceline.cluster.node_agents import NodeAgents
from paceline.cluster.slurm_queue import SlurmQueue
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import settings


@settings("cluster")
class SlurmCluster(SlurmQueue, AbstractAgentsCluster):
    """Cluster under Slurm, of as many nodes as a point needs."""

    def num_nodes(self, num_training: int, num_servers: int) -> int:
        apart = num_servers if self.server_placement == "own_nodes" else 0
        return -(-num_training // (self.workers_per_node or num_training)) + apart

    def device(self, scheme: AbstractScheme, num_workers: int) -> Device:
        return "cuda" if self.accelerator == "gpu" else "cpu"

    def needs(self, num_training: int, num_servers: int) -> dict[str, Any]:
        """Return what a point with so many processes asks of Slurm, by submitit's names."""
        places = self.places(num_training, num_servers)
        crowd = max(Counter(places).values())
        needed: dict[str, Any] = {
            "nodes": 1 + max(places),
            "ntasks_per_node": 1,  # the head or an agent, which starts the others
            "cpus_per_task": crowd * self.threads_per_worker,
            **self.asked,
        }
        if self.accelerator == "gpu":
            needed["gpus_per_node"] = max(Counter(places[:num_training]).values())
        return needed

    def agents(self, num_nodes: int) -> NodeAgents:
        return slurm_allocation.agents(num_nodes, self.patience_seconds)

    def run(self, task: Task) -> list[Any]:
        if not slurm_allocation.is_inside():
            message = "its points run in jobs; paceline sweep and paceline train queue them"
            raise SettingError("cluster", message)
        if self.num_nodes(task.num_training, task.num_servers) == 1:
            return launch_task(task)
        return super().run(task)
