"""Parts of a modelled cluster: nodes, links, servers, topology and software. A split worker is one
whose network is divided over several processes. All processes of one worker are placed before those
of the next, and fill one node after the other; `workers_per_node` then counts processes.
"""

import math
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from paceline.errors import SettingError
from paceline.settings import Bandwidth, Neutral, NotNegative, Positive, Whole, settings
from paceline.timing.split_plan import ShardMessages
from paceline.timing.step_times import interpolated, seconds_of_step

# How the accelerators of a machine are connected. `unshared`: each has a link of its own to every
# other, or what they share is not modelled. So it is with `nvswitch` (a crossbar), with `nvlink`
# (for neighbours in a ring), and with `pcie_switch`, which passes all its ports at once: under two
# switches 8 Titan X sum at 8.2 GB/s each, and 2 at 11.3 (github.com/NVIDIA/nccl/issues/44).
# `pcie_host`: all messages pass the host's PCIe root and memory, one at a time (so Dell's reference
# guide Deep Learning with NVIDIA, v1.0, section 3.1.3, of four V100 under PCIe).
Topology = Annotated[
    Literal["unshared", "nvswitch", "nvlink", "pcie_switch", "pcie_host"] | None,
    Neutral("unshared"),
]
_AT_ONCE = {"pcie_host": 1.0}  # one message at a time

# When software reduces gradients: True while the backward pass runs, as they become ready.
_DURING_BACKWARD = {
    "ddp": True,  # buckets of 25 MB (Li et al. 2020, arXiv:2006.15704, section 3.2.3)
    "horovod": True,  # fused tensors, every few ms (Sergeev & Del Balso 2018, arXiv:1802.05799)
    "mxnet": True,  # its engine starts what waits for nothing (Chen et al. 2015, arXiv:1512.01274)
    "tensorflow1": False,  # assumption
    "caffe": False,  # assumption
}


def messages_at_once(topology: str | None) -> float | None:
    """Return how many messages the machine passes at once; None for no limit."""
    return _AT_ONCE.get(topology or "")


def _during_backward(value: Any) -> Any:
    """Return what the software does, or the value itself if it is none of them."""
    if isinstance(value, str) and value not in _DURING_BACKWARD:
        known = ", ".join(_DURING_BACKWARD)
        raise ValueError(f"true, false or one of {known} is needed")
    return _DURING_BACKWARD[value] if isinstance(value, str) else value


Overlap = Annotated[bool, Field(strict=True), BeforeValidator(_during_backward), Neutral(True)]


@settings("cluster.link")
class Link:
    """A full-duplex link. `latency`: seconds; `bandwidth`: bytes/s in each direction, inf (or None)
    for no limit. `unevenness`: sigma, at most 2, of the log-normal weights by which simultaneous
    answers of a server share its link.
    """

    latency: NotNegative
    bandwidth: Bandwidth
    unevenness: Annotated[float, Field(strict=True, ge=0, le=2), Neutral(0)] = 0.0

    def seconds(self, num_bytes: float) -> float:
        """Return the time from the departure of the first byte to the arrival of the last."""
        return self.latency + num_bytes / self.bandwidth


ServerPlacement = Annotated[Literal["own_nodes", "beside_workers"], Neutral("own_nodes")]


@settings("cluster.shared_cores")
class SharedCores:
    """Measurements of cores that all workers and servers of one machine share.

    `step_seconds`: mean step time of a single worker by batch size. `speeds`: for each number n of
    processes, how many times as much they compute together as a single process in the same time; n
    = 1 is required. `ddp_seconds`: what DistributedDataParallel adds to a step. `push_seconds`,
    `allreduce_seconds`: what an exchange adds to a step besides its own time, because the step then
    finds its data no longer in the caches, and a process may lose its core.
    """

    step_seconds: dict[Whole, Positive]
    speeds: dict[Whole, Positive]
    ddp_seconds: NotNegative
    push_seconds: NotNegative = 0.0
    allreduce_seconds: NotNegative = 0.0

    def __post_init__(self) -> None:
        if not self.step_seconds:
            raise SettingError("cluster.shared_cores.step_seconds", "no batch size is given")
        if self.speeds.get(1) != 1:
            message = "the speed of a single process must be 1: {1: 1, ...} is needed"
            raise SettingError("cluster.shared_cores.speeds", message)

    def mean_step_seconds(self, batch_size: int) -> float:
        """Return the mean step time of a single worker [seconds]."""
        return seconds_of_step(self.step_seconds, batch_size)

    def speed(self, processes: int) -> float:
        """Return what so many processes compute together, interpolated linearly."""
        return interpolated(self.speeds, processes)


