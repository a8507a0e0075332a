"""What one process of a point does, by its rank: workers first, then servers."""

import resource
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.cluster.accelerator import choose
from paceline.cluster.child import tolerate
from paceline.exchange.process_group import join, leave
from paceline.record.point import is_virtual, kind, num_servers, num_workers
from paceline.run.quiet import silence
from paceline.run.scheme_of import scheme_of
from paceline.run.worker import Worker
from paceline.timing.pace import give_way
from paceline.wall_clock.server import serve


def run(config: dict[str, Any], folder: str) -> Any:
    """Take part in the point that `config` describes; `folder`: its record in the making.

    Returns what this process saw, in plain values and numpy arrays; on the virtual clock a list of
    what each worker and server saw.
    """
    silence()
    torch.set_num_threads(config["cluster"]["threads_per_worker"])
    join(
        config["cluster"]["timeout_seconds"],
        choose(config["cluster"]["accelerator"], num_workers(config)),
    )
    scheme = scheme_of(config)
    if dist.get_rank() < num_workers(config):
        if kind(config) == "paced" and num_servers(config):
            give_way()
        seen = Worker(config, scheme, Path(folder)).run()
    else:
        seen = [asdict(serve(scheme, tolerate))]
    leave()  # not after an error: peers would report the closed connection first
    peak = {"peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    each_seen = [each | peak for each in seen]
    return each_seen if is_virtual(config) else each_seen[0]
