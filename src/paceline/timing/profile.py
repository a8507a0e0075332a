"""What a cluster that is modelled is made of: its nodes, their links, its servers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from paceline.errors import SettingError


@dataclass(frozen=True)
class Link:
    """Each direction by itself. `latency`: seconds; `bandwidth`: bytes/s, inf for no limit."""

    latency: float
    bandwidth: float

    def seconds(self, num_bytes: float) -> float:
        """From the first byte's leaving to the last one's being there."""
        return self.latency + num_bytes / self.bandwidth


@dataclass(frozen=True)
class ClusterProfile:
    """`link`: the network interface that the workers of a node share; `node_link`: a worker's or
    server's own inside a node. `workers_per_node` None: all processes are on one machine; else
    servers are on nodes of their own, one each. `node_cores`: cores that pass the messages inside a
    node, each of which keeps one busy; None: enough for all at once. `allreduce_link`: what
    all-reduces go over inside a node, where that is not what pushes do; None: the same.

    A server takes `server_seconds` for a push, and updates `server_bandwidth` bytes of weights a
    second besides.
    """

    link: Link
    node_link: Link
    workers_per_node: int | None
    server_seconds: float
    server_bandwidth: float
    node_cores: int | None = None
    allreduce_link: Link | None = None

    @property
    def one_machine(self) -> bool:
        """Workers and servers are on the same."""
        return self.workers_per_node is None

    def num_nodes(self, workers: int) -> int:
        """Nodes that so many workers fill, the last one maybe in part; servers' are not counted."""
        return 1 if self.workers_per_node is None else math.ceil(workers / self.workers_per_node)

    def largest_node(self, workers: int) -> int:
        """Count the workers on the first node, which is full if any is."""
        return min(workers, self.workers_per_node or workers)

    def levels(self, workers: int) -> list[tuple[Link, int]]:
        """List the links over which `workers` meet, and how many meet over each.

        First the workers of the fullest node, then the nodes; a link over which nobody has to meet
        is left out.
        """
        inside, nodes = self.largest_node(workers), self.num_nodes(workers)
        levels = [(self.node_link, inside), (self.link, nodes)]
        return [(link, count) for link, count in levels if count > 1]

    def node_of(self, worker: int) -> int:
        """Workers fill one node after the other."""
        return 0 if self.workers_per_node is None else worker // self.workers_per_node


def profile_of(cluster: Mapping[str, Any]) -> ClusterProfile:
    """By the settings of `conf/cluster`; SettingError names the first that makes no sense."""
    return ClusterProfile(
        link=_link(cluster, "link"),
        node_link=_link(cluster, "node_link"),
        workers_per_node=_count(cluster, "workers_per_node"),
        server_seconds=_at_least_0(cluster, "server_seconds"),
        server_bandwidth=_bandwidth(cluster, "server_bandwidth"),
        node_cores=_count(cluster, "node_cores"),
        allreduce_link=_link(cluster, "allreduce_link") if "allreduce_link" in cluster else None,
    )


def _link(cluster: Mapping[str, Any], name: str) -> Link:
    link = _setting(cluster, name)
    if not isinstance(link, Mapping):
        raise _refusal(name, "{latency: seconds, bandwidth: bytes/s or null}", link)
    return Link(
        latency=_at_least_0(link, "latency", f"{name}."),
        bandwidth=_bandwidth(link, "bandwidth", f"{name}."),
    )


def _count(cluster: Mapping[str, Any], name: str) -> int | None:
    value = _setting(cluster, name)
    if value is not None and (type(value) is not int or value < 1):
        raise _refusal(name, "null or a whole number of at least 1", value)
    return value


def _at_least_0(settings: Mapping[str, Any], name: str, prefix: str = "") -> float:
    value = _setting(settings, name, prefix)
    if not _is_number(value) or value < 0:
        raise _refusal(prefix + name, "a number of at least 0", value)
    return float(value)


def _bandwidth(settings: Mapping[str, Any], name: str, prefix: str = "") -> float:
    value = _setting(settings, name, prefix)
    if value is None:
        return math.inf
    if not _is_number(value) or value <= 0:
        raise _refusal(prefix + name, "null or a number above 0", value)
    return float(value)


def _setting(settings: Mapping[str, Any], name: str, prefix: str = "") -> Any:
    if name not in settings:
        raise SettingError(f"cluster.{prefix}{name}", "a modelled cluster needs it")
    return settings[name]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _refusal(name: str, needed: str, value: Any) -> SettingError:
    return SettingError(f"cluster.{name}", f"{needed} is needed, not {value!r}")
