"""Places of a split worker's processes on a modelled cluster, and the time of their messages.

Processes fill one node after the other, all of a worker before those of the next; so
`workers_per_node` counts processes.
"""

from dataclasses import replace

from paceline.errors import SettingError
from paceline.timing.profile import ClusterProfile
from paceline.timing.split_step import ShardMessages
from paceline.timing.step_times import interpolated


def check_places(profile: ClusterProfile, workers: int, shards: int) -> None:
    """Raise SettingError("model.shards") where workers would share nodes in different ways."""
    room = profile.workers_per_node
    if room is not None and workers * shards > room and room % shards and shards % room:
        message = (
            f"{shards} processes of each worker do not divide nodes of {room}, nor the reverse"
        )
        raise SettingError("model.shards", message)


def seconds_inside(
    messages: ShardMessages, profile: ClusterProfile, workers: int, shards: int
) -> float:
    """Model the seconds of an exchange among the `shards` processes of each worker.

    A process sends its messages one after the other: latency counts for each of them. They pass the
    node's inner link, that of all-reduces, or, if the worker has processes on several nodes, the
    link between these, which each node's processes share where each sends to each other. Nothing is
    over before the cores of a node have passed the messages of all its processes, with all
    `workers` at it at once.
    """
    link = profile.allreduce_link or profile.node_link
    of_node, sharing = profile.largest_node(workers * shards), 1.0
    if of_node < shards:
        link = profile.link
        sharing = of_node * (shards - of_node) / (shards - 1) if messages.to_each else 1.0
    seconds = messages.num_messages * link.latency + sharing * messages.num_bytes / link.bandwidth
    if profile.node_cores is None:
        return seconds
    inner = replace(profile, node_link=profile.allreduce_link or profile.node_link)
    senders = messages.num_senders * of_node / shards
    count, num_bytes = senders * messages.num_messages, senders * messages.num_bytes
    return max(seconds, inner.core_seconds(count, num_bytes, of_node) / profile.node_cores)


def of_first_processes(profile: ClusterProfile, shards: int) -> ClusterProfile:
    """Return the profile for messages between only the first processes of workers."""
    room = profile.workers_per_node
    return replace(profile, workers_per_node=room and max(1, room // shards))


def of_like_processes(profile: ClusterProfile, workers: int, shards: int) -> ClusterProfile:
    """Return the profile for messages between the processes with the same slices.

    `shards` groups, of a process of each worker, are at it at once: those on a node share its link
    and its cores.
    """
    groups = min(shards, profile.workers_per_node or shards)
    firsts = of_first_processes(profile, shards)
    of_node = firsts.largest_node(workers)
    named = {"message_seconds": profile.message_seconds}
    named["message_bandwidth"] = profile.message_bandwidth
    by_workers = {
        name: {of_node: interpolated(values, groups * of_node)} if values else values
        for name, values in named.items()
    }
    return replace(
        firsts,
        link=replace(profile.link, bandwidth=profile.link.bandwidth / groups),
        node_cores=None if profile.node_cores is None else profile.node_cores / groups,
        **by_workers,
    )
