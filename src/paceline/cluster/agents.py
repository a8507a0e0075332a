"""Cluster of machines on which somebody started `paceline agent`: by hand, ssh, srun, kubectl.

The head listens on PACELINE_HEAD (HOST:PORT); agents connect to it, and know PACELINE_AGENT_KEY.
Neither is a setting, so that the same points are the same on other machines.
"""

from functools import cache
from typing import Annotated

from paceline.cluster.abstract_agents import AbstractAgentsCluster
from paceline.cluster.node_agent import agent_key, head
from paceline.cluster.node_agents import NodeAgents
from paceline.settings import UNKEYED, Positive, Whole, settings


@settings("cluster")
class AgentsCluster(AbstractAgentsCluster):
    """Cluster of `nodes` machines with an agent each.

    `patience_seconds`: time to wait for agents that are missing when a run starts.
    """

    nodes: Whole
    patience_seconds: Annotated[Positive, UNKEYED]

    def num_nodes(self, num_training: int, num_servers: int) -> int:
        return self.nodes

    def agents(self, num_nodes: int) -> NodeAgents:
        agents = _listening(head(), agent_key())
        agents.meet(num_nodes, self.patience_seconds)
        return agents


@cache
def _listening(address: tuple[str, int], key: bytes) -> NodeAgents:
    """Listen from the first run of this process to its end."""
    return NodeAgents(address, key)
