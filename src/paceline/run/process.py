"""Function that each process of a point runs: it trains or serves, by its rank."""

import resource
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.clock.reports import ServerReport
from paceline.clock.wall.server import serve
from paceline.cluster.child import tolerate
from paceline.exchange.process_group import divide, join, leave
from paceline.measurement.training_report import TrainingReport
from paceline.record.point import Point
from paceline.run.asked import leave_signals_to_launcher
from paceline.run.checkpoint_files import ServerCheckpoints
from paceline.run.quiet import silence
from paceline.run.training_process import TrainingProcess
from paceline.timing.pace import give_way


def run(point: Point, folder: Path) -> TrainingReport | ServerReport:
    """Train or serve in `point`, and report the observations.

    Workers have the first ranks, servers the others. `folder`: folder of the partial record.
    """
    silence()
    if point.training.checkpoint_seconds is not None:
        leave_signals_to_launcher()
    torch.set_num_threads(point.cluster.threads_per_worker)
    join(point.cluster.peer_seconds, point.device)
    num_training, num_servers = point.num_processes
    if point.sharding.shards > 1 and point.kind != "virtual":
        divide(point.workers, point.sharding.shards)
    if dist.get_rank() < num_training:
        if point.kind == "paced" and num_servers:
            give_way()
        report = TrainingProcess(point, folder).run()
    else:
        server = f"server_{dist.get_rank() - num_training}"
        kept = ServerCheckpoints(folder, server, num_training + num_servers)
        report = serve(point.scheme, tolerate, kept)
    leave()  # not after an error: peers would report the closed connection first
    report.peak_rss_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return report