@settings("cluster")
class ClusterProfile:
    """Cost of messages and servers on a modelled cluster, and placement of workers on nodes.

    Each process of a split worker counts as a worker, and computes an equal share of its step.

    `link`: network interface that the workers of a node share. `node_link`: link of one worker or
    server inside a node. `workers_per_node`: number of workers on a node; None if all processes are
    on one machine. `server_placement`: each server is on its own node, or servers are on the
    workers' nodes in turn. `topology`: how the accelerators of a node are connected; None if it is
    not known. `node_cores`: number of messages that pass inside a node at once, each on a core;
    None for what the topology allows. `message_seconds`: seconds that a core takes for a message of
    an all-reduce, besides its bytes; 0 if empty.
    `message_bandwidth`: rate at which a core passes the bytes of this message [bytes/s]; that of
    `node_link` if empty. These two map numbers of workers on a node to values, which are
    interpolated linearly, and constant beyond the given numbers. `allreduce_link`: link of
    all-reduces inside a node; None for `node_link`. `overlap`: True if gradients are reduced in
    buckets during backward, as under DDP; False if they are reduced after backward. `shared_cores`:
    cores on which all processes of one machine compute; None if each has its own processor.

    A server does one thing at a time. It takes `server_seconds` for a push, and updates its weights
    at `server_bandwidth` [bytes/s]. Between nodes it also handles each message, a push that it
    receives or an answer that it sends: `server_tensor_seconds` for each of the message's tensors,
    and its bytes at `server_copy_bandwidth` [bytes/s] (copies, serialisation, checksums). On one
    machine `node_link` includes that.
    """

    link: Link
    node_link: Link
    workers_per_node: Whole | None
    server_seconds: NotNegative
    server_bandwidth: Bandwidth
    node_cores: Positive | None = None
    message_seconds: dict[Whole, NotNegative] = field(default_factory=dict[Whole, NotNegative])
    message_bandwidth: dict[Whole, Positive] = field(default_factory=dict[Whole, Positive])
    allreduce_link: Link | None = None
    overlap: Overlap = True
    server_placement: ServerPlacement = "own_nodes"
    shared_cores: SharedCores | None = None
    topology: Topology = "unshared"
    server_tensor_seconds: NotNegative = 0.0
    server_copy_bandwidth: Bandwidth = math.inf

    @property
    def one_machine(self) -> bool:
        """True if all workers and servers are on one machine."""
        return self.workers_per_node is None

    def added_seconds(self, by: Literal["ddp", "push", "allreduce"]) -> float:
        """Return the seconds that DistributedDataParallel, a push or an all-reduce adds to a step
        on shared cores, besides its messages; 0 on other ones.
        """
        return getattr(self.shared_cores, f"{by}_seconds", 0.0)

    @property
    def at_once(self) -> float | None:
        """Number of messages that pass inside a node at once; None for no limit."""
        return messages_at_once(self.topology) if self.node_cores is None else self.node_cores

    @property
    def in_all_reduce(self) -> "ClusterProfile":
        """This profile with the link of all-reduces inside a node."""
        link = self.allreduce_link
        return self if link is None else replace(self, node_link=link)

    def server_message_seconds(self, tensors: int, num_bytes: float) -> float:
        """Return the seconds in which a server handles a message between nodes."""
        return tensors * self.server_tensor_seconds + num_bytes / self.server_copy_bandwidth

    def core_seconds(self, num_messages: float, num_bytes: float, workers: int) -> float:
        """Return the time of a node's cores for messages of an all-reduce among its `workers`."""
        at_once = self.at_once
        if at_once is None:
            return 0.0
        each = interpolated(self.message_seconds or {1: 0.0}, workers)
        bandwidth = interpolated(self.message_bandwidth or {1: self.node_link.bandwidth}, workers)
        return (num_messages * each + num_bytes / bandwidth) / at_once

    def overlaps(self, workers: int) -> bool:
        """Return True if gradients are reduced during backward, on cores without a worker."""
        busy = self.shared_cores is not None and workers >= (self.node_cores or math.inf)
        return self.overlap and not busy

    def num_nodes(self, workers: int) -> int:
        """Count the nodes of `workers` workers, without nodes of servers."""
        return 1 if self.workers_per_node is None else math.ceil(workers / self.workers_per_node)

    def node_of(self, worker: int) -> int:
        """Return the number of the worker's node."""
        return 0 if self.workers_per_node is None else worker // self.workers_per_node

    def largest_node(self, workers: int) -> int:
        """Count the workers on the first node, which is the fullest."""
        return min(workers, self.workers_per_node or workers)

    def levels(self, workers: int) -> list[tuple[Link, int]]:
        """List the links that connect all `workers`, each with its number of participants: the
        workers of the fullest node, then the nodes. A link with only one participant is left out.
        """
        inside, nodes = self.largest_node(workers), self.num_nodes(workers)
        levels = [(self.node_link, inside), (self.link, nodes)]
        return [(link, count) for link, count in levels if count > 1]


