"""Cluster under Slurm. A point runs in an allocation, which `queue/` asks for.

The job's first process is the head; where there are several nodes, srun starts an agent on each.
"""

from collections import Counter
from typing import Annotated, Any

from paceline.cluster import slurm_allocation
from paceline.cluster.abstract_agents import AbstractAgentsCluster
from paceline.cluster.accelerator import Device
from paceline.cluster.cluster import Task
from paceline.cluster.launcher import launch_task
from paceline.cluster.node_agents import NodeAgents
from paceline.cluster.slurm_queue import SlurmQueue
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import UNKEYED, Positive, settings


@settings("cluster")
class SlurmCluster(SlurmQueue, AbstractAgentsCluster):
    """Cluster under Slurm, of as many nodes as a point needs.

    `patience_seconds`: time to wait for the agents of a job's nodes.
    """

    patience_seconds: Annotated[Positive, UNKEYED]

    def num_nodes(self, num_training: int, num_servers: int) -> int:
        apart = num_servers if self.server_placement == "own_nodes" else 0
        return -(-num_training // (self.workers_per_node or num_training)) + apart

    def device(self, scheme: AbstractScheme, num_workers: int) -> Device:
        return "cuda" if self.accelerator == "gpu" else "cpu"

    @property
    def submitted_to(self) -> SlurmQueue:
        return self

    def needs_of(self, num_training: int, num_servers: int) -> dict[str, Any]:
        places = self.places(num_training, num_servers)
        gpus = max(Counter(places[:num_training]).values()) if self.accelerator == "gpu" else None
        cpus = max(Counter(places).values()) * self.threads_per_worker
        return self.needs(1 + max(places), cpus, gpus)

    def agents(self, num_nodes: int) -> NodeAgents:
        return slurm_allocation.agents(num_nodes, self.patience_seconds)

    def run(self, task: Task) -> list[Any]:
        if not slurm_allocation.is_inside():
            message = "its points run in jobs; paceline sweep and paceline train queue them"
            raise SettingError("cluster", message)
        if self.num_nodes(task.num_training, task.num_servers) == 1:
            return launch_task(task)
        return super().run(task)