def check_places(profile: ClusterProfile, workers: int, shards: int) -> None:
    """Raise SettingError("model.shards") if workers would be placed on nodes in different ways."""
    room = profile.workers_per_node
    if room is not None and workers * shards > room and room % shards and shards % room:
        message = (
            f"{shards} processes of each worker do not divide nodes of {room}, nor the reverse"
        )
        raise SettingError("model.shards", message)


def check_topology(profile: ClusterProfile, processes: int) -> None:
    """Raise SettingError("cluster.topology") if some of the processes share a machine, and it is
    not known how its accelerators are connected.
    """
    on_node = profile.largest_node(processes)
    if on_node > 1 and profile.topology is None and profile.node_cores is None:
        message = (
            f"how the {on_node} accelerators of a machine are connected is not known; nvswitch, "
            "nvlink, pcie_switch or pcie_host is needed, and what one accelerator sends as "
            "cluster.node_link.bandwidth"
        )
        raise SettingError("cluster.topology", message)


def seconds_inside(
    messages: ShardMessages, profile: ClusterProfile, workers: int, shards: int
) -> float:
    """Model the seconds of an exchange among the `shards` processes of each worker.

    A process sends its messages one after the other, each with the latency of the link: that of
    all-reduces inside the node, or, if a worker has processes on several nodes, the link between
    these, which the processes of a node share if each sends to each other. It takes at least as
    long as the cores of a node need for the messages of all its processes.
    """
    profile = profile.in_all_reduce
    of_node, link, sharing = profile.largest_node(workers * shards), profile.node_link, 1.0
    if of_node < shards:
        link = profile.link
        sharing = of_node * (shards - of_node) / (shards - 1) if messages.to_each else 1.0
    seconds = messages.num_messages * link.latency + sharing * messages.num_bytes / link.bandwidth
    senders = messages.num_senders * of_node / shards
    count, num_bytes = senders * messages.num_messages, senders * messages.num_bytes
    return max(seconds, profile.core_seconds(count, num_bytes, of_node))


def of_first_processes(profile: ClusterProfile, shards: int) -> ClusterProfile:
    """Return the profile for messages between the first processes of workers only."""
    room = profile.workers_per_node
    return replace(profile, workers_per_node=room and max(1, room // shards))


def of_like_processes(profile: ClusterProfile, workers: int, shards: int) -> ClusterProfile:
    """Return the profile for messages between those processes of different split workers that hold
    the same slices of the network. There are `shards` groups with one process of each worker;
    groups on the same node share its link and its cores.
    """
    groups = min(shards, profile.workers_per_node or shards)
    firsts = of_first_processes(profile, shards)
    of_node = firsts.largest_node(workers)

    def of_all(by_workers: dict[int, float]) -> dict[int, float]:
        return by_workers and {of_node: interpolated(by_workers, groups * of_node)}

    return replace(
        firsts,
        link=replace(profile.link, bandwidth=profile.link.bandwidth / groups),
        node_cores=profile.at_once and profile.at_once / groups,
        message_seconds=of_all(profile.message_seconds),
        message_bandwidth=of_all(profile.message_bandwidth),
    )


def shuffle_seconds(num_bytes: np.ndarray, profile: ClusterProfile) -> float:
    """Return the seconds of an all-to-all by pairwise exchange.

    `num_bytes` [senders, receivers]: bytes from each worker to each worker. p workers take p - 1
    rounds with a latency each, and the time of the fullest link for its bytes: those that a worker
    sends or receives inside its node, or those that all workers of a node exchange with others
    (Thakur, Rabenseifner, Gropp 2005, IJHPCA 19(1): (p - 1) latency + n / BW if each of p nodes
    sends n bytes). The cores of a node pass the bytes inside it.
    """
    nodes = np.array([profile.node_of(worker) for worker in range(len(num_bytes))])
    same = nodes[:, None] == nodes
    within = np.where(same, num_bytes, 0)
    across = num_bytes - within
    busiest = max(within.sum(0).max(), within.sum(1).max())  # most bytes of a worker in its node
    members = [nodes == node for node in sorted(set(nodes.tolist()))]  # of each node
    by_core = max(within[of_node].sum() for of_node in members) / (profile.at_once or math.inf)
    outside = max(max(across[each].sum(), across[:, each].sum()) for each in members)
    inside_seconds = max(busiest, by_core) / profile.node_link.bandwidth
    link = profile.node_link if same.all() else profile.link
    latency = (len(num_bytes) - 1) * link.latency
    return float(latency + max(inside_seconds, outside / profile.link.bandwidth))
